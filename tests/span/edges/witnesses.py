"""Every verdict carries a witness that a checker in fractions confirms, and that it refuses when tampered with."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import LINE, hard, mixed
from confirmation import confirm

from conv2attn import MultiHeadSelfAttention
from conv2attn.attention import QuadraticEncoding
from conv2attn.span.checker import confirms_counting, confirms_holds, confirms_null_vector
from conv2attn.span.conditions.condition import DualVector, NullVector
from conv2attn.span.conditions.limits import Limits, limits_for
from conv2attn.span.conditions.problem import shifts
from conv2attn.span.programme.decision import decide
from conv2attn.span.programme.queries import decide_per_query
from conv2attn.span.sources.layers import read_layer
from conv2attn.span.sources.reading import read_array
from conv2attn.verdicts import Strength, Verdict


def rows_of(array, grid):
    return read_array("zoo", array, grid=grid, dimensions=len(grid), memory_limit=2**24)


def test_what_rounding_explains_holds_and_no_more():
    rng = np.random.default_rng(0)
    ideal = mixed(hard((40,), LINE), 1e5)
    for ulps, expected in ((2, Verdict.HOLDS), (2**20, Verdict.REFUTED)):
        rounded = ideal * (1 + rng.choice([-1, 1], ideal.shape) * ulps * 2.0**-53)
        rounded = rounded / rounded.sum(-1, keepdims=True)
        attention = rows_of(rounded, (40,))
        targets, limits = shifts(attention.grid, LINE), limits_for(attention, None, None)
        found = decide("interior", attention, targets, targets.interior, limits)
        assert found.verdict is expected
        assert confirm(found, attention, targets, targets.interior, limits)


def test_ideal_operators_at_multiples_of_ln_2_are_decided_exactly():
    encoding = QuadraticEncoding(torch.tensor(LINE, dtype=torch.float64), 2 * float(np.log(2)))
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64)
    attention = read_layer("ideal", layer, (6,), 2**24)
    row = attention.rational(0, 3)
    assert sum(row) == 1
    assert row[2] / row[3] == 4
    assert np.allclose([float(x) for x in row], layer.attention(sides=(6,))[0, 0, 3].detach(), atol=1e-15)
    targets, limits = shifts(attention.grid, LINE), limits_for(attention, 0.0, None)
    found = decide("interior", attention, targets, targets.interior, limits)
    assert [target.exactly for target in found.targets] == [False] * 3
    assert all(isinstance(target.witness, NullVector) for target in found.targets)
    assert confirm(found, attention, targets, targets.interior, limits)


@pytest.mark.parametrize(
    ("power", "centers", "rational"),
    [
        (1, [[0, 0], [1, -2]], True),
        (3, [[0.5, -1.5]], True),
        (0.5, [[0.5, 1.5]], True),
        (0.5, [[0, 1]], False),
        (1, [[0.25, 0]], False),
        (2, [[0.25, 0]], True),
        (1.25, [[0, 0]], False),
        (1.0001, [[0, 0]], False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quadratic_heads_are_rational_where_their_weights_are_powers_of_two(power, centers, rational, dtype):
    encoding = QuadraticEncoding(torch.tensor(centers, dtype=dtype), power * float(np.log(2)))
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=dtype)
    attention = read_layer("ideal", layer, (4, 5), 2**24)
    assert (attention.rational is not None) is rational
    if rational:
        floats = np.concatenate([block for _, _, block in attention.pieces()], 1)
        exact = [[attention.rational(head, q) for q in range(20)] for head in range(len(centers))]
        assert all(sum(row) == 1 for head in exact for row in head)
        error = 1e-13 if dtype == torch.float64 else 1e-5
        assert np.allclose([[[float(x) for x in row] for row in head] for head in exact], floats, rtol=error, atol=0)


def test_the_heads_of_e2_at_ln_2_are_decided_exactly():
    encoding = QuadraticEncoding(torch.tensor([[0.0], [1.0]], dtype=torch.float64), float(np.log(2)))
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64)
    attention = read_layer("E2 (a)", layer, (2,), 2**24)
    targets, limits = shifts(attention.grid, [(0,)]), limits_for(attention, None, None)
    both = np.ones(2, dtype=bool)
    assert decide_per_query(attention, targets, limits).verdict is Verdict.HOLDS
    found = decide("joint", attention, targets, both, limits)
    assert (found.verdict, found.strength) == (Verdict.REFUTED, Strength.PROVED)
    assert confirm(found, attention, targets, both, limits)
    for query, phi in ((0, (2, -1)), (1, (Fraction(-1, 2), Fraction(3, 2)))):
        alone = decide("joint", attention, targets, np.arange(2) == query, limits)
        assert alone.targets[0].weights == phi
        assert (alone.verdict, alone.strength) == (Verdict.HOLDS, Strength.PROVED)


@pytest.mark.parametrize("power", [1, 6, 26, 60])
def test_the_uncertainty_of_a_float64_layer_covers_its_distance_from_the_ideal(power):
    encoding = QuadraticEncoding(torch.tensor(LINE, dtype=torch.float64), power * float(np.log(2)))
    attention = read_layer("ideal", MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64), (7,), 2**24)
    largest = 0
    for _, _, block in attention.pieces():
        for head, query in np.ndindex(3, 7):
            ideal = attention.rational(head, query)
            away = [abs(Fraction(x) / a - 1) for x, a in zip(block[head, query].tolist(), ideal, strict=True) if x]
            largest = max(largest, *away)
    assert largest <= attention.ulps * Fraction(attention.roundoff)
    assert largest > Fraction(attention.roundoff) * (4 if power > 6 else 0)


def test_the_checker_alone():
    attention, asked = [[[1, 0]], [[Fraction(1, 2), Fraction(1, 2)]]], [{1: 1}]
    assert confirms_holds(attention, asked, [-1, 2], 0, 3, [0])
    assert not confirms_holds(attention, asked, [-1, 2], 0, Fraction(5, 2), [0])
    assert not confirms_holds(attention, asked, [0, 2], Fraction(1, 2), 3, [0])
    assert confirms_null_vector(attention[:1], asked, [(0, 1, 1)], Fraction(1, 2))
    assert not confirms_null_vector(attention[:1], asked, [(0, 0, 1)], 0)
    assert not confirms_null_vector(attention, asked, [(0, 1, 1)], 0)


def test_the_checker_counts():
    line = [[{q: 1} for q in range(4)], [{q + 1: 1} if q < 3 else {} for q in range(4)]]
    assert confirms_counting(1, line, Fraction(74, 100), range(4))
    assert not confirms_counting(1, line, Fraction(75, 100), range(4))
    assert confirms_counting(1, line, Fraction(99, 100), [0])
    assert not confirms_counting(2, line, Fraction(0), range(4))
    assert not confirms_counting(1, line, Fraction(0), [])
    assert not confirms_counting(1, [line[0], line[0]], Fraction(0), range(4))
    assert not confirms_counting(1, [line[0], [{9: 2}] * 4], Fraction(0), range(4))


def test_what_refutes_a_query_is_confirmed_up_to_its_floor():
    # heads so close that the least norm is 2^12: a Phi of 0.8 of that leaves 0.2
    close = 0.5 + np.array([[1, -1], [-1, 1]], dtype=np.float32) / 2**13
    attention = rows_of(np.stack([close, close[::-1]]), (2,))
    targets, bound = shifts(attention.grid, [(0,)]), 0.8 * 2**12
    floor = decide_per_query(attention, targets, Limits(1e-3, bound)).targets[0].floor
    limits = Limits(floor * (1 - 1e-9), bound)
    found = decide_per_query(attention, targets, limits)
    assert found.verdict is Verdict.REFUTED
    assert isinstance(found.targets[0].witness, DualVector)
    assert confirm(found, attention, targets, np.ones(2, dtype=bool), limits)
