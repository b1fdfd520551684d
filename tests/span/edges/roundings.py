"""Half precision, whose rounding explains little, and scores that are known from parameters."""

import numpy as np
import pytest
import torch
from attentions import soft

from conv2attn import check_span
from conv2attn.basis import AttentionGrid, Sites
from conv2attn.models.positions import PositionAttention
from conv2attn.span.attention_rows import ULPS
from conv2attn.span.reading import UNDERFLOW, rows_of
from conv2attn.verdicts import Verdict

HALVES = [torch.float16, torch.bfloat16]


def random_heads(dtype, heads=12, side=14):
    scores = torch.randn(heads, side**2, side**2, generator=torch.Generator().manual_seed(0))
    return torch.softmax(2 * scores, -1).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_at_random_is_refuted(dtype):
    assert check_span(random_heads(dtype)).verdict is Verdict.REFUTED


def test_halves_stored_as_float32_are_halves():
    assert check_span(random_heads(torch.float16).float()).verdict is Verdict.REFUTED


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
