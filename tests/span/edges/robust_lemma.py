"""The robust Lemma 3: both ends are reached by images of ones and minus ones, and fewer heads than taps are counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard
from span.laws import optimum
from torch import nn

from conv2attn import check_span, convert
from conv2attn.span import expression, rows_of, shift_targets
from conv2attn.span.conditions import count, groups_of
from conv2attn.theory.bounds import WITHOUT_THEOREM
from conv2attn.verdicts import Strength, Verdict


def signs(shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], shape))


def layer_at(alpha):
    layer = convert(nn.Conv2d(1, 1, 3)).double()
    with torch.no_grad():
        layer.encoding.assign(alpha=alpha)
    return layer


@pytest.mark.parametrize("seed", range(3))
def test_fewer_heads_than_taps_leave_a_whole_shift(seed):
    """TAPS_far for drawn attention: at the query that sees all taps some tap keeps 1, whatever the coefficients."""
    attention = np.random.default_rng(seed).dirichlet(np.ones(9), (2, 9))
    condition = check_span(attention, offsets=LINE, grid=(9,)).rows[0].deciding
    assert (condition.verdict, condition.strength) == (Verdict.REFUTED, Strength.PROVED)
    row = condition.counting.row
    left = [optimum(attention[:, [row]], np.eye(9)[[row + offset]], 1e3) for (offset,) in LINE]
    assert max(left) == pytest.approx(condition.counting.least_residual)
    assert condition.ends.far == 1
    assert condition.ends.licensed_by == ("L3", "TAPS")
    assert "TAPS_far" in condition.sentence


def test_counting_reads_no_attention_and_needs_a_query_that_sees_all_taps():
    def unread(image, queries):
        raise AssertionError("attention was read")

    rows = replace(rows_of("few", hard((5, 6), OFFSETS[1:]), (5, 6)), read=unread, hot=None)
    targets = shift_targets(rows.grid, OFFSETS)
    assert count(rows, targets, groups_of("interior", rows, targets)).heads == 8
    assert count(replace(rows, heads=9), targets, groups_of("interior", rows, targets)) is None
    narrow = rows_of("narrow", hard((2, 6), OFFSETS[1:]), (2, 6))
    targets = shift_targets(narrow.grid, OFFSETS)
    assert count(narrow, targets, groups_of("joint", narrow, targets)) is None


@pytest.mark.parametrize("alpha", [0.5, 2.0, 5.0, 60.0])
def test_the_bound_of_express_holds_for_images_of_signs(alpha):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3).double()
    found = expression(conv, layer_at(alpha), grid=(6, 7))
    x = signs((300, 2, 6, 7), 1)
    assert float((found.layer(x) - conv(x)).detach().abs().max()) <= found.bound + 1e-12
    assert "L3" in found.bound.claims


@pytest.mark.parametrize("alpha", [0.5, 2.0, 5.0])
def test_the_bound_is_reached_by_one_tap_and_some_image(alpha):
    """One channel and one tap: the image that has the signs of what is left reaches the bound, so half of it fails."""
    conv = nn.Conv2d(1, 1, 3, bias=False).double()
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[0, 0, 0, 1] = 1
    found = expression(conv, layer_at(alpha), grid=(5, 5))
    basis = torch.eye(25, dtype=torch.float64).reshape(25, 1, 5, 5)
    left = (found.layer(basis) - conv(basis)).detach().flatten(1)
    reached = float(left.abs().sum(0).max())
    assert 0.999 * found.bound <= reached <= found.bound + 1e-12


@pytest.mark.parametrize("alpha", [0.5, 2.0, 5.0])
def test_no_layer_is_nearer_than_the_far_end(alpha):
    """L3_far against least squares and drawn coefficients, by the exact norm of what they leave."""
    layer = layer_at(alpha)
    condition = check_span(layer, 3, grid=(5, 5)).rows[0].deciding
    ends = condition.ends
    assert ends.theorem == "L3_far"
    assert 0 < ends.far <= ends.near
    tap = OFFSETS.index(tuple(map(int, ends.tap.split(","))))
    attention = layer.attention(sides=(5, 5)).detach().double().numpy().reshape(9, 9, 25)
    queries = [(r + 1) * 5 + c + 1 for r in range(3) for c in range(3)]
    offset = OFFSETS[tap]
    asked = np.eye(25)[[q + 5 * offset[0] + offset[1] for q in queries]]
    best = np.linalg.lstsq(attention.reshape(9, -1).T, asked.ravel(), rcond=None)[0]
    drawn = np.random.default_rng(0).normal(size=(200, 9)) * 0.1
    for phi in [best, *(best + drawn)]:
        left = np.abs(asked - np.tensordot(phi, attention, 1)).sum(-1).max()
        assert left >= ends.far * (1 - 1e-9)


def test_a_given_convolution_names_its_own_end():
    conv = nn.Conv2d(2, 3, 3).double()
    unit = check_span(layer_at(2.0), 3, grid=(6, 7)).rows[0].deciding.ends
    given = check_span(layer_at(2.0), 3, grid=(6, 7), convolution=conv)
    ends = given.rows[0].deciding.ends
    assert ends.of_convolution
    assert not unit.of_convolution
    largest = float(conv.weight.detach().abs().sum((1, 2, 3)).max())
    assert 0 < ends.near <= unit.near * largest * (1 + 1e-9)
    assert "(L3_near)" in given.to_text()
    assert "(L3_far)" in given.to_text()
    elsewhere = check_span(layer_at(2.0), offsets=[(0, 0)], grid=(6, 7), convolution=conv)
    assert not elsewhere.rows[0].deciding.ends.of_convolution


def test_tokens_that_are_no_pixels_are_beyond_the_lemma():
    heads = np.zeros((3, 8, 8))
    heads[:, 0, 0] = 1
    heads[:, 1:, 1:] = hard((7,), LINE)
    report = check_span(heads, 3, grid=(7,), extra_tokens=1)
    assert report.rows[0].deciding.ends.licensed_by == ("L3: keys are pixels", WITHOUT_THEOREM)
    assert "these premises fail: keys are pixels" in report.to_text(verbose=True)


def test_attention_that_follows_the_input_has_no_ends():
    """At other inputs it is other attention, with which the layer may be the shift (E12)."""
    attention = np.random.default_rng(0).dirichlet(np.ones(9), (2, 9))
    known, captured = (
        check_span(attention, offsets=LINE, grid=(9,), sampled=sampled).rows[0].deciding.ends
        for sampled in (False, True)
    )
    assert known.licensed_by == ("L3", "TAPS")
    assert captured is None
    varying = np.stack([attention, attention[:, ::-1]])
    assert check_span(varying, offsets=LINE, grid=(9,)).rows[0].deciding.ends is None
