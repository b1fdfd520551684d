"""A zoo of attention with known answers, built from the mathematics: no wrong verdict anywhere."""

import numpy as np
import pytest
import torch

from conv2attn import MultiHeadSelfAttention, check_span, convert
from conv2attn.attention import QuadraticEncoding
from conv2attn.verdicts import Strength, Verdict

OFFSETS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def hard(sides, offsets):
    """Unpadded heads that read the nearest key: (heads, queries, keys)."""
    keys = np.stack(np.meshgrid(*map(np.arange, sides), indexing="ij"), -1).reshape(-1, len(sides))
    attention = np.zeros((len(offsets), len(keys), len(keys)))
    for head, offset in enumerate(offsets):
        target = np.clip(keys + offset, 0, np.array(sides) - 1)
        attention[head, np.arange(len(keys)), np.ravel_multi_index(tuple(target.T), sides)] = 1
    return attention


def soft(sides, alpha, offsets=OFFSETS):
    """The same heads at finite alpha, in float64."""
    encoding = QuadraticEncoding(torch.tensor(offsets, dtype=torch.float64), alpha)
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64)
    return layer.attention(sides=sides)[0].detach().numpy()


def verdicts(report):
    """Per query, joint, interior."""
    return [condition.verdict for condition in report.rows[0].conditions]


def test_hard_heads_hold_inside_and_are_replicate_padding_at_the_border():
    report = check_span(hard((5, 6), OFFSETS), grid=(5, 6))
    assert verdicts(report) == [HOLDS, REFUTED, HOLDS]
    assert {condition.strength for condition in report.rows[0].conditions} == {Strength.PROVED}
    assert report.exit_code == 0


def test_converted_layers_hold_on_their_padded_keys():
    layer = convert(torch.nn.Conv2d(3, 4, 3, padding=1))
    report = check_span(layer, grid=(5, 6))
    assert verdicts(report) == [HOLDS, HOLDS, HOLDS]
    assert report.rows[0].grid == (7, 8)


def test_one_head_less_is_refuted_by_counting():
    report = check_span(hard((5, 6), OFFSETS[1:]), grid=(5, 6))
    interior = report.rows[0].condition("interior")
    assert verdicts(report) == [REFUTED, REFUTED, REFUTED]
    assert interior.counting
    assert interior.counting.heads == 8
    assert [target.verdict for target in interior.targets] == [REFUTED, *[HOLDS] * 8]


@pytest.mark.parametrize(("alpha", "expected"), [(0.5, REFUTED), (2.0, REFUTED), (8.0, REFUTED), (46.0, HOLDS)])
def test_soft_heads(alpha, expected):
    report = check_span(soft((6, 7), alpha), grid=(6, 7))
    assert report.verdict is expected
    assert report.rows[0].deciding.strength is Strength.BOUNDED


def test_heads_that_swap_their_shifts():
    attention = np.zeros((2, 6, 6))
    for query in range(6):
        for head in (0, 1):
            attention[head, query, (query + (query + head) % 2) % 6] = 1
    report = check_span(attention, grid=(6,), offsets=[(0,), (1,)])
    assert verdicts(report) == [HOLDS, REFUTED, REFUTED]
    assert report.exit_code == 1


def test_boxes_fail_only_by_the_renormalisation_at_the_border():
    attention = np.zeros((2, 6, 6))
    for query in range(6):
        for head, box in enumerate([(-1, 0, 1), (-1, 1)]):
            inside = [query + d for d in box if 0 <= query + d < 6]
            attention[head, query, inside] = 1 / len(inside)
    report = check_span(attention, 1, grid=(6,))
    assert verdicts(report)[:2] == [HOLDS, REFUTED]


def test_no_interior_query_is_nothing_checked():
    report = check_span(hard((2, 6), OFFSETS), grid=(2, 6))
    assert report.verdict is UNDECIDED
    assert report.exit_code == 3
    assert "nothing was checked" in report.to_text()
