"""What two networks return: compared by place, kind and number, and counted; nothing else than tensors ever holds."""

import math
import warnings
from dataclasses import dataclass

import pytest
import torch
from equality import planted
from equality.pairs import After
from torch import Tensor

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Verdict

IMAGES = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def returning(net, image):
    """Something else than what its convolution returns."""
    return net.given() if callable(net.given) else net.given


def compared(first, second, images=IMAGES, **asked):
    """The certificate of two networks that return these."""
    original = After(returning, channels=(1, 2), given=first)
    converted = conv2attn.convert(original)
    converted.given = second
    return certify(original, converted, images=images, **asked)


def judged(report):
    """The worst finding on the outputs."""
    return max(
        (each for each in report.between if each.part == "outputs"), key=lambda each: [*Verdict].index(each.verdict)
    )


ONE, TWO = torch.ones(2, 3), torch.full((2, 3), 2.0)
NAN, INFINITE = torch.tensor([1.0, math.nan]), torch.tensor([math.inf, 1.0])


class Name(str):
    """A text of another type, which looks like one."""


@dataclass
class Held:
    tensor: Tensor


def strange(tensor):
    """The numbers of a tensor: sparse, quantised and nested; torch warns of the latter two."""
    with warnings.catch_warnings(action="ignore"):
        quantised = torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)
        return {
            "sparse": tensor.to_sparse(),
            "quantised": quantised,
            "nested": torch.nested.nested_tensor(list(tensor)),
        }


