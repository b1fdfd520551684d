"""A zoo of attention with known answers, built from the mathematics: no wrong verdict anywhere."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import EVERY, LINE, OFFSETS, hard, mixed, mixture, soft
from span.laws import optimum

from conv2attn import MultiHeadSelfAttention, check_span, convert
from conv2attn.layers.attention import Encoding
from conv2attn.layers.theorem import read_convolution
from conv2attn.span import check_kernel, conditions, limits_for, rows_of
from conv2attn.verdicts import Strength, Verdict

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


@pytest.mark.parametrize("family", ["quadratic", "enumerated"])
@pytest.mark.parametrize("alpha", [128.0, 130.5])
def test_hard_heads_read_one_key_also_where_their_target_is_off_the_grid(family, alpha):
    """Where scores are exact, where they round, and where the nearest key is not known in advance."""
    layer = MultiHeadSelfAttention(1, 1, Encoding.of(family, torch.tensor(OFFSETS).float(), alpha))
    rows = rows_of("layer", layer, (4, 5))
    weights = layer.attention(sides=(4, 5))[0]
    assert rows.one_hot
    assert np.array_equal(rows.hot[0], weights.argmax(-1).numpy())
    assert set(weights.unique().tolist()) == {0.0, 1.0}


NAMED = {(3, 3): "0, 1, 2", (4, 4): "all", (5, 4): "0, 1, 2 and 1 more"}
"""By the numbers of layers and of those with a remark, how it names these: all where they are more than three."""


@pytest.mark.parametrize(("layers", "several"), NAMED)
def test_a_remark_names_its_layers(layers, several):
    heads = hard((3, 4), OFFSETS)
    twice = {str(name): np.stack([heads] * (2 if name < several else 1)) for name in range(layers)}
    assert f"\n{NAMED[layers, several]}: one Phi for 2 images\n" in check_span(twice, grid=(3, 4)).to_text()


def test_a_square_is_inferred_from_its_tokens_and_a_line_is_them():
    assert check_span(hard((4, 4), OFFSETS)).rows[0].notes == ("grid 4x4 inferred from 16 tokens",)
    assert check_span(hard((9,), LINE), offsets=LINE).rows[0].notes == ()


@pytest.mark.parametrize("condition", EVERY)
def test_a_shift_that_is_a_head_leaves_nothing_beside_one_that_is_none(condition):
    heads = np.concatenate([hard((3, 3), [(0, 0)]), np.random.default_rng(0).dirichlet(np.ones(9), (2, 9))])
    found = check_span(heads, grid=(3, 3), offsets=[(0, 0), (0, 1)], condition=condition).rows[0].deciding
    shift, other = found.targets
    assert (shift.verdict, shift.residual, other.verdict) == (HOLDS, 0.0, REFUTED)
    assert other.residual == 1 or condition != "per-query"


@pytest.mark.parametrize("seed", range(10))
def test_the_residual_of_each_query_covers_its_rounding(seed):
    # heads that differ by a millionth: Phi is so large that rounding outweighs what is asked for
    rng = np.random.default_rng(seed)
    heads = rng.dirichlet(np.ones(5), 5) + 1e-6 * (rng.dirichlet(np.ones(5), (5, 5)) - 0.2)
    heads /= heads.sum(-1, keepdims=True)
    target = check_span(heads, 1, grid=(5,), eps=1e-3, max_phi=1e9, condition="per-query").rows[0].deciding.targets[0]
    for (query,), weights in zip(target.evidence.groups, target.evidence.mixings, strict=True):
        rows = [[Fraction(x) for x in head[query].tolist()] for head in heads]
        mixed_row = [sum(Fraction(w) * row[key] for w, row in zip(weights, rows, strict=True)) for key in range(5)]
        assert sum(abs((key == query) - x) for key, x in enumerate(mixed_row)) <= target.residual


def test_groups_share_the_width_of_a_head():
    conv = torch.nn.Conv2d(4, 4, 1, groups=2, bias=False)
    for rank, expected in ((1, HOLDS), (2, UNDECIDED)):
        block = torch.ones(2, 2) if rank == 1 else torch.eye(2)
        conv.weight.data = torch.cat([block, block])[..., None, None]
        layer = MultiHeadSelfAttention(4, 4, convert(conv).encoding, d_head=2, groups=2)
        kernel = check_span(layer, grid=3, convolution=conv, condition="kernel").rows[0].deciding
        assert (kernel.verdict, f"{rank}, " in kernel.sentence) == (expected, True)


def test_counting_refutes_where_no_norm_is_too_large():
    blind = np.full((2, 9, 9), 1 / 9)
    interior = check_span(blind, (1, 3), max_phi=1e100, condition="interior").rows[0].deciding
    assert {target.verdict for target in interior.targets} == {REFUTED}
    assert (interior.verdict, interior.strength, interior.counting.least_residual) == (REFUTED, Strength.PROVED, 1)
    assert check_span(blind[[0, 0, 0]], (1, 3), max_phi=1e100).verdict is REFUTED
    assert check_span(hard((3, 3), OFFSETS[1:]), eps=0.999, max_phi=1e100).verdict is REFUTED


@pytest.mark.parametrize("condition", ["joint", "interior", "per-query"])
def test_counting_tells_no_more_than_is_left(condition):
    # the head between two shifts leaves 1 of each at every query that sees both, whatever its coefficient
    between = ((np.eye(6) + np.roll(np.eye(6), 1, 1)) / 2)[None]
    options = {"offsets": [(0,), (1,)], "grid": (6,), "condition": condition}
    counting = check_span(between, **options).rows[0].deciding.counting
    row = between[0, counting.row]
    left = [np.abs(np.eye(6)[counting.row + t] - phi * row).sum() for phi in np.linspace(-3, 3, 25) for t in (0, 1)]
    assert counting.least_residual == 1 == min(left)
    assert check_span(between, **options, eps=0.8).verdict is REFUTED


def test_no_interior_query_is_nothing_checked():
    report = check_span(hard((2, 6), OFFSETS), grid=(2, 6))
    assert report.verdict is UNDECIDED
    assert report.exit_code == 3
    assert "nothing was checked" in report.to_text()
    assert report.asked == "offsets: " + " ".join(f"({i},{j})" for i in (-1, 0, 1) for j in (-1, 0, 1))
    assert "(proved" not in report.to_text()


@pytest.mark.parametrize("condition", [2.0, 1e3, 1e5, 1e8, 1e14])
def test_mixtures_hold_and_phi_is_found_as_far_as_float64_can_tell(condition):
    attention = mixed(hard((20,), LINE), condition)
    report = check_span(attention, grid=(20,), kernel_size=(3,))
    interior = report.rows[0].condition("interior")
    if condition < 1e6:
        phi = np.array([[float(w) for w in target.weights] for target in interior.targets])
        assert interior.verdict is HOLDS
        assert interior.residual <= report.rows[0].limits.allowed(interior.norm)
        assert np.allclose(phi, np.linalg.inv(mixture(3, condition)), rtol=0, atol=1e-12 + 1e-15 * condition**2)
    else:
        assert interior.verdict is REFUTED
    assert check_span(attention, grid=(20,), kernel_size=(3,), eps=1e-9).exit_code == (0 if condition < 1e6 else 1)
    beyond = "least squares needs a Phi of norm" in report.to_text(verbose=True)
    assert beyond is (condition == 1e8)


def test_each_image_has_a_phi_of_its_own_where_that_is_asked():
    line = hard((7,), LINE)
    asked = {"kernel_size": (3,), "grid": (7,), "condition": "per-image"}
    alone = check_span(np.stack([line, line[::-1]]), **asked)
    assert (alone.verdict, "a Phi for each image" in alone.to_text()) == (HOLDS, True)
    assert check_span(np.stack([line, soft((7,), 1.0, LINE)]), **asked).verdict is REFUTED


def test_attention_that_varies_holds_on_samples_only():
    heads = hard((7,), LINE)
    other = heads.copy()
    other[:, [0, -1]] = np.roll(other[:, [0, -1]], 1, -1)
    report = check_span(np.stack([heads, other]), kernel_size=(3,), grid=(7,))
    assert report.verdict is HOLDS
    assert report.strength is Strength.SAMPLED


@pytest.mark.parametrize(("kernel", "dilation"), [(2, 1), ((2, 3), (1, 2)), (1, 1)])
def test_even_dilated_and_rectangular_kernels(kernel, dilation):
    layer = convert(torch.nn.Conv2d(1, 1, kernel, dilation=dilation))
    (row,) = check_span(layer, kernel, dilation=dilation, grid=(8, 9), condition=EVERY).rows
    assert [condition.verdict for condition in row.conditions] == [HOLDS] * 3
    assert check_span(layer, 5, grid=(8, 9)).verdict is REFUTED


def test_a_kernel_that_needs_less_than_all_shifts():
    conv = torch.nn.Conv2d(2, 3, 3).double()
    conv.weight.data[:, :, 0] = 0
    given = {"grid": (5, 6), "convolution": conv}
    report = check_span(hard((5, 6), OFFSETS[3:]), **given, condition=("kernel", *EVERY))
    assert [each.verdict for each in report.rows[0].conditions] == [HOLDS, REFUTED, REFUTED, REFUTED]
    conv.weight.data[0, 0, 0, 0] = 1
    assert check_span(hard((5, 6), OFFSETS[3:]), grid=(5, 6), convolution=conv, condition="kernel").exit_code == 1


def test_blurred_kernels_need_the_blur_only():
    heads = np.tensordot([[0.5, 0.5, 0], [0, 0.25, 0.75]], hard((9,), LINE), 1)
    conv = torch.nn.Conv1d(1, 2, 3).double()
    conv.weight.data = torch.tensor([[[1.0, 1, 0]], [[0, 1, 3]]], dtype=torch.float64)
    found = check_span(heads, grid=(9,), convolution=conv, condition=("interior", "kernel"))
    assert [each.verdict for each in found.rows[0].conditions] == [REFUTED, HOLDS]


@pytest.mark.parametrize(("second", "expected"), [([[1, 0], [0, 3]], HOLDS), ([[1, 1], [1, 3]], UNDECIDED)])
def test_dependent_bases_may_fit_narrow_heads(second, expected):
    heads = np.tensordot([[0.75, 0.25], [0.25, 0.75]], hard((9,), [(0,), (1,)]), 1)
    attention = replace(rows_of("narrow", heads, (9,)), d_head=1)
    conv = torch.nn.Conv1d(2, 2, 2).double()
    conv.weight.data[..., 0] = torch.tensor([[3.0, 0], [0, 1]])
    conv.weight.data[..., 1] = torch.tensor(second)
    found = check_kernel(attention, read_convolution(conv), limits_for(attention, None, None))
    assert found.verdict is expected
    assert found.sentence


def test_queries_that_were_not_looked_at_decide_nothing(monkeypatch):
    rows = 0.6 * np.eye(9)[:1] + 0.4 * np.random.default_rng(0).dirichlet(np.ones(9), 2)
    heads = np.array([[np.roll(row, query) for query in range(9)] for row in rows])
    eps = max(optimum(heads[:, [q]], np.eye(9)[[q]], 1e6) for q in range(9)) * (1 + 1e-6)
    assert check_span(heads, 1, grid=(9,), eps=eps, condition="per-query").rows[0].deciding.verdict is HOLDS
    monkeypatch.setattr(conditions, "AFFORDABLE", 1)
    assert check_span(heads, 1, grid=(9,), eps=eps, condition="per-query").rows[0].deciding.verdict is UNDECIDED
    heads[:, 4] = 1 / 9  # the worst is looked at first
    assert check_span(heads, 1, grid=(9,), eps=eps, condition="per-query").rows[0].deciding.verdict is REFUTED


def test_a_residual_at_the_threshold_is_open_until_a_programme_is_asked():
    """At alpha 8 the leak is what float32 rounds by, and least squares leaves a little more than the best mixing."""
    heads = soft((5, 6), 8.0).astype(np.float32)
    plain, tight = (check_span(heads, grid=(5, 6), tight=each).rows[0].deciding for each in (False, True))
    assert ("--tight" in plain.sentence, "undecided" in tight.sentence) == (True, False)
    ((interval, best),) = [each for each in zip(plain.targets, tight.targets, strict=True) if each[0].label == "0,0"]
    assert (interval.verdict, best.verdict) == (UNDECIDED, HOLDS)
    assert interval.floor <= best.residual <= interval.residual


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("condition", ["per-image", "per-query"])
def test_the_residual_is_that_of_the_worst_image_whichever_comes_first(order, condition):
    """One image misses a shift by little; one attends evenly, and misses it by nearly as much as no heads at all: 1."""
    shifts = hard((7,), LINE)
    little = shifts.copy()
    little[:, 3] = 0.98 * shifts[:, 3] + 0.02 * np.eye(7)[6]
    images = np.stack([little, np.full_like(shifts, 1 / 7)])[list(order)]
    report = check_span(images, grid=(7,), offsets=[(0,)], condition=condition)
    (target,) = report.rows[0].conditions[0].targets
    assert target.verdict is REFUTED
    assert (target.residual, target.floor) == pytest.approx((1, 1), abs=0.2)
    assert target.dual_rows[0] // 7 == order.index(1)
