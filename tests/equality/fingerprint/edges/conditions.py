"""No rule beyond its condition: pairs that differ by a dtype, an argument, a special number or the order of writes."""

import math

import pytest
import torch
import torch.nn.functional as F

from conv2attn.equality.fingerprint import identify

T = torch.tensor
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(2, 3, 8, 8, generator=GENERATOR)
ROW = torch.randn(4, generator=GENERATOR)
WEIGHT = torch.randn(4, 1, 3, 3, generator=GENERATOR)
DOUBLE = torch.float64


def into(dtype):
    def network(x):
        return torch.empty(x.shape, dtype=dtype).copy_(x).to(x.dtype)

    return network


def out_half(x):
    half = torch.empty(x.shape, dtype=torch.half)
    torch.mul(x, 1000, out=half)
    return half.to(x.dtype)


def written_twice(first, second):
    def network(x):
        y = x.clone()
        y[first], y[second] = 1.0, 2.0
        return y

    return network


DTYPES = {
    "copied into half": (into(torch.half), lambda x: x * 1),
    "copied into bfloat16": (into(torch.bfloat16), lambda x: x * 1),
    "copied into integers": (into(torch.int32), into(torch.int8)),
    "a product in half": (out_half, lambda x: x * 1000),
    "half that overflows": (lambda x: (x.half() * x.half()).float(), lambda x: x.half().float() ** 2),
    "a sum of booleans": (lambda x: ((x > 0) + (x > 0)).float(), lambda x: (x > 0).float() * 2),
    "not of a boolean": (lambda x: (~(x > 0)).int(), lambda x: ~((x > 0).int())),
    "filled with a fraction": (lambda x: x.int().fill_(2.5).float(), lambda x: x.double().fill_(2.5).float()),
    "eight bits": (lambda x: x.to(torch.float8_e4m3fn).float(), lambda x: x * 1),
    "sums of integers": (lambda x: x.sum(-1, dtype=torch.int64).float(), lambda x: x.sum(-1)),
    "a lone number promotes": (lambda x: x > T([0.1], dtype=DOUBLE), lambda x: x > T(0.1, dtype=DOUBLE)),
    "a lone integer promotes": (
        lambda x: x.to(torch.int8) == T([300], dtype=torch.int32),
        lambda x: x.to(torch.int8) == T(300, dtype=torch.int32),
    ),
    "integers as floats": (lambda x: x.int() + 1 > 16777216, lambda x: x.int() + 1 > 16777216.0),
    "an exponent that rounds": (lambda x: x.pow(16777217).double(), lambda x: x.double().pow(16777217)),
    "an exponent of a root": (lambda x: x.pow(0.3).double(), lambda x: x.double().pow(0.3)),
    "softplus, beta that rounds": (
        lambda x: F.softplus(x, beta=0.1).double(),
        lambda x: F.softplus(x.double(), beta=0.1),
    ),
    "256 places in bytes": (
        lambda x: F.interpolate(x.byte(), scale_factor=2),
        lambda x: F.interpolate(x.byte()[:, :1].expand(2, 3, 8, 8) * 1, scale_factor=2),
    ),
}

SPECIAL = {
    "0 / 0": (lambda x: x / (x - x), torch.zeros_like),
    "signs of zero": (lambda x: x / 0.0, lambda x: x / -0.0),
    "relu / relu": (lambda x: F.relu(x - 0.5) / F.relu(x - 0.5), torch.ones_like),
    "inf - inf": (lambda x: x + math.inf - math.inf, lambda x: x * 1),
    "nan": (lambda x: x + math.nan - math.nan, lambda x: x * 1),
    "0 log": (lambda x: 0 * torch.log(x - 2), lambda x: x * 0),
    "log - log": (lambda x: (x - 0.5).log() - (x - 0.5).log(), lambda x: x * 0),
    "sqrt rsqrt": (lambda x: (x - 0.5).sqrt() * (x - 0.5).rsqrt(), torch.ones_like),
    "copysign": (lambda x: torch.copysign(x, T(0.0)), lambda x: torch.copysign(x, T(-0.0))),
    "atan2": (
        lambda x: torch.atan2(torch.zeros(8), x - 0.5),
        lambda x: torch.atan2(-torch.zeros(8), x - 0.5),
    ),
    "rows of -inf": (
        lambda x: (x + torch.full((8,), -math.inf)).softmax(-1),
        lambda x: (x - torch.full((8,), math.inf)).softmax(-1),
    ),
    "pole in half": (
        lambda x: (1 / (x * 0).half()).clamp(-1, 1),
        lambda x: (1 / (x * -0.0).half()).clamp(-1, 1),
    ),
    "lerp from either end": (
        lambda x: torch.lerp(x.log(), x, 0.7),
        lambda x: x.log() + T(0.7) * (x - x.log()),
    ),
    "a base that rounds to 0": (lambda x: 0 * (1e-46**x), lambda x: 0 * x),
}

