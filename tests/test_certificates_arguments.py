"""Arguments of the wrong kind are refused in one sentence; what is no tensor in an output never counts as compared."""

import re
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import conv2attn
from conv2attn.equivalence import certify
from conv2attn.equivalence.arguments import a_kind, check_arguments, check_labels, check_numbers, is_number
from conv2attn.equivalence.computed.outputs import leaves
from conv2attn.equivalence.computed.returned import difference, findings_returned, is_dense, rest
from conv2attn.equivalence.readings.finding import undecided
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict

IMAGES = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
FINE = {"tolerance": None, "input_range": 1.0, "input_size": None, "seed": 0}


class Name(str):
    """A text of another type, which looks like one."""


class Ending(nn.Module):
    """A convolution, and what becomes of its output."""

    def __init__(self, ending=lambda output: output):
        super().__init__()
        self.conv, self.ending = nn.Conv2d(1, 2, 3), ending

    def forward(self, image):
        return self.ending(self.conv(image))


def asked(**given):
    layer = nn.Conv2d(1, 2, 3)
    check_arguments(**{"original": layer, "network": layer, "images": IMAGES, "labels": None, **FINE, **given})


def refused(told, **given):
    with pytest.raises(UsageError, match=re.escape(f"C2A001 {told}")):
        asked(**given)


def test_arguments_of_the_right_kind_pass():
    for tolerance in (None, 0, 0.0, 1e300, np.float64(0.5)):
        asked(tolerance=tolerance)
    for input_range in (0, 0.5, float("inf")):
        asked(input_range=input_range)
    for seed in (0, -(2**63), 2**64 - 1):
        asked(seed=seed)
    for size in (None, (1, 4, 4), [1, 4], torch.Size([1])):
        asked(input_size=size, images=None)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        asked(labels=torch.zeros(2, dtype=dtype))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        asked(images=IMAGES.to(dtype))
    asked(images=None, labels=torch.zeros(1, dtype=torch.int64))
    asked(images=torch.ones(1))


@pytest.mark.parametrize(
    ("given", "kind"), [(None, "a NoneType"), ("model.pt", "a str"), (3, "an int"), ([], "a list")]
)
def test_networks_are_modules(given, kind):
    refused(f"original is {kind}, not an nn.Module. Pass two networks or layers", original=given)
    refused(f"network is {kind}, not an nn.Module. Pass two networks or layers", network=given)


@pytest.mark.parametrize("place", ["weight", "buffer"])
def test_networks_have_numbers(place):
    for which in ("original", "network"):
        given = nn.Conv2d(1, 1, 3, device="meta" if place == "weight" else None)
        given.register_buffer("count", torch.zeros(1, device="meta" if place == "buffer" else None))
        refused(f"{which} is on the meta device, without numbers. Load its numbers first", **{which: given})


@pytest.mark.parametrize("given", ["x", [1.0], -1, -0.5, float("inf"), float("nan"), True, 1j, torch.tensor(1.0)])
def test_a_tolerance_is_a_number(given):
    refused(f"tolerance={given!r} is not a finite number of at least 0", tolerance=given)


@pytest.mark.parametrize("given", ["x", None, -1, -0.5, float("nan"), True, [1.0]])
def test_a_range_is_a_number(given):
    refused(f"input_range={given!r} is not a number of at least 0", input_range=given)


@pytest.mark.parametrize("given", [5, 5.0, {3, 4}, torch.ones(3)])
def test_sizes_are_sequences(given):
    told = f"input_size={given!r} is not (channels, *sides). Pass a tuple of whole numbers"
    refused(told, input_size=given, images=None)


@pytest.mark.parametrize("given", ["x", None, 1.0, True, 2**64, -(2**63) - 1, np.int64(3)])
def test_a_seed_is_a_whole_number(given):
    refused(f"seed={given!r} is not a whole number of 64 bits. Pass an int", seed=given)


def strange(tensor):
    """The numbers of a tensor, sparse, quantised and nested; torch warns of the latter two, once a process."""
    with warnings.catch_warnings(action="ignore"):
        quantised = torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)
        return [tensor.to_sparse(), quantised, torch.nested.nested_tensor(list(tensor))]


def test_images_are_dense_floating_point_numbers():
    for images in strange(IMAGES):
        refused("images are a sparse, quantised or nested tensor. Pass a dense one: images.to_dense()", images=images)
    for images in ("x", [[1.0]], np.ones((1, 1, 4, 4)), torch.ones(0, 1, 4, 4)):
        refused("images are not a tensor with numbers in it", images=images)
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        told = f"images are {dtype}, and ranges are those of floating-point numbers. Pass images.float()"
        refused(told, images=IMAGES.to(dtype))
    refused("images are a single number. Pass (batch, channels, *sides)", images=torch.tensor(1.0))


def test_labels_are_a_class_for_each_image():
    for labels in ([0, 1], "x", np.zeros(2, dtype=np.int64)):
        refused(f"labels are {a_kind(labels)}, not a tensor of whole numbers. Pass the classes' numbers", labels=labels)
    for dtype in (torch.float32, torch.bool):
        told = f"labels are a tensor of {dtype}, not a tensor of whole numbers"
        refused(told, labels=torch.zeros(2, dtype=dtype))
    refused("labels are a tensor of torch.int64, not", labels=torch.ones(2, dtype=torch.int64).to_sparse())
    for shape in ((1,), (3,), (2, 1), ()):
        told = f"labels are {shape}, not one for each of 2 images. Pass a class an image"
        refused(told, labels=torch.zeros(shape, dtype=torch.int64))
    refused("labels are (2,), not one for each of 1 images", labels=torch.zeros(2, dtype=torch.int64), images=None)
    with pytest.raises(UsageError, match="not one for each of 3 images"):
        check_labels(torch.zeros(2, dtype=torch.int64), 3)


