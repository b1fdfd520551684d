"""Running error bounds: every rule against torch's own float32 results, at inputs anywhere in a ball."""

import functools
import math
from fractions import Fraction
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import conv2attn
from conv2attn.equality.running_error import LIPSCHITZ, RULES, ULPS, Ball, NoRule, running
from conv2attn.equality.running_error.rounding_rules import growth

U = 2.0**-24
WEIGHT = torch.tensor([[[[0.7, -1.3], [0.2, 1.1]]], [[[-0.4, 0.9], [1.7, -0.3]]]])
MATRIX = torch.linspace(-1.2, 1.4, 24).reshape(6, 4)
ROWS = torch.linspace(-0.8, 1.1, 20)
PLACES = torch.tensor([3, 0, 2])


def like(weight):
    """A constant in the dtype of the input."""
    return lambda x: weight.to(x.dtype)


w, m, rows = like(WEIGHT), like(MATRIX), like(ROWS)
FUNCTIONS = {
    "relu": F.relu,
    "abs": torch.abs,
    "neg": torch.neg,
    "hardtanh": F.hardtanh,
    "tanh": torch.tanh,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp_min(-0.3),
    "sin": torch.sin,
    "clamp_max": lambda x: x.clamp_max(0.4),
    "cos": torch.cos,
    "atan": torch.atan,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "erf": torch.erf,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
}
MOVING = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.mT.reshape(-1),
    "permute": lambda x: x.permute(1, 0, 3, 2),
    "transpose": lambda x: x.transpose(2, 3),
    "t": lambda x: x[0, 0].t(),
    "expand": lambda x: x[:, :1].expand(1, 3, 4, 5),
    "slice": lambda x: x[..., 1:4],
    "select": lambda x: x[0],
    "unsqueeze": lambda x: x[None],
    "squeeze": lambda x: x.squeeze(0),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "split": lambda x: x.split(2, 3)[1],
    "unbind": lambda x: x.unbind(2)[1],
    "clone": torch.clone,
    "roll": lambda x: x.roll(1, 3),
    "split_with_sizes": lambda x: x.split([2, 3], 3)[1],
    "flip": lambda x: x.flip(2),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "reflection_pad1d": lambda x: F.pad(x[0], (1, 2), "reflect"),
    "reflection_pad2d": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "reflection_pad3d": lambda x: F.pad(x[None], (1, 1, 1, 1, 1, 1), "reflect"),
    "alias": torch.ops.aten.alias,
    "replication_pad1d": lambda x: F.pad(x[0], (1, 2), "replicate"),
    "detach": torch.detach,
    "replication_pad2d": lambda x: F.pad(x, (1, 1, 1, 1), "replicate"),
    "diagonal": lambda x: x.diagonal(0, 2, 3),
    "replication_pad3d": lambda x: F.pad(x[None], (1, 1, 1, 1, 1, 1), "replicate"),
    "constant_pad_nd": lambda x: F.pad(x, (1, 0, 2, 1)),
    "as_strided": lambda x: x.as_strided((3, 2), (5, 1)),
    "index": lambda x: x[..., PLACES],
    "index_select": lambda x: x.index_select(3, PLACES),
    "unfold": lambda x: x.unfold(3, 2, 1),
    "gather": lambda x: x.gather(3, PLACES.expand(1, 2, 4, 3)),
    "im2col": lambda x: F.unfold(x, 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[..., :4], 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "upsample_nearest1d": lambda x: F.interpolate(x[0], 9),
    "upsample_nearest2d": lambda x: F.interpolate(x, (7, 9)),
    "upsample_nearest3d": lambda x: F.interpolate(x[None], (3, 7, 9)),
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, [-1]),
    "_to_copy": lambda x: x + 0 * x.to(x.dtype, copy=True),
    "max_pool2d_with_indices": lambda x: F.max_pool2d(x, 2, 1),
    "max_pool3d_with_indices": lambda x: F.max_pool3d(x, 2, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (2, 3)),
    "amax": lambda x: x.amax(3),
    "max": lambda x: x.max(3)[0],
    "where": lambda x: torch.where(torch.arange(5) > 2, x, 2 * x),
    "maximum": lambda x: torch.maximum(x, x.flip(3)),
    "minimum": lambda x: torch.minimum(x, x.flip(3)),
    "compared": lambda x: (x > 30).to(x.dtype) + x,
    "zeros_like": lambda x: x.clone().mul_(0).add_(x),
    "circular": lambda x: F.pad(x, (2, 1, 1, 1), "circular"),
    **{name: lambda x, name=name: written(x, name) for name in ("new_zeros", "new_empty", "new_ones", "new_full")},
    **{f"{name}_like": lambda x, name=name: written(x, f"{name}_like") for name in ("zeros", "empty", "ones", "full")},
}
SUMS = {
    "sum": lambda x: x.sum((2, 3)),
    "mean": lambda x: x.mean(3),
    "avg_pool1d": lambda x: F.avg_pool1d(x[0], 3, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg_pool3d": lambda x: F.avg_pool3d(x, 2, 1),
    "_adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "mm": lambda x: x[0, :, 0, :4] @ m(x)[:4],
    "_adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, (1, 2, 2)),
    "bmm": lambda x: x[0] @ x[0].mT,
    "convolution": lambda x: F.conv2d(x, w(x), torch.ones(2).to(x), 1, 1, 1, 2),
    "mv": lambda x: x[0, 0] @ rows(x)[:5],
    "transposed": lambda x: F.conv_transpose2d(x, w(x), None, 2),
    "dot": lambda x: torch.dot(x[0, 0, 0], rows(x)[:5]),
    "addmm": lambda x: torch.addmm(rows(x)[:4], x[0, :, 0, :4], m(x)[:4]),
    "add": lambda x: x + 2.5 * x.flip(2),
    "baddbmm": lambda x: torch.baddbmm(x[0, :, :, :4], x[0], x[0].mT),
    "sub": lambda x: torch.sub(x, x.flip(3), alpha=0.3),
    "mul": lambda x: x * x.flip(3) * 0.3,
    "div": lambda x: x / (x.flip(3).abs() + 2) / 0.7,
    "pow": lambda x: x**2 + x**3,
    "var": lambda x: x.var((2, 3)),
    "var_mean": lambda x: torch.var_mean(x, 3, correction=0)[0],
    "leaky_relu": lambda x: F.leaky_relu(x, 1.7),
    "elu": F.selu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sqrt": lambda x: (x.abs() + 0.5).sqrt(),
    "rsqrt": lambda x: (x.abs() + 0.5).rsqrt(),
    "log1p": lambda x: x.abs().log1p(),
    "log": lambda x: (x.abs() + 0.5).log(),
    "reciprocal": lambda x: (x.abs() + 0.5).reciprocal(),
    "softmax": lambda x: x.softmax(3),
    "layer_norm": lambda x: F.layer_norm(x, (5,), eps=0.1),
    "group_norm": lambda x: F.group_norm(x, 2, eps=0.1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}
CASES = {**FUNCTIONS, **MOVING, **SUMS}


def written(x, name):
    """`x` written into a constant that an operator makes."""
    sizes = [x.shape] if name.startswith("new") else []
    into = (getattr(torch.Tensor, name) if name.startswith("new") else functools.partial(getattr(torch, name)))(
        x, *sizes, *([3.0] if "full" in name else [])
    )
    into[..., 1:] = x[..., 1:]
    into[..., :1] = x[..., :1]
    return into


def excess(function, seed, scale, *, worst=False):
    """By how much a float32 result at a point of the ball is beyond the bound, over the bound; and the ball."""
    drawn = torch.Generator().manual_seed(seed)
    center = (2 * torch.randn(1, 2, 4, 5, generator=drawn)).double()
    side = torch.rand(center.shape, generator=drawn).double() * 2 - 1
    radius = scale * center.abs()
    if worst:
        leaf = center.clone().requires_grad_()
        (result := function(leaf)).flatten()[seed % result.numel()].backward()
        side = leaf.grad.sign()
    point = (center + side * radius).float()
    ball = Ball(center, torch.maximum(radius, (point.double() - center).abs()), U)
    with torch.no_grad():
        bound, computed, real = function(ball), function(point).double(), function(point.double())
    if bound.error.isinf().all():
        return 0.0
    return max(
        ((found - bound.value).abs() - bound.error).max().item() / max(bound.error.max().item(), 1e-30)
        for found in (computed, real)
    )


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1e-6, 1e-3, 0.1]))
def test_no_result_in_float32_from_a_point_of_the_ball_is_beyond_the_bound(name, seed, scale):
    assert excess(CASES[name], seed, scale) <= 1e-9


