"""assert_equivalent accepts what is equal and rejects what other comparisons let through."""

import pytest
import torch
from changes import changed
from hypothesis import strategies as st
from suite import images_for, integer_tensors

from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_equivalent
from conv2attn.theory.basis import Padding

IMAGES = [torch.tensor([[1.0, 2.0, 4.0]])]


@pytest.mark.parametrize("strategy", [False, True], ids=["iterable", "strategy"])
def test_several_arguments_and_nested_outputs_are_compared(strategy):
    def parts(x, y):
        return {"sum": x + y, "pair": [x, (y,)]}

    numbers = integer_tensors((3,), torch.float32, 9)
    pairs = st.tuples(numbers, numbers) if strategy else [(torch.ones(2), torch.zeros(2))]
    assert_equivalent(parts, parts, pairs)
    with pytest.raises(AssertionError, match=r"output\['pair'\]\[1\]\[0\] differs in"):
        assert_equivalent(parts, lambda x, y: parts(x, y) | {"pair": [x, (y + 1,)]}, pairs)


def same(x):
    return x


def off(x):
    return x + 0.5


WRONG = {
    "NaN in one output": (same, lambda x: torch.where(x == 2, torch.nan, x), "not finite everywhere"),
    "infinity": (same, lambda x: torch.where(x == 2, torch.inf, x), "not finite everywhere"),
    "another dtype": (same, lambda x: x.double(), "has dtype torch.float32 and torch.float64"),
    "a shape that broadcasts": (same, lambda x: x[None], "has shape"),
    "one row for all": (same, lambda x: x[:, :1], "has shape"),
    "a tuple": (same, lambda x: (x,), "is Tensor and tuple"),
    "one ulp": (same, lambda x: torch.nextafter(x, torch.tensor(9.0)), "differs in 3 of 3 numbers, most at"),
    "one number": (same, lambda x: x + (x == 4), r"differs in 1 of 3 numbers, most at \(0, 2\): 4.0 and 5.0; a tol"),
    "axes swapped": (same, lambda x: x.T, "has shape"),
    "the input changed in place": (lambda x: x.add_(1), same, "differs in 3 of 3 numbers"),
    "order": (same, lambda x: x.flip(-1), r"differs in 2 of 3 numbers"),
    "nothing": (same, lambda x: None, "is Tensor and NoneType"),
    "NaN on both sides": (
        lambda x: torch.log(-x),
        lambda x: torch.log(-x),
        "output of the first is not finite everywhere",
    ),
    "no output": (lambda x: [], lambda x: [], "output is empty"),
    "no tensor": (lambda x: None, lambda x: None, "output is NoneType, which holds no tensor"),
    "an empty tensor": (lambda x: [x[:0]], lambda x: [x[:0]], r"output\[0\] is empty"),
    "another length": (lambda x: [x], lambda x: [x, x], "output has 1 and 2 items"),
    "other keys": (lambda x: {"a": x}, lambda x: {"b": x}, r"output has the keys \['a'\] and \['b'\]"),
}
UNFIT = {
    "an infinite tolerance": (lambda x: x / (x != 2), IMAGES, float("inf"), "not finite everywhere"),
    "too small a tolerance": (off, IMAGES, lambda x: x / 4, "differs in"),
    "NaN as tolerance": (off, IMAGES, float("nan"), "differs in"),
    "a tolerance of another shape": (off, IMAGES, lambda x: x[0], r"output: a tolerance of shape \(3,\)"),
    "whole numbers that are one in float64": (lambda x: x + 1, torch.tensor([2**53]), 0.5, "differs in 1 of 1 numbers"),
    "no input": (same, [], None, "no input: nothing was compared"),
    "an empty input": (same, [torch.ones(0, 3)], None, "output is empty"),
    "a strategy of nothing": (same, st.nothing(), None, "the strategy draws no input: nothing was compared"),
}
CASES = {
    **{name: (f, g, IMAGES, None, match) for name, (f, g, match) in WRONG.items()},
    **{f"{name}, with a tolerance": (f, g, IMAGES, 1e-9, match) for name, (f, g, match) in WRONG.items()},
    **{name: (same, *case) for name, case in UNFIT.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_equal_is_rejected(name):
    f, g, inputs, tolerance, match = CASES[name]
    with pytest.raises(AssertionError, match=match):
        assert_equivalent(f, g, inputs, tolerance=tolerance)


def test_a_tolerance_is_a_number_or_of_the_shape_of_the_output():
    assert_equivalent(same, off, IMAGES, tolerance=0.5)
    assert_equivalent(same, off, IMAGES, tolerance=lambda x: x / 2)


def test_a_difference_that_only_some_examples_show_is_found():
    """Planted: a convolution that forgets the last column where the image is wide."""
    conv = torch.nn.Conv1d(1, 1, 1, bias=False).requires_grad_(False)
    with torch.no_grad():
        conv.weight.fill_(1.0)
    with pytest.raises(AssertionError, match="differs in"):
        assert_equivalent(conv, lambda x: conv(x) * (torch.arange(x.shape[-1]) < 3), images_for(conv))


def convolution():
    """A grouped convolution in which every axis, offset and channel counts."""
    conv = torch.nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in conv.parameters():
        parameter.copy_(torch.randint(1, 999, parameter.shape, generator=generator))
    return conv


PIXELS = torch.randint(-9, 10, (1, 4, 6, 5), generator=torch.Generator().manual_seed(1)).float()


def shift_the_padding(layer):
    before, after = layer.image_padding.before, layer.image_padding.after
    layer.image_padding = Padding((before[0] + 1, before[1]), (after[0] - 1, after[1]))


PLANTED = {
    "axes swapped": lambda layer: changed(layer, "center", lambda numbers: numbers.copy_(numbers.flip(1).clone())),
    "offsets negated": lambda layer: changed(layer, "center", lambda numbers: numbers.neg_()),
    "a head dropped": lambda layer: layer.weight[2].zero_(),
    "two heads swapped": lambda layer: layer.weight.index_copy_(0, torch.tensor([0, 1]), layer.weight[[1, 0]]),
    "the padding shifted": shift_the_padding,
    "the dilation forgotten": lambda layer: changed(layer, "center", lambda numbers: numbers[:, 0].div_(2)),
    "groups permuted": lambda layer: layer.weight.copy_(layer.weight.unflatten(1, (2, -1)).flip(1).flatten(1, 2)),
    "a NaN": lambda layer: layer.bias[3].fill_(torch.nan),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_planted_errors_are_rejected(plant):
    conv = convolution()
    layer = attention_for(read_convolution(conv)).requires_grad_(False)
    PLANTED[plant](layer)
    with pytest.raises(AssertionError, match=r"differs in|not finite|has shape"):
        assert_equivalent(conv, layer, PIXELS, tolerance=0.5)


def test_permuted_heads_are_not_an_error():
    conv = convolution()
    layer = attention_for(read_convolution(conv)).requires_grad_(False)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    changed(layer, "center", lambda numbers: numbers.copy_(numbers[order].clone()))
    layer.weight.copy_(layer.weight.flatten(2)[..., order].unflatten(2, (3, 2)))
    assert_equivalent(conv, layer, images_for(conv))
