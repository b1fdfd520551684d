"""Every verdict carries a witness that a checker in fractions confirms, and duals are weighed exactly."""

from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import LINE, hard, mixed, soft
from checker import confirms_counting, confirms_dual
from confirmation import confirm

from conv2attn import MultiHeadSelfAttention, check_span
from conv2attn.layers.attention import Encoding
from conv2attn.span import Limits, check, limits_for, rows_of, shift_targets
from conv2attn.verdicts import Strength, Verdict


def test_what_rounding_explains_holds_and_no_more():
    rng = np.random.default_rng(0)
    ideal = mixed(hard((40,), LINE), 1e5)
    for ulps, expected in ((2, Verdict.HOLDS), (2**20, Verdict.REFUTED)):
        rounded = ideal * (1 + rng.choice([-1, 1], ideal.shape) * ulps * 2.0**-53)
        rounded = rounded / rounded.sum(-1, keepdims=True)
        attention = rows_of("zoo", rounded, (40,))
        targets, limits = shift_targets(attention.grid, LINE), limits_for(attention, None, None)
        found = check("interior", attention, targets, limits)
        assert found.verdict is expected
        assert confirm(found, attention, targets, limits)


def test_the_heads_of_e2_at_ln_2_are_decided_exactly():
    """E2 (a) of docs/errata.md: each query has a Phi of its own, and no Phi serves both."""
    thirds = np.array([[[2, 1], [1, 2]], [[3, 6], [1, 8]]])
    report = check_span(thirds, offsets=[(0,)], grid=(2,), exact=True, condition=("joint", "per-query"))
    joint, printed = report.rows[0].conditions
    assert (printed.verdict, joint.verdict, joint.strength) == (Verdict.HOLDS, Verdict.REFUTED, Strength.PROVED)
    assert printed.targets[0].evidence.mixings == ((2, -1), (Fraction(-1, 2), Fraction(3, 2)))


def test_the_uncertainty_of_a_float64_layer_covers_its_distance_from_the_ideal():
    """At alpha = m ln 2 and centres on pixels, every weight is a power of two over their sum."""
    for power in (1, 26, 60):
        encoding = Encoding.of("quadratic", torch.tensor(LINE, dtype=torch.float64), power * float(np.log(2)))
        attention = rows_of("ideal", MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64), (7,))
        block, largest = attention.read(0, np.arange(7)), 0
        for head, query in np.ndindex(3, 7):
            weights = [Fraction(1, 2 ** (power * (k - query - LINE[head][0]) ** 2)) for k in range(7)]
            ideal = [weight / sum(weights) for weight in weights]
            away = [abs(Fraction(x) / a - 1) for x, a in zip(block[head, query].tolist(), ideal, strict=True) if x]
            largest = max(largest, *away)
        assert largest <= attention.ulps * Fraction(attention.roundoff)


@pytest.mark.parametrize("alpha", [0.3, 2.0, 9.0])
def test_soft_heads_are_those_of_float64_in_every_dtype(alpha):
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", torch.tensor(LINE).float() / 3, alpha))
    read, in_double = (rows_of("soft", each, (7,)).read(0, np.arange(7)) for each in (layer, deepcopy(layer).double()))
    assert np.array_equal(read, in_double)


@pytest.mark.parametrize("alpha", [14.0, 28.0])
def test_no_mixing_up_to_the_excluded_norm_leaves_what_counts_as_none(alpha):
    heads = soft((8,), alpha, LINE)
    attention = rows_of("zoo", heads, (8,))
    targets, limits = shift_targets(attention.grid, LINE), limits_for(attention, None, None)
    found = check("interior", attention, targets, limits)
    for target in found.targets:
        if target.excluded:
            within = Limits(limits.eps, min(float(target.excluded) * 0.99, limits.max_phi), limits.per_norm)
            again = check("interior", attention, targets, within)
            assert again.verdict is Verdict.REFUTED
            assert confirm(again, attention, targets, within)


def test_stability_is_how_far_entries_may_move():
    heads = soft((9,), 1.0, LINE)
    attention = rows_of("zoo", heads, (9,))
    targets, limits = shift_targets(attention.grid, LINE), limits_for(attention, None, 10.0)
    found = check("interior", attention, targets, limits)
    for j, target in enumerate(found.targets):
        assert 0 < target.stability < 1
        for sign in (-1, 1):
            moved = heads * (1 + sign * 0.99 * target.stability * np.random.default_rng(0).choice([-1, 1], heads.shape))
            table = [{q: row.tolist() for q, row in enumerate(head)} for head in moved]
            asked = {q: {q + LINE[j][0]: 1} for q in range(1, 8)}
            assert confirms_dual(table, asked, target.evidence.dual, limits.eps, 10.0, limits.per_norm)


def test_the_checker_counts():
    line = [[{q: 1} for q in range(4)], [{q + 1: 1} if q < 3 else {} for q in range(4)]]
    assert confirms_counting(1, line, Fraction(74, 100), range(4))
    assert not confirms_counting(1, line, Fraction(75, 100), range(4))
    assert confirms_counting(1, line, Fraction(99, 100), [0])
    assert not confirms_counting(2, line, Fraction(0), range(4))
    assert not confirms_counting(1, line, Fraction(0), [])
    assert not confirms_counting(1, [line[0], line[0]], Fraction(0), range(4))
    assert not confirms_counting(1, [line[0], [{9: 2}] * 4], Fraction(0), range(4))
