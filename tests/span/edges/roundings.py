"""Half precision, whose rounding explains little, and scores that are known from parameters."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import soft

from conv2attn import check_span
from conv2attn.networks.positions import PositionAttention
from conv2attn.span import Limits, limits_for, rows_of
from conv2attn.span.attention_rows import ULPS
from conv2attn.span.equations import Targets
from conv2attn.span.graded_facts.measuring import facts_of
from conv2attn.span.reading import UNDERFLOW
from conv2attn.theory.basis import AttentionGrid, Sites
from conv2attn.verdicts import Verdict

HALVES = [torch.float16, torch.bfloat16]


def random_heads(dtype, heads=12, side=14):
    scores = torch.randn(heads, side**2, side**2, generator=torch.Generator().manual_seed(0))
    return torch.softmax(2 * scores, -1).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_at_random_is_refuted(dtype):
    assert check_span(random_heads(dtype)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("dtype", HALVES)
def test_identities_hold_for_no_neighbour(dtype):
    found = check_span(torch.eye(196).expand(12, -1, -1).to(dtype)).rows[0].deciding
    verdicts = {target.offset: target.verdict for target in found.targets}
    assert verdicts.pop((0, 0)) is Verdict.HOLDS
    assert set(verdicts.values()) == {Verdict.REFUTED}


@pytest.mark.parametrize("dtype", HALVES)
def test_nine_heads_are_no_kernel_of_five(dtype):
    heads = torch.from_numpy(soft((14, 14), 12.0)).to(dtype)
    assert check_span(heads, 5).verdict is Verdict.REFUTED
    assert check_span(heads, 3).verdict is Verdict.HOLDS


def test_a_residual_that_no_heads_at_all_leave_too_decides_nothing():
    assert check_span(np.eye(9)[None], 1, eps=0.5).verdict is Verdict.HOLDS


@pytest.mark.parametrize("doubt", [0, 50])
@pytest.mark.parametrize("slope", [2.5, 100.0])
def test_weights_of_known_scores_are_off_by_the_spread_of_a_row_of_them_to_first_order(slope, doubt):
    """In ulps, beside twice what the scores are off by; scores of other queries, and what underflows, do not matter."""
    scores = 1000.0 * torch.arange(12)[:, None] + slope * torch.arange(12)
    grid = AttentionGrid((3, 4), Sites.everywhere(2))
    rows = rows_of("layer", PositionAttention(scores[None].double(), grid, torch.float64, "", doubt * 2.0**-53), None)
    assert rows.ulps - ULPS - 2 * doubt == pytest.approx(min(slope * 11, UNDERFLOW), abs=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
def test_what_counts_as_none_is_what_entries_that_are_all_off_the_same_way_leave(dtype):
    rows = rows_of("attention", torch.softmax(torch.randn(2, 9, 9).double(), -1).to(dtype), None)
    limits = limits_for(rows, None, None)
    left = ULPS * torch.finfo(dtype).eps / 2
    assert limits.eps == limits.per_norm
    assert left <= limits.per_norm <= left + 16 * np.finfo(float).eps
    for norm in (1.0, 7.0):
        assert limits.allowed(norm) == pytest.approx(limits.per_norm * (1 + norm), rel=1e-6, abs=0)
    for most in (1.5, 1e3, 1e18):
        assert limits_for(rows, 0.25, most) == Limits(0.25, most)
        asked = limits_for(rows, None, most)
        assert asked.allowed(asked.max_phi) == pytest.approx(min(0.5, asked.allowed(most)), rel=1e-6, abs=0)
    assert limits_for(rows_of("attention", np.eye(9)[None], None), None, 7.0) == Limits(0.0, 7.0)


def test_scores_that_are_far_apart_are_one_hot_and_exact():
    scores = 1e4 * torch.rand(2, 12, 12).argsort(-1).double()
    rows = rows_of(
        "layer", PositionAttention(scores, AttentionGrid((3, 4), Sites.everywhere(2)), torch.float32, ""), None
    )
    assert (rows.one_hot, rows.ulps) == (True, 0)
    assert np.array_equal(rows.hot[0], scores.argmax(-1).numpy())
    assert [head.content for head in facts_of(rows, None, None).heads] == [0, 0]


def test_the_norm_of_a_target_is_no_less_than_the_exact_sum():
    coefficients = np.abs(np.random.default_rng(0).normal(size=(64, 9)))
    targets = Targets(((),) * 9, np.arange(9)[:, None], coefficients, ("",) * 64)
    exact = [sum(map(Fraction, row)) for row in coefficients.tolist()]
    assert all(Fraction(norm) >= total for norm, total in zip(targets.largest.tolist(), exact, strict=True))
    assert replace(targets, coefficients=np.eye(9)).largest.tolist() == [1.0] * 9
