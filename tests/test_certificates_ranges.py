"""What inputs are asked about: ranges from 0 on, and images with numbers in them."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equivalence import certify
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict


def pair():
    torch.manual_seed(0)
    original = nn.Conv2d(2, 3, 3, padding=1)
    return original, conv2attn.convert(original)


@pytest.mark.parametrize("input_range", [0.0, 0.5, 2.0])
def test_a_range_is_a_number_of_at_least_0(input_range):
    report = certify(*pair(), input_size=(2, 4, 5), input_range=input_range)
    assert report.verdict is Verdict.HOLDS
    assert report.rows[0].input_range <= input_range


@pytest.mark.parametrize("input_range", [-0.5, -1.0, float("nan")])
def test_no_range_is_below_0(input_range):
    with pytest.raises(UsageError, match=r"C2A001 input_range=.* is not a number of at least 0"):
        certify(*pair(), images=torch.ones(1, 2, 4, 5), input_range=input_range)


@pytest.mark.parametrize("images", [torch.ones(0, 2, 4, 5), [[1.0]], None])
def test_images_are_a_tensor_with_numbers(images):
    told = "images are not a tensor with numbers in it" if images is not None else "nothing says how large an image"
    with pytest.raises(UsageError, match=f"C2A001 {told}"):
        certify(*pair(), images=images)


def test_where_autocast_is_on_nothing_is_said():
    with torch.autocast("cpu"), pytest.raises(UsageError, match="C2A001 autocast is on"):
        certify(*pair(), input_size=(2, 4, 5))