PLAIN = [None, "a", b"a", True, 3, 0.5, 2j, torch.float32, torch.device("cpu"), torch.Size([2]), (), [], {}]
OUTPUTS = {
    "the same kinds": (ONE, TWO, HOLDS),
    "mappings": ({"a": ONE}, {"a": TWO}, HOLDS),
    "plain values": ([ONE, *PLAIN], [ONE, *PLAIN], HOLDS),
    "a NaN that is no tensor": ((ONE, math.nan), (ONE, math.nan), HOLDS),
    "nothing among others": ((ONE[:0], ONE), (ONE[:0], TWO), UNDECIDED),
    "one missing": ((ONE, TWO), (ONE,), HOLDS),
    "one more": ((ONE,), (ONE, TWO), HOLDS),
    "another name": ({"a": ONE}, {"b": ONE}, HOLDS),
    "another order": ({"a": ONE, "b": TWO}, {"b": TWO, "a": ONE}, HOLDS),
    "a tensor of several": (ONE, {"a": ONE, "b": TWO}, UNDECIDED),
    "another order of kinds": ([ONE, ONE[:1]], [ONE[:1], ONE], REFUTED),
    "another shape": (ONE, ONE[:1], REFUTED),
    "another dtype": ((ONE, ONE), (TWO, ONE.double()), REFUTED),
    "truth values of other kind": (ONE > 0, ONE, REFUTED),
    "empty in both": (ONE[:0], ONE[:0], UNDECIDED),
    "not finite in the first": (NAN, torch.ones(2), UNDECIDED),
    "infinite in the second": (torch.ones(2), INFINITE, REFUTED),
    "NaN in the second": ((ONE, torch.ones(2)), (ONE, NAN), REFUTED),
    "NaN in a single number": (torch.tensor(1.0), torch.tensor(math.nan), REFUTED),
    "a difference beyond float64": (1.5e308 * ONE.double(), -1.5e308 * ONE.double(), REFUTED),
    "no tensor": ("text", "text", UNDECIDED),
    "no tensor in the first": ("text", ONE, UNDECIDED),
    "nothing": (None, None, UNDECIDED),
    "another text": ([ONE, "a"], [ONE, "b"], UNDECIDED),
    "a text of another type": ([ONE, "a"], [ONE, Name("a")], UNDECIDED),
    "1 and True": ([ONE, 1], [ONE, True], UNDECIDED),
    "zeros of other signs": ([ONE, 0.0], [ONE, -0.0], UNDECIDED),
    "an empty tuple and list": ([ONE, ()], [ONE, []], UNDECIDED),
    "nothing and 0": ({"k": None, "x": ONE}, {"k": 0, "x": ONE}, UNDECIDED),
    "a number more": ([ONE], [ONE, 1], UNDECIDED),
    "a number less": ([ONE, 1], [ONE], UNDECIDED),
    "an object": ((ONE, Held(ONE)), (ONE, Held(ONE)), HOLDS),
    "an object in a mapping": ({"a": [ONE, {"b": Held(ONE)}]}, {"a": [ONE, {"b": Held(ONE)}]}, HOLDS),
    **{f"a {kind} tensor": ((ONE, each), (ONE, each), UNDECIDED) for kind, each in strange(ONE).items()},
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_compared_by_place_and_kind(name):
    first, second, verdict = OUTPUTS[name]
    report = compared(lambda: first, lambda: second)
    found = judged(report)
    assert found.verdict is verdict, report.to_text()
    assert verdict is HOLDS or (found.code, bool(found.sentence)) == ("C2A407", True)
    assert report.rows[0].verdict is HOLDS
    assert (report.outputs is None) or verdict is not REFUTED
    assert all(torch.equal(each.image, IMAGES[each.index]) for each in report.counterexamples)


def test_the_place_of_what_is_not_finite_is_named_by_its_axes():
    second = torch.ones(2, 2, 2, 2).index_fill(2, torch.tensor([1]), math.inf)
    told = judged(compared(torch.ones(2, 2, 2, 2), second)).sentence
    assert (
        told == "output: 8 numbers of the second network not finite, beginning at image 0, channel 0, row 1, column 0"
    )


NUMBERS = {
    "floats": (torch.tensor([1.0, 5.0, -3.0]), torch.tensor([1.5, 1.0, -3.0]), 4.0, 5.0),
    "one number": (torch.tensor(2.0), torch.tensor(1.5), 0.5, 2.0),
    "several": ((ONE, -3 * ONE), (ONE + 0.5, -3 * ONE), 0.5, 3.0),
    "float16 at its ends": (torch.tensor([65504.0]).half(), torch.tensor([-65504.0]).half(), 131008.0, 65504.0),
    "large floats": (torch.tensor([2.0**100]), torch.tensor([-(2.0**100)]), 2.0**101, 2.0**100),
    "truth values": (torch.tensor([[True, False]]), torch.tensor([[False, True]]), 1.0, 1.0),
    "whole numbers": (torch.tensor([[-3, 7]]), torch.tensor([[2, 7]]), 5.0, 7.0),
    "complex numbers": (torch.tensor([[3 + 4j, 0]]), torch.tensor([[6 + 8j, 0]]), 5.0, 5.0),
}


@pytest.mark.parametrize(
    ("name", "turned"), [*((name, False) for name in NUMBERS), ("floats", True), ("float16 at its ends", True)]
)
def test_the_largest_difference_is_in_float64(name, turned):
    first, second, difference, largest = NUMBERS[name]
    found = compared(*((second, first) if turned else (first, second))).outputs
    assert found.max_difference == difference
    assert turned or found.largest_output == largest


def test_classes_and_margins_are_counted_for_each_image():
    first = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.5], [1.0, 0.0, 5.0], [4.0, 3.0, 0.0]])
    second = torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.5, 2.0], [1.0, 0.0, 2.75], [4.0, 3.5, 0.0]])
    images = torch.rand(4, 1, 4, 4)
    found = compared(first, second, images, labels=torch.tensor([0, 2, 2, 1])).outputs
    assert (found.count, found.max_difference, found.largest_output) == (4, 2.25, 5.0)
    assert (found.same_top1, found.correct, found.stable) == (3, (2, 3), 1)
    same = compared(first, first, images).outputs
    assert (same.same_top1, same.correct, same.stable) == (4, None, 4)
    ties = torch.tensor([[1.0, 1.0]])
    assert compared(ties, ties, images[:1]).outputs.stable == 0
    assert compared(first[:, :1], first[:, :1], images).outputs.same_top1 is None


ENDINGS = {
    "truth values": (lambda pixels: pixels > 0, HOLDS),
    "whole numbers": (lambda pixels: (pixels / 100).round().long(), HOLDS),
    "complex numbers": (lambda pixels: torch.complex(pixels, -pixels), HOLDS),
    "plain values beside tensors": (lambda pixels: (pixels, None, "a", {"b": {"c": pixels}}), HOLDS),
    "a sparse tensor": (lambda pixels: pixels.to_sparse(), UNDECIDED),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_only_tensors_and_plain_values_are_proved(kind):
    ending, verdict = ENDINGS[kind]
    original = After(lambda net, y: ending(y.sum((2, 3))), channels=(4, 3))
    assert certify(original, conv2attn.convert(original), images=planted.image()).verdict is verdict