ARGUMENTS = {
    "clamp": (lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=0.5)),
    "where": (lambda x: torch.where(x > 0.5, x, -x), lambda x: torch.where(x > 0.5, -x, x)),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), lambda x: F.leaky_relu(x, 0.2)),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=2), lambda x: torch.addcmul(x, x, x, value=3)),
    "rounding mode": (
        lambda x: torch.div(x - 0.5, 0.2, rounding_mode="floor"),
        lambda x: torch.div(x - 0.5, 0.2, rounding_mode="trunc"),
    ),
    "nan to num": (lambda x: (x / 0).nan_to_num(1, 2), lambda x: (x / 0).nan_to_num(1, 3)),
    "order of writes": (written_twice(0, slice(None)), written_twice(slice(None), 0)),
}


NUMBERS = torch.cat([ROW, T([16777216.0, 44.0, 0.1, -0.1])])
PAIRS = DTYPES | SPECIAL | ARGUMENTS


@pytest.mark.parametrize("name", PAIRS)
def test_dtypes_special_numbers_and_arguments_are_part_of_the_formula(name):
    first, second = PAIRS[name]
    images = NUMBERS if name in DTYPES and name != "256 places in bytes" else IMAGES
    assert identify(first, second, images).equal is not True
    assert name not in ARGUMENTS or identify(first, first, IMAGES).equal is not False


@pytest.mark.parametrize(("dtype", "narrow"), [(DOUBLE, torch.float32), (torch.half, torch.half)])
def test_arithmetic_narrower_than_that_of_the_images_or_float32_is_not_exact(dtype, narrow):
    def added(x):
        return (x > 0.5).to(narrow) + 0.1 - 0.1

    def itself(x):
        return (x > 0.5).to(narrow) * 1

    assert identify(added, itself, IMAGES.to(dtype)).equal is False


@pytest.mark.parametrize("stride", [1, (1,), [1, 1]])
def test_lists_of_one_mean_every_axis(stride):
    bias = torch.arange(4.0)
    images = torch.rand(2, 4, 6, 6, generator=GENERATOR)

    def biased(x):
        return F.conv2d(x, WEIGHT, bias, stride=stride, groups=4)

    def by_hand(shape):
        return lambda x: F.conv2d(x, WEIGHT, None, groups=4) + bias.view(shape)

    assert identify(biased, by_hand((4, 1, 1)), images).equal is True
    assert identify(biased, by_hand((4, 1)), images).equal is not True


def laid_anew(offset):
    """All columns but the first (1) or the last (0), as a view that is laid anew in place."""

    def network(x):
        y = (x * 1)[..., 1:]
        return y.as_strided_(y.shape, y.stride(), offset) * 1

    return network


def test_a_view_that_is_laid_anew_in_place_is_that_of_its_new_place():
    assert identify(laid_anew(1), lambda x: x[..., 1:] * 1, IMAGES).equal is True
    assert identify(laid_anew(0), lambda x: x[..., :-1] * 1, IMAGES).equal is True
    assert identify(laid_anew(0), laid_anew(1), IMAGES).equal is False


def test_a_window_of_padding_alone_is_undecided():
    def network(x):
        return F.max_pool2d(x, 2, 1, 1, dilation=9)

    assert identify(network, network, IMAGES).equal is None


def test_an_index_that_is_written_twice_is_undecided():
    def network(x):
        return x.index_put((T([0, 0]),), x[:2])

    assert identify(network, network, ROW).equal is None


def test_a_write_that_overlaps_what_is_read_is_undecided():
    """Torch refuses it where it notices; else an entry that is read is that of before, or one that was written."""

    def network(x):
        y = x.clone()
        y[..., 1:4].add_(y[..., :3])
        return y

    found = identify(network, network, IMAGES)
    assert found.equal is None
    assert "a write that overlaps what is read" in found.reason


@pytest.mark.parametrize(("infinite", "reason"), [(0, "not finite in means"), (1, "not known to be positive")])
def test_statistics_that_are_not_finite_are_undecided(infinite, reason):
    statistics = [torch.zeros(3), torch.ones(3)]
    statistics[infinite][1] = math.inf

    def network(x):
        return F.batch_norm(x, *statistics)

    found = identify(network, network, IMAGES)
    assert found.equal is None
    assert reason in found.reason
