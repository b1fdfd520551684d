"""The bound of a row, in the arithmetic of this machine: never exceeded, close, and larger with all that rounds."""

import statistics

import pytest
import torch
from equality.pairs import convolution, row_of
from equality.planted import taps
from torch import nn

import conv2attn
from benchmarks.tightness import CASES, SHORT, measure, table
from conv2attn.equality import Pair, comparable_basis
from conv2attn.equality.layers.rounding import overflow
from conv2attn.theory.bounds import convolution_bound, gamma, leaked_mass

FORMATS = {
    dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}


def layer(channels=(16, 16), kernel=3, dtype=torch.float32, **options):
    return convolution(nn.Conv2d, channels, kernel, dtype, **options)


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def bound(original, converted, reach=1.0, sides=(9, 8)):
    """The bound of the row for all inputs up to `reach`."""
    image = torch.full((1, original.in_channels, *sides), reach, dtype=original.weight.dtype)
    return row_of(original, converted, image).bound


def factored(layer, width=5):
    """Both factors random, whose products are formed when the layer runs."""
    generator = torch.Generator().manual_seed(2)
    shapes = (width * layer.groups, layer.d_in // layer.groups), (layer.d_out, width)
    layer.weight, layer.d_head = None, width * layer.groups
    for name, shape in zip(("value", "output"), shapes, strict=True):
        numbers = torch.randn(*shape, layer.heads, generator=generator).to(layer.bias.dtype)
        setattr(layer, name, nn.Parameter(numbers))


@pytest.mark.slow
def test_the_median_ratio_is_under_100_up_to_500_terms():
    short = [(channels, size) for channels, size in CASES if channels * size**2 <= SHORT]
    found = [measure(channels, size, 128.0, 3) for channels, size in short]
    assert all(0 < each.worst <= each.bound for each in found)
    assert statistics.median(each.ratio for each in found) < 100, table(found)


def test_the_ratio_of_a_leaking_layer_is_small():
    found = measure(8, 3, 3.0, 4)
    assert found.worst <= found.bound < 10 * found.worst


def sums(original):
    """The largest sum of an output's |weights|."""
    return original.weight.detach().double().abs().sum((1, 2, 3)).max().item()


def one_of(dtype=torch.float32, change=lambda layer: None, alpha="auto", **options):
    original = layer((4, 6), dtype=dtype, **options)
    converted = conv2attn.convert(original, alpha=alpha)
    change(converted)
    return original, converted


def leaking():
    original, converted = one_of(alpha=5)
    return original, converted, 2 * leaked_mass(5.0, 2) * sums(original)


def rounding(dtype):
    original, converted = one_of(dtype)
    return original, converted, 2 * sums(original) * convolution_bound(36, FORMATS[dtype], casts=2).factor


def with_other_weights():
    original, converted = one_of(change=lambda layer: taps(layer)[1].add_(0.25))
    return original, converted, 4 * 0.25


def with_other_biases():
    original, converted = one_of(change=lambda layer: layer.bias.data[2].add_(7.0))
    return original, converted, 7.0


def with_a_bias_alone():
    original, converted = one_of(bias=False)
    converted.bias = nn.Parameter(torch.full((6,), -7.0))
    return original, converted, 7.0


def with_factors():
    original, converted = one_of(change=factored)
    size = torch.einsum("ich,och->", converted.value.detach().abs().transpose(0, 1), converted.output.detach().abs())
    original.weight.data = converted.weights.taps().detach().unflatten(0, (3, 3)).permute(2, 3, 0, 1).contiguous()
    return original, converted, 2 * gamma(7, 2.0**-24) * size.item() / 6


PRODUCTS = {
    "of any numbers": (lambda layer: None, (2, 3)),
    "of whole numbers": (lambda layer: [each.data.mul_(3).round_() for each in (layer.value, layer.output)], (2, 3)),
    "one each, seen from behind": (lambda layer: layer.output.data.copy_(2 * torch.eye(6, 4)[..., None]), (1, 1.01)),
    "one each": (lambda layer: layer.value.data.copy_(2 * torch.eye(4)[..., None]), (1, 1.01)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_factors_round_unless_each_is_one_that_the_dtype_is_seen_to_hold(name):
    change, (least, most) = PRODUCTS[name]
    original, converted = one_of(change=lambda layer: (factored(layer, 4), change(layer)))
    original.weight.data = converted.weights.taps().detach().unflatten(0, (3, 3)).permute(2, 3, 0, 1).contiguous()
    assert least <= bound(original, converted) / bound(original, conv2attn.convert(original)) <= most


def stored_partial_sums():
    """A transposed convolution adds its taps in the format that they are stored in."""
    original = nn.ConvTranspose2d(4, 6, 3).bfloat16()
    weight = original.weight.detach().double().abs().sum((0, 2, 3)).max().item()
    return original, conv2attn.convert(original), weight * convolution_bound(36, "bfloat16", casts=11).factor


PARTS = {
    "the leak": leaking,
    "other weights": with_other_weights,
    "other biases": with_other_biases,
    "a bias on one side": with_a_bias_alone,
    "products that are formed": with_factors,
    "partial sums that are stored": stored_partial_sums,
    **{f"rounding in {name}": lambda dtype=dtype: rounding(dtype) for dtype, name in FORMATS.items()},
}


REACHES = (1.0, 0.25, 37.0)


def up_to(reach, original, converted, *_):
    """A pair, and an image of numbers of this size."""
    return original, converted, torch.full((1, 4, 9, 8), reach, dtype=original.weight.dtype)


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("reach", REACHES)
def test_the_bound_counts_each_part_and_grows_with_the_range(part, reach):
    """Beside the bound of a right conversion."""
    original, converted, least = PARTS[part]()
    plain = row_of(*up_to(reach, *one_of(original.weight.dtype))).bound
    scaled = least if "bias" in part else least * reach
    assert scaled <= row_of(*up_to(reach, original, converted)).bound <= 10 * scaled + 30 * plain


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_can_overflow_exactly_where_its_largest_sums_leave_the_format(dtype, biased, side):
    layers = [layer((4, 2), 1, dtype, padding=0) for _ in range(2)]
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        for number, each in enumerate(layers):
            each.weight.fill_(0.5 * (number == side))
            each.bias.fill_(-largest / 2 * biased * (number == side))
    pair = Pair(*map(comparable_basis, layers), (False, False), (("auto",), ("auto",)))
    for share, fits in ((0.98, True), (1.02, False)):
        reach = largest / 2 * (share - biased / 2)
        assert overflow(pair, 1 - side, reach) == ""
        assert (overflow(pair, side, reach) == "") is fits
