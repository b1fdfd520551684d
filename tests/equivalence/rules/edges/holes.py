"""Bounds are not exceeded where sums reduce all, what is computed on the way overflows, or numbers are rounded."""

import pytest
import torch
from equivalence.rules.cases import Apply
from equivalence.rules.laws import carried_through, worst_found
from torch.nn import functional as F

from conv2attn.equivalence.rules.registry import stored


@pytest.mark.parametrize("axes", [(), []])
def test_a_reduction_over_no_axes_is_one_over_all(axes):
    for name in ("sum", "mean"):
        found = carried_through(Apply(lambda x, name=name: getattr(x, name)(axes, keepdim=True)), 1.0, 0.1)
        assert found == (None, f"a {name} over the images in 1")
    bound, stop = carried_through(Apply(lambda x: x.amax(axes, keepdim=True)), 1.0, 0.1)
    assert stop == ""
    assert 0.1 <= bound < 0.101


MEANS = {
    "mean": lambda x: x.mean((2, 3)),
    "avg_pool": lambda x: F.avg_pool2d(x, 3),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1),
    "area": lambda x: F.interpolate(x, size=(3, 1), mode="area"),
    "hardswish": F.hardswish,
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", MEANS)
def test_what_overflows_on_the_way_has_no_bound(name):
    """The results themselves are all below the largest float32. Whether gelu overflows depends on the processor."""
    assert name == "gelu" or MEANS[name](torch.full((1, 4, 6, 5), 3e38)).isinf().any()
    bound, stop = carried_through(Apply(MEANS[name]), 3e38, 1e20)
    assert bound is None
    assert "on the way in torch.float32" in stop
    half, stop = carried_through(Apply(MEANS[name]), 3e4, 1.0, torch.float16)
    assert stop == ""
    assert worst_found(Apply(MEANS[name]), 3e4, 1.0, torch.float16) <= half


def test_sums_are_held_to_the_largest_number_themselves():
    bound, stop = carried_through(Apply(lambda x: x.sum((2, 3))), 1e38, 1e20)
    assert bound is None
    assert "beyond float32" in stop


CLOSE = {
    "clamp": lambda x: x.clamp(0.1, 0.3),
    "clamp turned": lambda x: x.clamp(0.3, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, 0.1, 0.3),
    "times": lambda x: x * 0.7,
    "alpha": lambda x: torch.add(torch.zeros_like(x), x, alpha=0.7),
    "over": lambda x: x / 0.3,
}


@pytest.mark.parametrize("name", CLOSE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_constants_are_taken_as_they_are_stored(name, dtype):
    """In float16, clamp(0.1, 0.3) leaves numbers 0.20007 apart; as float32, 0.7 is a number below 0.7."""
    bound, stop = carried_through(Apply(CLOSE[name]), 4.0, 8.0, dtype)
    assert stop == ""
    ends = torch.tensor([-4.0, 4.0], dtype=dtype)
    assert CLOSE[name](ends).double().diff().abs().item() <= bound
    assert max(stored(0.7, torch.float16)) >= 0.7 > min(stored(0.7, torch.float16))


def test_a_constant_among_moved_numbers_is_none_that_is_rounded():
    assert carried_through(Apply(lambda x: torch.where(torch.ones(5).bool(), x, 0.1)), 1.0, 0.1)[1] == (
        "where of a number that is rounded in 1"
    )
    bound, stop = carried_through(Apply(lambda x: torch.where(torch.ones(5).bool(), x, 0.5) * 2), 1.0, 0.1)
    assert stop == ""
    assert bound >= 0.2


def test_a_constant_around_the_image_is_taken_as_it_is_stored():
    """In float16, 100.03 is 100.0625: so far apart are squares of numbers 0.1 apart."""
    bound, stop = carried_through(Apply(lambda x: F.pad(x, (1, 1), value=100.03).square()), 1.0, 0.1, torch.float16)
    assert stop == ""
    assert bound >= 2 * 2.0**-11 * 100.0625**2


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_rows_of_numbers_are_not_added_over_the_images(name):
    """More images would make the sum larger than that of the one which is run."""
    found = carried_through(Apply(lambda x: getattr(x.flatten(1), name)(0)), 1.0, 0.1)
    assert found == (None, f"a {name} over the images in 1")
