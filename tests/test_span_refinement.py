"""The bounds of exact arithmetic against mixings and attention drawn at random, and where they tell nothing."""

from fractions import Fraction

import numpy as np
import pytest
from attentions import LINE, hard, mixed

from conv2attn.span.conditions.integer_rows import Coefficients, integer_rows, over_power_of_two
from conv2attn.span.conditions.limits import limits_for
from conv2attn.span.conditions.problem import shifts
from conv2attn.span.mixings.evaluation import uncertainty
from conv2attn.span.mixings.least_squares import products
from conv2attn.span.mixings.norm_bound import Independence, NormBound
from conv2attn.span.mixings.refinement import refine
from conv2attn.span.rational.equations import Equations
from conv2attn.span.rational.exact import PRIMES, solve
from conv2attn.span.sources.reading import read_array


def problem(heads):
    """An array of heads on a line, and the shifts asked of it."""
    attention = read_array("random", heads, grid=heads.shape[1:2], dimensions=1, memory_limit=10**6)
    return attention, shifts(attention.grid, LINE)


def independence(attention, targets, inverse=None):
    """The Gram matrix, what heads meet of the first target, and the sums that bound norms, over the interior."""
    rows = list(integer_rows(attention, targets, targets.interior))
    given = products(rows, attention.heads, Coefficients.exactly(targets.coefficients))
    sums = Independence(given.inverse() if inverse is None else inverse)
    for row in rows:
        sums.add(row)
    return given, sums


def left_by(psi, heads, doubt, rng):
    """What psi leaves of the first shift in the worst interior row, for some attention within the doubt."""
    moved = heads * (1 + doubt * rng.uniform(-1, 1, heads.shape))
    keys = heads.shape[2]
    asked = np.eye(keys)[[q - 1 for q in range(1, keys - 1)]]
    return np.abs(asked - np.tensordot(psi, moved[:, 1:-1], 1)).sum(-1).max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("doubt", [0.0, 1e-3, 1e-2])
def test_no_mixing_is_larger_or_leaves_less_than_the_bounds_say(seed, doubt):
    rng = np.random.default_rng(seed)
    heads = mixed(hard((7,), LINE), 4, seed)
    attention, targets = problem(heads)
    given, sums = independence(attention, targets)
    bound = sums.bound(given.gram, given.along(0), Fraction(doubt))
    assert bound is not None
    best = np.linalg.inv(mixed(np.eye(3)[:, None], 4, seed)[:, 0]) @ np.eye(3)[0]
    tight = np.inf
    for scale in np.geomspace(1e-6, 1e3, 200):
        psi = best + scale * rng.standard_normal(3)
        rho = left_by(psi, heads, doubt, rng)
        assert np.abs(psi).sum() <= (float(bound.start) + float(bound.slope) * rho) * (1 + 1e-9)
        tight = min(tight, (float(bound.start) + float(bound.slope) * rho) / np.abs(psi).sum())
    assert tight < 3


@pytest.mark.parametrize("seed", range(4))
def test_no_mixing_beats_the_exact_floor(seed):
    rng = np.random.default_rng(seed)
    heads = rng.dirichlet(np.ones(7), (3, 7))
    attention, targets = problem(heads)
    limits = limits_for(attention, None, 5.0)
    for refined in refine(attention, targets, targets.interior, limits, [0])[0]:
        assert refined.reach <= refined.residual
        assert refined.floor <= refined.own_floor <= refined.residual
        assert float(refined.residual) == pytest.approx(
            left_by(np.array([float(w) for w in refined.weights]), heads, 0, rng), rel=1e-12
        )
        for _ in range(300):
            psi = np.array([float(w) for w in refined.weights]) + rng.standard_normal(3) * 10 ** rng.uniform(-6, 1)
            assert left_by(psi, heads, uncertainty(attention), rng) >= float(refined.floor) * (1 - 1e-12)


def test_the_reach_is_what_attention_within_the_uncertainty_leaves():
    heads = mixed(hard((7,), LINE), 1e4)
    attention, targets = problem(heads * (1 + np.random.default_rng(0).choice([-1, 1], heads.shape) * 2.0**-52))
    limits = limits_for(attention, None, None)
    (refined,) = refine(attention, targets, targets.interior, limits, [0])[0]
    assert refined.residual > limits.eps
    assert refined.reach == 0
    weights, doubt = refined.weights, Fraction(uncertainty(attention))
    for rows in integer_rows(attention, targets, targets.interior):
        for key in range(7):
            entries = [Fraction(int(rows.heads[h, key]), rows.unit) for h in range(3)]
            left = int(key == rows.places[0]) - sum(w * a for w, a in zip(weights, entries, strict=True))
            room = doubt * sum(abs(w) * a for w, a in zip(weights, entries, strict=True))
            assert abs(left) <= room


def test_heads_that_are_alike_bound_no_norm():
    line = hard((7,), LINE)
    blurred = np.concatenate([line, 0.5 * line[:1] + 0.5 * line[1:2]])
    attention, targets = problem(blurred)
    given, sums = independence(attention, targets, np.eye(4))
    assert given.inverse() is None
    assert sums.bound(given.gram, given.along(0), Fraction(0)) is None
    attention, targets = problem(mixed(line, 1e3))
    given, sums = independence(attention, targets)
    assert sums.bound(given.gram, given.along(0), Fraction(1, 10**9)) is not None
    assert sums.bound(given.gram, given.along(0), Fraction(1, 100)) is None


def test_a_rank_lost_modulo_a_prime_is_noticed():
    three, one = Fraction(3), Fraction(1)
    equations = Equations([[three, 0 * one], [0 * one, one]], [[three], [0 * one]], [(0, 0, 0), (0, 0, 1)])
    assert solve(equations, 3) is None
    (answer,) = solve(equations, PRIMES[0])
    assert answer.contained
    assert answer.weights == (1, 0)


@pytest.mark.parametrize("seed", range(3))
def test_floats_are_the_integers_over_a_power_of_two_that_they_are(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((3, 5)) * 10.0 ** rng.integers(-320, 300, (3, 5))
    rows[0, 0], rows[1, 1], rows[2, 2] = 0.0, 5e-324, 1.0
    unit, whole = over_power_of_two(rows)
    assert [[Fraction(x, unit) for x in row] for row in whole] == [[Fraction(x) for x in row] for row in rows.tolist()]


def test_the_floor_counts_what_a_larger_residual_allows():
    assert NormBound(Fraction(2), Fraction(3)).floor(Fraction(10), Fraction(4), Fraction(2)) == Fraction(6, 10)
    assert NormBound(Fraction(2), Fraction(0)).floor(Fraction(0), Fraction(0), Fraction(0)) == 0
