"""Duals are weighed exactly: no mixing beats a floor, none that matters is larger than the bound on norms."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard, mixed, soft
from confirmation import confirm

from conv2attn import MultiHeadSelfAttention
from conv2attn.attention import QuadraticEncoding
from conv2attn.bounds.dyadic import over_power_of_two
from conv2attn.span.checker import confirms_dual, largest_norm
from conv2attn.span.conditions.integer_rows import Coefficients, integer_row
from conv2attn.span.conditions.limits import Limits, limits_for
from conv2attn.span.conditions.problem import shifts
from conv2attn.span.programme.decision import decide
from conv2attn.span.programme.dual import floats_of, in_integers, norm_bound, null_of, rows_at, weighed
from conv2attn.span.programme.queries import decide_per_query
from conv2attn.span.questions import rows_of
from conv2attn.span.rational.exact import PRIMES, Equations, solve
from conv2attn.span.sources.reading import read_array
from conv2attn.verdicts import Verdict


def problem(heads):
    """An array of heads on a line, the shifts asked of it, and its inner rows exactly."""
    attention = read_array("random", heads, grid=heads.shape[1:2], dimensions=1, memory_limit=10**6)
    targets = shifts(attention.grid, LINE)
    return attention, targets, rows_at(attention, targets, range(1, heads.shape[1] - 1))


def left_by(phi, heads):
    """Residual of phi for the first shift in the worst inner row."""
    keys = heads.shape[2]
    asked = np.eye(keys)[[q - 1 for q in range(1, keys - 1)]]
    return np.abs(asked - np.tensordot(phi, heads[:, 1:-1], 1)).sum(-1).max()


@pytest.mark.parametrize("seed", range(4))
def test_no_mixing_is_larger_than_the_bound_on_norms(seed):
    rng = np.random.default_rng(seed)
    heads = mixed(hard((7,), LINE), 4, seed)
    _, targets, rows = problem(heads)
    bound = norm_bound(rows, Coefficients.exactly(targets.coefficients), 0)
    best = np.linalg.inv(mixed(np.eye(3)[:, None], 4, seed)[:, 0]) @ np.eye(3)[0]
    tight = np.inf
    for scale in np.geomspace(1e-6, 1e3, 200):
        phi = best + scale * rng.standard_normal(3)
        most = (float(bound.start) + float(bound.slope) * left_by(phi, heads)) / float(bound.left)
        assert np.abs(phi).sum() <= most * (1 + 1e-9)
        tight = min(tight, most / np.abs(phi).sum())
    assert tight < 3
    asked = {q: {q - 1: 1} for q in range(1, 6)}
    table = [{q: head[q].tolist() for q in range(1, 6)} for head in heads]
    limits = Limits(1e-3, 1e9, 1e-4)
    checked = largest_norm(table, asked, bound.inverse, Fraction(1e-3), Fraction(1e-4), list(bound.rows))
    assert checked == bound.within(limits)


def test_heads_that_are_alike_bound_no_norm():
    line = hard((7,), LINE)
    _, targets, rows = problem(np.concatenate([line, 0.5 * line[:1] + 0.5 * line[1:2]]))
    assert norm_bound(rows, Coefficients.exactly(targets.coefficients), 0) is None


@pytest.mark.parametrize("seed", range(4))
def test_a_null_vector_meets_no_head_and_no_mixing_beats_its_floor(seed):
    rng = np.random.default_rng(seed)
    heads = rng.dirichlet(np.ones(7), (3, 7))
    _, targets, rows = problem(heads)
    coefficients, order = Coefficients.exactly(targets.coefficients), sorted(rows)
    values = null_of(rows, order, in_integers(rng.standard_normal(7 * len(order)), order))
    dual = weighed(rows, coefficients, 0, values)
    assert dual.met == 0
    floor = float(dual.floor(Fraction(10**9)))
    assert floats_of(rows, order).shape == (3, 35)
    for _ in range(100):
        phi = rng.standard_normal(3) * 10 ** rng.uniform(-3, 3)
        assert left_by(phi, heads) >= floor


def test_the_checker_confirms_a_dual_up_to_its_floor_and_no_further():
    attention, asked = [[[1, 0]], [[Fraction(1, 2), Fraction(1, 2)]]], [{1: 1}]
    assert confirms_dual(attention[:1], asked, {0: [0, 1]}, Fraction(99, 100), 10**9)
    assert not confirms_dual(attention[:1], asked, {0: [0, 1]}, 1, 10**9)
    assert not confirms_dual(attention, asked, {0: [0, 1]}, Fraction(1, 2), 10)
    assert confirms_dual(attention[1:], asked, {0: [-1, 1]}, Fraction(99, 100), 10**9)
    assert confirms_dual(attention[1:], asked, {0: [0, 1]}, Fraction(1, 10), 1)
    assert not confirms_dual(attention[1:], asked, {0: [0, 1]}, Fraction(1, 2), 1)
    assert not confirms_dual(attention[1:], asked, {0: [0, 1]}, Fraction(1, 10), 1, Fraction(2, 5))


def test_stability_is_how_far_entries_may_move():
    heads = soft((9,), 1.0, LINE)
    attention, targets, _ = problem(heads)
    limits = limits_for(attention, None, 10.0)
    for target in decide("interior", attention, targets, targets.interior, limits).targets:
        assert 0 < target.stability < 1
        for sign in (-1, 1):
            moved = heads * (1 + sign * 0.99 * target.stability * np.random.default_rng(0).choice([-1, 1], heads.shape))
            table = [{q: row.tolist() for q, row in enumerate(head)} for head in moved]
            asked = {q: {q + LINE[target.witness.target][0]: 1} for q in range(1, 8)}
            assert confirms_dual(table, asked, dict(target.witness.values), limits.eps, 10.0, limits.per_norm)


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
    exact = [[Fraction(x) for x in row] for row in rows.tolist()]
    assert [[Fraction(x, unit) for x in row] for row in whole] == exact
    held = integer_row(0, 0, rows, problem(hard((5,), LINE))[1])
    assert [[Fraction(int(x), held.unit) for x in row] for row in held.heads.tolist()] == exact


@pytest.mark.parametrize(("alpha", "verdict"), [(27.5, Verdict.REFUTED), (28.0, Verdict.HOLDS)])
def test_heads_that_float64_does_not_tell_apart_are_decided(alpha, verdict):
    encoding = QuadraticEncoding(torch.tensor(OFFSETS, dtype=torch.float64), alpha)
    rows = rows_of("sharp", MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64), (3, 4))
    targets, limits = shifts(rows.grid, OFFSETS), limits_for(rows, None, None)
    found = decide_per_query(rows, targets, limits)
    assert found.verdict is verdict
    assert all(target.verdict is not Verdict.UNDECIDED for target in found.targets)
    assert confirm(found, rows, targets, np.ones(12, dtype=bool), limits)
