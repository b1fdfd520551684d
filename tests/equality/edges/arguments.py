"""Arguments of `certify`: of the wrong kind they are refused in one sentence, before anything runs."""

import math
import re

import numpy as np
import pytest
import torch
from equality.edges.outputs import strange
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.errors import UsageError
from conv2attn.networks import Provenance, with_provenance
from conv2attn.verdicts import Verdict

SIZE = (1, 4, 5)
IMAGES = torch.rand(2, *SIZE, generator=torch.Generator().manual_seed(0))
LAYER = nn.Conv2d(1, 2, 3)
CONVERTED = conv2attn.convert(LAYER)


def meta(buffer):
    """A layer with a weight, or a buffer, that has no numbers."""
    layer = nn.Conv2d(1, 2, 3, device=None if buffer else "meta")
    layer.register_buffer("count", torch.zeros(1, device="meta" if buffer else None))
    return layer


NO_NUMBER = ["x", [1.0], -1, -0.5, math.nan, True, 1j, torch.tensor(1.0)]
WRONG = {
    **{which: [None, "model.pt", 3, [], meta(True), meta(False)] for which in ("original", "network")},
    "input_range": [*NO_NUMBER, None],
    "input_size": [5, 5.0, {3, 4}, torch.ones(3), (1, 0, 5), (1, -3, 5), (1, 4.5, 5), (2**13, 2**13, 2)],
    "seed": ["x", None, 1.0, True, 2**64, -(2**63) - 1, np.int64(3)],
    "images": [
        *("x", [[1.0]], np.ones((1, *SIZE)), torch.ones(0, *SIZE), torch.tensor(1.0), *strange(IMAGES).values()),
        *(IMAGES.to(dtype) for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64)),
        *(torch.ones(2, 7, 4, 5), IMAGES.double()),
    ],
    "labels": [
        *([0, 1], "x", np.zeros(2, dtype=np.int64), torch.zeros(2), torch.zeros(2, dtype=torch.bool)),
        *(torch.ones(2, dtype=torch.int64).to_sparse(), *(torch.zeros(s).long() for s in ((1,), (3,), (2, 1), ()))),
    ],
}
RIGHT = {
    "input_range": [0, 0.5],
    "input_size": [SIZE, [*SIZE], torch.Size(SIZE)],
    "seed": [-(2**63), 2**64 - 1],
    "labels": [torch.zeros(2, dtype=d) for d in (torch.uint8, torch.int64)],
}


def asked(name, given):
    """`certify` with one argument changed."""
    pair = {"original": LAYER, "network": CONVERTED, **({name: given} if name in ("original", "network") else {})}
    where = {} if name == "input_size" else {"images": IMAGES}
    return certify(**pair, **{**where, **({} if name in pair else {name: given})})


@pytest.mark.parametrize("name", WRONG)
def test_what_is_of_the_wrong_kind_is_refused_in_one_sentence(name):
    for given in WRONG[name]:
        with pytest.raises(UsageError, match=r"C2A00[1679] ") as error:
            asked(name, given)
        assert "\n" not in str(error.value), given
        assert not re.search(r"\b(a [aeiou]|an [^aeiou])", str(error.value), re.I), error.value


def test_as_many_images_as_channels_are_a_batch():
    rows = nn.Sequential(nn.Unflatten(1, (3, 8)), nn.Conv1d(3, 4, 3))  # as many images as channels
    assert certify(rows, conv2attn.convert(rows), images=torch.rand(3, 24)).verdict is Verdict.HOLDS


def test_assumptions_say_of_which_file_they_are():
    first, second = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)
    first, second = (
        with_provenance(each, Provenance("f", "k", name, ("guessed",)))
        for each, name in ((first, "one"), (second, "two"))
    )
    read = [certify(first, each, images=IMAGES).circumstances["read as"] for each in (first, second)]
    both = "of which the first network is read as one (guessed) and the second network is read as two (guessed)"
    assert read == ["read as one (guessed)", both]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_of_the_right_kind_passes(name):
    for given in RIGHT[name]:
        assert asked(name, given).verdict in (Verdict.HOLDS, Verdict.UNDECIDED), given


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_are_of_any_floating_point_format(dtype):
    layer = nn.Conv2d(1, 2, 3, dtype=dtype)
    assert certify(layer, conv2attn.convert(layer), images=IMAGES.to(dtype))


def test_a_range_is_a_number_of_any_library_that_a_float_holds():
    for reach in (10**30, np.int64(2), np.float32(2)):
        assert certify(LAYER, CONVERTED, input_size=SIZE, input_range=reach).verdict is Verdict.HOLDS


@pytest.mark.parametrize("reach", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_random_images_are_seeded_fill_the_range_and_have_the_format_of_the_layers(reach, dtype):
    layer = nn.Conv2d(2, 2, 1, bias=False).to(dtype)
    seen = []
    layer.register_forward_pre_hook(
        lambda module, args: seen.append(args[0]) if type(args[0]) is torch.Tensor else None
    )
    made = [certify(layer, layer, input_size=(2, 30, 40), input_range=reach, seed=seed) for seed in (5, 5, 6)]
    ranges = [report.rows[0].input_range for report in made]
    assert ranges[0] == ranges[1]
    assert (ranges[0] != ranges[2]) is (reach > 0 and dtype is not torch.bfloat16)
    assert 0.99 * reach <= ranges[0] <= reach
    assert {image.dtype for image in seen} == {dtype}
    assert made[0].outputs.images == f"1 random image 2x30x40 within +-{reach:g} (seed 5)"


def test_the_size_of_random_images_may_be_that_of_the_architecture():
    class Planned(nn.Sequential):
        plan = type("Plan", (), {"input_size": (1, 4, 5)})

    layer = Planned(nn.Conv2d(1, 2, 3))
    assert certify(layer, layer).rows[0].grid == (2, 3)
    assert certify(layer, layer, input_size=(1, 6, 6)).rows[0].grid == (4, 4)