@pytest.mark.parametrize("name", sorted({*CASES} - {"detach"}))
def test_a_bound_that_carries_a_tenth_of_the_errors_is_exceeded(name):
    made = Ball.__new__

    def careless(cls, value, error, roundoff):
        return made(cls, value, error * (1.0 if roundoff == U else 0.1), 2 * U)

    carried = lambda x: CASES[name](x)  # noqa: E731
    with (
        mock.patch.object(Ball, "__new__", careless),
        mock.patch.dict("conv2attn.equality.running_error.ball.LEAST", {2 * U: 0.0}),
    ):
        assert any(excess(carried, seed, 1e-3, worst=True) > 0 for seed in range(20))


SMALL = {
    "products": lambda x: x * 0.3,
    "sums of products": lambda x: x.reshape(-1, 6) @ torch.linspace(0.1, 0.4, 6).to(x),
    "means": lambda x: x.reshape(-1, 6).mean(1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SMALL)
def test_a_bound_counts_what_results_near_0_lose(name, dtype):
    """Results are cut to float16, which counts subnormal numbers; in other formats those become 0."""
    numbers, function = torch.finfo(dtype), SMALL[name]
    least = numbers.smallest_normal if dtype != torch.float16 else numbers.smallest_normal * numbers.eps
    real = (least * torch.linspace(-3, 3, 96).double()).to(dtype).double()
    with torch.no_grad():
        bound = running(function, real, numbers.eps / 2)
    whole = (function(real) / least).trunc() * least
    kept = whole if dtype == torch.float16 else torch.where(function(real).abs() < least, 0.0, function(real))
    assert ((kept - bound.value).abs() <= bound.error).all()


ROUNDED = [
    *(n for n in FUNCTIONS if n not in ("relu", "abs", "neg", "hardtanh", "clamp", "clamp_min", "clamp_max")),
    *SUMS,
]


@pytest.mark.parametrize("name", ROUNDED)
def test_a_bound_that_forgets_rounding_is_exceeded(name):
    rounded = lambda value, error, u, terms=1.0: Ball(value, 0.0 * value.abs(), u)  # noqa: E731
    with mock.patch("conv2attn.equality.running_error.rounding_rules.rounded", rounded):
        assert any(excess(CASES[name], seed, 0.0) > 0 for seed in range(20))


def test_every_rule_is_met_by_a_case():
    met = set()

    def noted(name, rule):
        return lambda *args: met.add(name) or rule(*args)

    with mock.patch.dict(RULES, {name: noted(name, rule) for name, rule in RULES.items()}):
        for function in CASES.values():
            ball = Ball(torch.ones(1, 2, 4, 5).double().cumsum(3), torch.zeros(1, 2, 4, 5).double(), U)
            with torch.no_grad():
                function(ball)
    assert set(RULES) - met == {"ge", "lt", "le", "ne"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lipschitz_constants_are_the_largest_slopes_and_functions_are_computed_within_their_roundoffs(name):
    function = FUNCTIONS[name]
    x = torch.cat(
        [torch.linspace(-12, 12, 2_400_001), torch.logspace(-30, 3, 100_000), -torch.logspace(-30, 3, 100_000)]
    )
    fine = x.double().requires_grad_()
    value = function(fine)
    value.sum().backward()
    assert 0.99 * LIPSCHITZ[name] < fine.grad.abs().max() <= LIPSCHITZ[name]
    off = (function(x).double() - value).abs() / (U * (fine.abs() + value.abs()) + 2.0**-126)
    assert off.max() <= ULPS


def test_what_no_rule_covers_says_so():
    ball = Ball(torch.ones(3).double(), torch.full((3,), 0.1).double(), U)
    for function in (
        lambda x: x > 1.05,
        lambda x: x.reciprocal().sort(),
        lambda x: torch.div(x, 2, rounding_mode="floor"),
        lambda x: torch.zeros(3).double().copy_(x),
        lambda x: torch.clamp(x, max=x.flip(0)),
    ):
        with pytest.raises(NoRule), torch.no_grad():
            function(ball)


@pytest.mark.parametrize("name", ["sum", "mean", "avg_pool2d", "layer_norm", "softmax"])
def test_averages_of_no_images_have_no_errors(name):
    with torch.no_grad():
        assert running(CASES[name], torch.zeros(0, 2, 4, 5).double(), U).error.numel() == 0


def test_an_interval_around_a_pole_has_no_bound():
    ball = Ball(torch.tensor([1e-9]).double(), torch.tensor([1e-8]).double(), U)
    with torch.no_grad():
        assert ball.reciprocal().error.isinf().all()


def test_circular_padding_has_a_bound_in_certificates():
    torch.manual_seed(0)
    first = torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")
    second = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"))
    assert running(first.double(), torch.ones(1, 1, 4, 5).double(), U).error.max() < 1e-5
    assert conv2attn.certify(first.float(), second, input_size=(1, 4, 5)).verdict.value == "refuted"


@given(st.integers(1, 500), st.sampled_from([2.0**-8, 2.0**-11, U, 2.0**-53]))
def test_growth_is_at_least_what_so_many_roundings_make(terms, u):
    """(1 + u)^n - 1 <= gamma_n (Higham 2002, Lemma 3.1), in fractions."""
    grown = growth(terms, u)
    assert (1 + Fraction(u)) ** terms - 1 <= grown if grown < math.inf else terms * u >= 1
