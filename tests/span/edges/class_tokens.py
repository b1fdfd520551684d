"""Tokens that are no pixels stay: each target asks for nothing of them, and no row is divided by the rest."""

import numpy as np
import pytest
from attentions import OFFSETS, hard

from conv2attn import check_span
from conv2attn.verdicts import Strength, Verdict

SIDES = (5, 5)


def with_class(mass):
    """Nine shifts of which the class token takes a share, that depends on (head, query): (heads, 26, 26)."""
    heads = np.zeros((9, 26, 26))
    heads[:, 0, 0] = 1
    heads[:, 1:, 0] = mass
    heads[:, 1:, 1:] = (1 - mass)[..., None] * hard(SIDES, OFFSETS)
    return heads


def test_shifts_whose_class_token_varies_are_no_convolution():
    mass = np.random.default_rng(0).uniform(0.2, 0.8, (9, 25))
    row = check_span(with_class(mass), extra_tokens=1).rows[0]
    assert row.verdict is Verdict.REFUTED
    assert row.deciding.residual > 0.4


def test_a_head_of_the_class_token_alone_takes_its_share_away():
    mass = np.full((9, 25), 0.25)
    alone = np.zeros((1, 26, 26))
    alone[..., 0] = 1
    heads = np.concatenate([with_class(mass), alone])
    assert check_span(with_class(mass), extra_tokens=1).verdict is Verdict.REFUTED
    assert check_span(heads, extra_tokens=1).verdict is Verdict.HOLDS


@pytest.mark.parametrize("exact", [False, True])
def test_one_hot_heads_with_a_class_token(exact):
    heads = with_class(np.zeros((9, 25)))
    row = check_span(heads, extra_tokens=1, exact=exact).rows[0]
    assert (row.verdict, row.deciding.strength) == (Verdict.HOLDS, Strength.PROVED)
    heads[4, 13] = heads[0, 0]
    assert check_span(heads, extra_tokens=1, exact=exact).verdict is Verdict.REFUTED


def test_each_layer_has_its_own_number_of_leading_tokens():
    layers = {"plain": hard(SIDES, OFFSETS), "class": with_class(np.zeros((9, 25)))}
    report = check_span(layers, grid=SIDES, extra_tokens={"class": 1})
    assert [row.verdict for row in report.rows] == [Verdict.HOLDS] * 2
