"""Soft heads, whose error is counted key by key: the same on every grid, above all that is found, and not far above."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from layers.attention.cases import SOFT_ENGINES
from licences.softmaxes import bounds_a_soft_mean
from mpmath import mp, mpf

from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention, arithmetics, score_dtype, score_error
from conv2attn.theory.bounds import Arithmetic, Head, soft_mixing_bound

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ALPHAS = (0.3, 1.0, 3.0, 5.0, 10.0)


@pytest.mark.parametrize("by_axis", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 5.0, 17.0])
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_the_bound_is_the_same_at_every_side(alpha, shift, by_axis):
    head, arithmetic = Head(alpha, (shift, 0.0), shift**2), Arithmetic("float32", by_axis=by_axis)
    found = [soft_mixing_bound(head, (side, side), arithmetic, 0.0).factor for side in (24, 112, 400, 2048)]
    assert all(abs(a - b) <= 0.02 * a for a, b in pairwise(found))
    assert found[0] < 400 * 2.0**-24
    assert soft_mixing_bound(head, (2**12, 2**12), Arithmetic("float32"), 0.0).factor == math.inf


def test_the_keys_of_an_enumeration_are_one_row():
    arithmetic = Arithmetic("float32", by_axis=True)
    box, row = (soft_mixing_bound(Head(5.0, (0.0,), box=box), (2**12, 2**12), arithmetic, 0.0) for box in (True, False))
    assert box.factor < row.factor == math.inf


HEADS = {
    "on a pixel": Head(2.0, (0.0, 0.0)),
    "soft": Head(0.125, (0.0,)),
    "beyond the grid": Head(0.5, (0.25, 0.0), 9.5, outside=True),
    "enumerated": Head(2.0, (0.0,), box=False),
}
ARITHMETICS = {
    "by axis": Arithmetic("bfloat16", 1.61, by_axis=True),
    "fused": Arithmetic("float32", 5.72, fused=True),
    "stored sums": Arithmetic("float16", 2.0, stores_means=True),
    "truncating": Arithmetic("bfloat16", 2.0, truncates=True),
}


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("head", HEADS)
def test_the_bound_is_the_formula_of_the_claim(head, arithmetic):
    """On more keys than one block holds, and where sums are stored, neither of which the licences draw."""
    head, arithmetic = HEADS[head], ARITHMETICS[arithmetic]
    error = 2.0**-12 if arithmetic.fused else 0.0
    assert bounds_a_soft_mean(soft_mixing_bound, (head, (40,) * len(head.shifts), arithmetic, error))


def exact_row(center, alpha, sides, query):
    """The softmax of one query, in extended precision."""
    row = np.ones((), np.longdouble)
    for c, side, q in zip(center, sides, query, strict=True):
        squared = (np.arange(side, dtype=np.longdouble) - q - np.longdouble(c)) ** 2
        powers = np.exp(-np.longdouble(alpha) * (squared - squared.min()))
        row = np.multiply.outer(row, powers / powers.sum())
    return torch.tensor(row.astype(np.float64))


def worst_found(layer, center, alpha, images, query):
    """The largest difference of what a head reads from the exact mean."""
    row = exact_row(center, alpha, tuple(images.shape[2:]), query)
    with torch.no_grad():
        read = layer(images)[(slice(None), 0, *query)].double()
    return (read - (row * images[:, 0].double()).flatten(1).sum(1)).abs().max().item()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("engine", [*SOFT_ENGINES, "auto"])
@pytest.mark.parametrize(("center", "sides"), [((1.0, 0.0), (9, 12)), ((0.3, -0.2), (9, 12)), ((-1.0,), (1300,))])
def test_what_heads_read_stays_within_the_bound(dtype, engine, center, sides):
    random = torch.Generator().manual_seed(0)
    kinds = arithmetics(engine, dtype, "cpu")
    for alpha in ALPHAS:
        encoding = Encoding.of("quadratic", [list(center)], torch.tensor([alpha]))
        layer = MultiHeadSelfAttention(1, 1, encoding, value=False, bias=False, engine=engine).to(dtype)
        layer.output.data.fill_(1)
        operators = layer.positions
        centered, (sharp,) = operators.center[0].tolist(), operators.alpha.tolist()
        features = score_error(operators.numbers(), max(sides), score_dtype(dtype)) if kinds[0].fused else 0.0
        if not features <= 2**-10:
            continue
        shifts = tuple(abs(c - round(c)) for c in centered)
        head = Head(sharp, shifts, sum(s**2 for s in shifts) * (1 + 2**-40))
        bounds = [soft_mixing_bound(head, sides, kind, features) for kind in kinds]
        signs = torch.randint(0, 2, (12, 1, *sides), generator=random) * 2 - 1
        images = torch.cat([signs, torch.rand(12, 1, *sides, generator=random) * 2 - 1, torch.ones(1, 1, *sides)])
        found = worst_found(layer, centered, sharp, images.to(dtype), tuple(side // 2 for side in sides))
        assert found <= max(bound.factor + bound.absolute for bound in bounds)


def modelled(alpha, reach, arithmetic, random, steps=400):
    """The largest sum of |weight - softmax| that a search finds where each rounding is any that the model allows."""
    u = 2.0**-24
    displacement = torch.cartesian_prod(*[torch.arange(-reach, reach + 1).double()] * 2)
    scores = -alpha * displacement.square().sum(1)
    exact, near = scores.exp() / scores.exp().sum(), len(scores) // 2
    freedom = 3 * u * scores.abs() + 2 * arithmetic.exp_ulps * u
    freedom[near] = 0
    best = 0.0
    for step in range(steps):
        signs = torch.ones(len(scores)) if step == 0 else torch.randint(0, 2, (len(scores),), generator=random) * 2 - 1
        powers = scores.exp() * (1 + signs.double() * freedom)
        total = powers.sum() * (1 - (len(scores) - 1) * u)
        weights = powers / total * (1 + 2 * u)
        best = max(best, (weights - exact).abs().sum().item())
    return best


@pytest.mark.parametrize("alpha", [5.0, 8.0, 12.0, 17.0])
def test_the_bound_is_at_most_three_times_what_its_model_allows(alpha):
    """Leak aside: the weights, and their sum of products in the worst order."""
    arithmetic = arithmetics("dense", torch.float32, "cpu")[0]
    bound = soft_mixing_bound(Head(alpha, (0.0, 0.0)), (400, 400), arithmetic, 0.0).factor
    reach = 1
    found = modelled(alpha, reach, arithmetic, torch.Generator().manual_seed(1)) + ((2 * reach + 1) ** 2 - 1) * 2.0**-24
    assert found <= bound <= 3 * found


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_exponentials_are_within_what_was_measured(engine):
    (arithmetic,) = arithmetics(engine, torch.float32, "cpu")
    mp.prec = 80
    arguments = -torch.linspace(25, 86, 63)
    scores = torch.nn.functional.pad(arguments, (1, 0))
    weights = torch.softmax(scores, 0)
    if engine == "sdpa":
        unit = torch.eye(64)[None, None]
        weights = torch.nn.functional.scaled_dot_product_attention(scores[None, None, None], unit, unit, scale=1.0)
    for argument, weight in zip(arguments.tolist(), weights.flatten()[1:].numpy(), strict=True):
        assert abs(mpf(float(weight)) - mp.exp(mpf(argument))) <= arithmetic.exp_ulps * float(np.spacing(weight))


def test_certificates_of_fused_attention_count_its_exponential():
    plain, fused = (arithmetics(engine, torch.float32, "cpu")[0] for engine in ("dense", "sdpa"))
    assert fused.exp_ulps > 2 * plain.exp_ulps
    head = Head(2.0, (0.0,))
    assert soft_mixing_bound(head, (30,), fused, 0.0).factor > soft_mixing_bound(head, (30,), plain, 0.0).factor