def test_numbers_are_real_and_no_truth_values():
    assert [is_number(x) for x in (1, 0.5, np.float64(1), True, "1", None, 1j)] == [True] * 3 + [False] * 4
    assert [a_kind(x) for x in (1, "a", [], None)] == ["an int", "a str", "a list", "a NoneType"]
    check_numbers(**FINE)


def test_certificates_refuse_what_is_of_the_wrong_kind():
    """Each of these ended in a raw error, or was believed."""
    pair = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)
    for given in ({"tolerance": "x"}, {"input_range": "x"}, {"seed": 1.5}, {"labels": torch.zeros(7).long()},
                  {"labels": [1, 2]}, {"images": IMAGES.to_sparse()}, {"input_size": 3}):  # fmt: skip
        with pytest.raises(UsageError, match="C2A001"):
            certify(*pair, **{"images": IMAGES, **given})
    with pytest.raises(UsageError, match="original is a str"):
        certify("a", pair[1], images=IMAGES)
    with pytest.raises(UsageError, match="network is a NoneType"):
        certify(pair[0], None, images=IMAGES)


@dataclass
class Held:
    tensor: Tensor


def test_only_dense_tensors_are_compared():
    assert [is_dense(x) for x in (IMAGES, nn.Parameter(IMAGES), *strange(IMAGES), 1, None)] == [True] * 2 + [False] * 5
    output = {"a": [IMAGES, None, ()], "b": (IMAGES.to_sparse(), {}), "c": "x"}
    assert [where for where, _ in leaves(output)] == ["output['a'][0]"]
    assert [where for where, _ in rest(output)] == [
        "output['a'][1]", "output['a'][2]", "output['b'][0]", "output['b'][1]", "output['c']"]  # fmt: skip
    assert list(rest(IMAGES)) == []
    assert list(rest(3)) == [("output", 3)]
    assert list(rest([])) == [("output", [])]


def test_what_is_plain_and_the_same_is_no_finding():
    held = [None, "a", b"a", True, 3, 0.5, 2j, torch.float32, torch.device("cpu"), torch.Size([2]), (), [], {}]
    assert findings_returned(held, list(held), "") == []
    assert findings_returned((IMAGES, float("nan")), (IMAGES, float("nan")), "") == []


@pytest.mark.parametrize(("first", "second", "told"), [
    ("a", "b", "output is 'b', not 'a', and only dense tensors in nested tuples, lists and mappings are compared"),
    (1, True, "output is True, not 1, and only"), ("a", Name("a"), "output is 'a', not 'a', and only"),
    (0.0, -0.0, "output is -0.0, not 0.0"),
    ((), [], "output is [], not ()"), ([1, 2], [1, 3], "output[1] is 3, not 2"),
    ({"k": None}, {"k": 0}, "output['k'] is 0"),
    ([IMAGES, 1], [IMAGES], "output[1] is 1 in one of the two, and another kind of thing or nothing in the other"),
    ([IMAGES], [IMAGES, 1], "output[1] is 1 in one of the two, and another kind of thing or nothing in the other"),
    (Held(IMAGES), Held(IMAGES), "output is of the kind Held, and only dense tensors in nested tuples"),
    ([1], [Held(IMAGES)], "output[0] is of the kind Held, and only"),
    (IMAGES.to_sparse(), IMAGES.to_sparse(), "output is of the kind Tensor, and only dense tensors"),
])  # fmt: skip
def test_what_is_not_the_same_or_not_plain_leaves_it_undecided(first, second, told):
    (finding,) = findings_returned(first, second, "")
    assert finding == undecided("outputs", "C2A407", finding.sentence)
    assert finding.sentence.startswith(told)
    assert findings_returned(first, second, "it fails") == []


def test_every_difference_is_told():
    found = findings_returned([1, "a", Held(IMAGES), 4], [2, "b", Held(IMAGES), 4], "")
    assert [each.sentence.split()[0] for each in found] == ["output[0]", "output[1]", "output[2]"]
    assert difference("output", {"output": 1}, {"output": 1}) == ""


@pytest.mark.parametrize(("ending", "verdict"), [
    (lambda y: (y, None, "a", {"b": {"c": y}}), Verdict.HOLDS),
    (lambda y: None, Verdict.UNDECIDED), (lambda y: "a", Verdict.UNDECIDED), (Held, Verdict.UNDECIDED),
    (lambda y: (y, Held(y)), Verdict.UNDECIDED), (lambda y: {"a": [y, {"b": Held(y)}]}, Verdict.UNDECIDED),
    (lambda y: y.to_sparse(), Verdict.UNDECIDED), (lambda y: (y, y.to_sparse()), Verdict.UNDECIDED),
])  # fmt: skip
def test_outputs_that_are_no_tensors_never_hold(ending, verdict):
    network = Ending(ending)
    assert certify(network, conv2attn.convert(network), images=IMAGES).verdict is verdict
