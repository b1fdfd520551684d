"""The bound of the other tests here holds for other orders of summation, and planted errors break it."""

from copy import deepcopy

import pytest
import torch
from rounding import rounding_bound, within
from torch import nn
from torch.nn.functional import pad, unfold

KERNEL, SIDES = (3, 2), (7, 6)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Conv2d(8, 5, KERNEL)


@pytest.fixture
def image(layer):
    return torch.randn(2, 8, *SIDES)


@torch.no_grad()
def by_unfolding(layer, image, dtype=torch.float32):
    """The convolution as one matrix product, its terms added in reverse."""
    columns = unfold(image, KERNEL).flip(1).to(dtype)
    product = layer.weight.flatten(1).flip(1).to(dtype) @ columns + layer.bias[:, None].to(dtype)
    return product.unflatten(2, [length - tap + 1 for length, tap in zip(SIDES, KERNEL, strict=True)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_other_orders_of_summation_pass(layer, image, dtype):
    layer, image = layer.to(dtype), image.to(dtype)
    assert within(layer, image, layer(image))
    assert within(layer, image, by_unfolding(layer, image, dtype))


@torch.no_grad()
def one_weight_moved(layer, image):
    layer.weight[4, 7, 2, 1] *= 1 + 2**-10
    return layer(image)


def one_number(layer, image, wrong):
    answer = layer(image)
    answer[1, 4, 4, 4] += wrong
    return answer


PLANTED = {
    "one weight moved": one_weight_moved,
    "two channels swapped": lambda layer, image: layer(image)[:, [1, 0, 2, 3, 4]],
    "axes swapped": lambda layer, image: layer(pad(image, (0, 1)).transpose(2, 3)).transpose(2, 3),
    "one pixel off": lambda layer, image: layer(image).roll(1, dims=3),
    "just over the bound": lambda layer, image: one_number(
        layer, image, 2.1 * rounding_bound(layer, image, torch.float32)[1, 4, 4, 4]
    ),
    "one NaN": lambda layer, image: one_number(layer, image, torch.nan),
    "empty": lambda layer, image: layer(image)[:0],
    "broadcast": lambda layer, image: layer(image)[:1],
}


@pytest.mark.parametrize("name", PLANTED)
@torch.no_grad()
def test_planted_errors_are_caught(layer, image, name):
    original = deepcopy(layer)
    assert not within(original, image, PLANTED[name](layer, image))
