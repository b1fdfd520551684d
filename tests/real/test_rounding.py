"""The bound of the other tests here holds for other orders of summation, and planted errors break it."""

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
def one_weight_moved(layer, image, answer):
    layer.weight[4, 7, 2, 1] *= 1 + 2**-10
    return layer(image)


def two_channels_swapped(layer, image, answer):
    return answer[:, [1, 0, 2, 3, 4]]


def axes_swapped(layer, image, answer):
    return layer(pad(image, (0, 1)).transpose(2, 3)).transpose(2, 3)


def one_pixel_off(layer, image, answer):
    return answer.roll(1, dims=3)


def just_over_the_bound(layer, image, answer):
    answer[1, 4, 4, 4] += 2.1 * rounding_bound(layer, image, torch.float32)[1, 4, 4, 4]
    return answer


def one_nan(layer, image, answer):
    answer[0, 0, 0, 0] = torch.nan
    return answer


def empty(layer, image, answer):
    return answer[:0]


def broadcast(layer, image, answer):
    return answer[:1]


@pytest.mark.parametrize(
    "plant",
    [
        one_weight_moved,
        two_channels_swapped,
        axes_swapped,
        one_pixel_off,
        just_over_the_bound,
        one_nan,
        empty,
        broadcast,
    ],
)
@torch.no_grad()
def test_planted_errors_are_caught(layer, image, plant):
    original = nn.Conv2d(8, 5, KERNEL)
    original.load_state_dict(layer.state_dict())
    answer = plant(layer, image, layer(image))
    assert not within(original, image, answer)
