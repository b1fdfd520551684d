"""Uses of the span: convolutions written with given heads, recovered from them, and counted in heads."""

import doctest
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard
from changes import changed, changing
from click.testing import CliRunner
from torch import nn

import conv2attn
from conv2attn import check_span, convert, express
from conv2attn.cli import main
from conv2attn.errors import UsageError
from conv2attn.layers.theorem import fewest_heads, read_convolution
from conv2attn.span import MovedPattern, expression, fit_heads, head_offsets, profiles, redundant_heads
from conv2attn.verdicts import Verdict


def integers(module):
    """A layer with small integer weights, in float64, so that sums are exact."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    return module


def image(*shape):
    return torch.randint(-4, 5, shape).double()


def test_express_writes_a_convolution_with_the_heads_of_another():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(3, 4, 3, padding=1, stride=2))
    with torch.no_grad():
        changed(heads, "center", lambda numbers: numbers.copy_(numbers.flip(0).clone()))
        heads.encoding.assign(alpha=1024)
    written = express(conv, heads)
    x = image(2, 3, 9, 8)
    assert torch.equal(written(x), conv(x))


def test_express_says_what_heads_cannot_do():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(3, 4, 3))
    with torch.no_grad():
        heads.encoding.assign(alpha=0.5)
    result = expression(conv, heads)
    assert result.condition.verdict is Verdict.REFUTED
    with torch.no_grad():
        heads.encoding.assign(alpha=1024)
        with changing(heads, "center") as numbers:
            numbers[4] = 1.0
    assert expression(conv, heads).condition.verdict is Verdict.REFUTED
    conv.weight.data[:, :, 1, 1] = 0
    assert expression(conv, heads).condition.verdict is Verdict.HOLDS
    assert torch.equal(express(conv, heads)(x := image(1, 3, 6, 7)), conv(x))


def test_heads_given_as_an_array_are_fitted_as_those_of_a_layer():
    """Mixtures of shifts: with a neighbourhood on the grid the weights give the convolution, unless one is lost."""
    conv, grid = integers(nn.Conv2d(3, 4, (1, 3))), (3, 5)
    shares = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])
    shifted = np.zeros((3, 15, 15))
    for tap, column in enumerate((-1, 0, 1)):
        for query in range(15):
            shifted[tap, query, query - query % 5 + min(max(query % 5 + column, 0), 4)] = 1
    attention = np.einsum("ht,tqk->hqk", shares, shifted)
    found = fit_heads(conv, attention, grid=grid)
    assert found.condition.verdict is Verdict.HOLDS
    x = image(1, 3, *grid)
    tokens, bias = x.flatten(2)[0].numpy(), found.weights.bias.detach().numpy()
    computed = np.einsum("hqk,hoi,ik->oq", attention, found.weights.taps().detach().numpy(), tokens) + bias[:, None]
    assert np.array_equal(computed.reshape(4, *grid)[:, :, 1:-1], conv(x)[0].detach().numpy())
    assert fit_heads(conv, attention[:2], grid=grid).condition.verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match="C2A504 a convolution of 1 axes, attention of 2"):
        fit_heads(nn.Conv1d(3, 4, 3), attention, grid=grid)


@pytest.mark.parametrize("seed", range(5))
def test_fewest_heads_construct_the_convolution(seed):
    torch.manual_seed(seed)
    conv = integers(nn.Conv2d(1 + seed % 2, 1 + seed // 2, 3))
    found = fewest_heads(conv)
    rank = int(np.linalg.matrix_rank(conv.weight.detach().flatten(2).flatten(0, 1).numpy()))
    assert found.free in (rank, rank + 1)
    assert all(sum(row) == 1 and min(row) >= 0 for row in found.patterns)
    floats = np.array([[float(Fraction(x)) for x in row] for row in found.patterns])
    taps = np.einsum("ht,hoi->oit", floats, found.matrices).reshape(conv.weight.shape)
    assert np.allclose(taps, conv.weight.detach().numpy(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**-600, 2.0**600, 2.0**1000])
def test_how_few_heads_a_convolution_needs_does_not_depend_on_the_unit_of_its_weights(unit):
    torch.manual_seed(0)
    conv = integers(nn.Conv2d(1, 2, 3))
    before = fewest_heads(conv)
    conv.weight.data.mul_(unit)
    after = fewest_heads(conv)
    assert (after.hard, after.free, after.patterns) == (before.hard, before.free, before.patterns)
    assert np.allclose(after.matrices / unit, before.matrices)
    report = check_span(hard((4, 5), OFFSETS), grid=(4, 5), convolution=conv, condition="kernel")
    assert (len(report.rows[0].deciding.targets), report.verdict) == (2, Verdict.HOLDS)


@pytest.mark.parametrize(
    ("taps", "heads"),
    [
        ([3.0, 1e-300], (2, 1)),
        ([3.0, -1e-300], (2, 2)),
        ([-5e-324], (1, 1)),
        ([0.0, -0.0], (0, 0)),
        ([1e307] * 3, (3, 1)),
    ],
)
def test_every_tap_that_is_not_zero_counts_however_small(taps, heads):
    conv = nn.Conv1d(1, 1, len(taps), dtype=torch.float64)
    conv.weight.data[:] = torch.tensor(taps, dtype=torch.float64)
    found = fewest_heads(conv)
    assert (found.hard, found.free) == heads


def test_a_convolution_without_channels_needs_no_head():
    found = fewest_heads(replace(read_convolution(nn.Conv1d(2, 2, 3)), weight=torch.zeros(0, 2, 3)))
    assert (found.hard, found.free, found.matrices.shape) == (0, 0, (0, 0, 2))


def test_redundant_heads_are_found():
    attention = convert(nn.Conv2d(1, 1, 3)).attention(sides=(5, 6))[0]
    square = np.zeros((3, 6, 6))
    square[0], square[1] = np.eye(6), np.eye(6)[::-1]
    square[2] = (square[0] + square[1]) / 2
    found = redundant_heads(square, grid=(6,))
    assert max(found.distances) < 1e-12
    assert found.removable == (2,)
    assert redundant_heads(square[:2], grid=(6,)).removable == ()
    assert attention.shape[0] == 9


def heads_on(sides, weigh, offsets):
    """Heads at offsets, their rows in proportion to `weigh(squared distance, largest distance)` of each key."""
    places = np.stack(np.unravel_index(np.arange(np.prod(sides)), sides), -1)
    rows = []
    for head, offset in enumerate(offsets):
        away = places[None] - places[:, None] - np.array(offset)
        weights = weigh(head, (away**2).sum(-1), np.abs(away).max(-1))
        mass = weights.sum(-1, keepdims=True)
        rows.append(np.divide(weights, mass, out=np.zeros_like(weights), where=mass > 0))
    return np.stack(rows)


NINE = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


@pytest.mark.parametrize("sides", [(7, 7), (9, 12), (20, 16)])
def test_boxes_of_one_radius_are_one_profile(sides):
    boxes = heads_on(sides, lambda head, square, largest: (largest <= 1).astype(float), NINE)
    assert profiles(boxes, grid=sides).reads_as == "one convolution"
    other = heads_on(sides, lambda head, square, largest: (largest <= (1 if head < 8 else 2)).astype(float), NINE)
    assert profiles(other, grid=sides).reads_as == "a mixture of 2 convolutions"


def test_reports_say_profiles_in_words_where_asked():
    """One convolution, a sparse one with its taps, a mixture: by both reports, and by none that was not asked."""
    mixture = heads_on((6, 6), lambda head, square, largest: np.exp(-(1 + 3 * (head // 5)) * square), NINE)
    sparse = heads_on((6, 6), lambda head, square, largest: np.exp(-5.0 * square), [(0, 0), (0, 1), (1, 0)])
    one = heads_on((6, 6), lambda head, square, largest: np.exp(-5.0 * square), [(0, 0), (0, 1)])
    expected = {
        "reads as one convolution, its taps counted from head 0: (0,0) (0,1)": one,
        "reads as one sparse convolution, its taps counted from head 0: (0,0) (0,1) (1,0)": sparse,
        "reads as a mixture of 2 convolutions, of 5, 4 heads": mixture,
    }
    for sentence, attention in expected.items():
        for ask in (check_span, conv2attn.heads):
            noted = ask(attention, grid=6, profiles=True)
            layer, *_ = noted.rows if ask is check_span else noted.layers
            assert sentence in layer.notes
            plain = ask(attention, grid=6)
            assert "reads as" not in " ".join((plain.rows if ask is check_span else plain.layers)[0].notes)
    evenly = np.random.default_rng(0).dirichlet(np.ones(36), (2, 36))
    assert "reads as not relative to position" in str(check_span(evenly, grid=6, profiles=True))


def test_commands_say_profiles(tmp_path):
    path = tmp_path / "attention.npy"
    np.save(path, heads_on((6, 6), lambda head, square, largest: np.exp(-5.0 * square), [(0, 0), (0, 1), (1, 0)]))
    for command in (["check-span"], ["heads", "-v"]):
        result = CliRunner().invoke(main, [*command, str(path), "--profiles", "--grid", "6x6", "--wide"])
        assert "reads as one sparse convolution, its taps counted from head 0: (0,0) (0,1) (1,0)" in result.output
    result = CliRunner().invoke(main, ["heads", str(path), "--profiles", "--compare", str(path)])
    assert result.exit_code == 2
    assert "--profiles speaks of one model" in result.output


def test_heads_between_strided_queries_are_one_profile():
    """Offsets that no stride divides: rows are compared at the nearest query, moved by the rest."""
    layer = convert(nn.Conv2d(1, 1, 3, stride=2, padding=1), alpha=2.0)
    found = profiles(layer, grid=(9, 12))
    assert found.reads_as == "one convolution"
    assert sorted(found.patterns[0].shifts) == sorted((i, j) for i in (0, 1, 2) for j in (0, 1, 2))


def test_the_examples_of_the_documentation_run(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    results = doctest.testfile(str(root / "docs" / "check-span.md"), module_relative=False)
    assert results.attempted >= 20
    assert results.failed == 0


def by_displacement(images, sides):
    """For each displacement the numbers that pixels have there, of rows (images, queries, keys)."""
    places, found = list(np.ndindex(*sides)), {}
    for image in images:
        for (q, at), (k, key) in product(enumerate(places), enumerate(places)):
            found.setdefault(tuple(np.subtract(key, at).tolist()), []).append(image[q, k])
    return found


@pytest.mark.parametrize(("images", "extra"), [(1, 0), (1, 2), (3, 0), (2, 1)])
@pytest.mark.parametrize("sides", [(3, 4), (7,), (2, 1, 3)])
def test_numbers_are_those_of_loops(sides, images, extra):
    tokens = np.prod(sides) + extra
    attention = np.random.default_rng(0).dirichlet(np.ones(tokens) / 3, (images, 2, tokens))
    readings = head_offsets(attention, grid=sides, extra_tokens=extra)
    for number, reading in enumerate(readings):
        numbers = by_displacement(attention[:, number, extra:, extra:], sides)
        mass = {d: sum(each) for d, each in numbers.items()}
        whole, axes = sum(mass.values()), range(len(sides))
        center = [sum(m * d[a] for d, m in mass.items()) / whole for a in axes]
        spread = (sum(m * sum((d[a] - center[a]) ** 2 for a in axes) for d, m in mass.items()) / whole) ** 0.5
        assert (reading.head, reading.peak, reading.offset) == (number, max(mass, key=mass.get), None)
        assert reading.share == pytest.approx(max(mass.values()) / images / np.prod(sides))
        assert reading.weakest == min(numbers[reading.peak])
        assert (*reading.center, reading.spread) == pytest.approx((*center, spread))


def test_a_head_that_reads_leading_tokens_alone_is_nowhere():
    (reading,) = head_offsets(np.eye(1, 8)[None].repeat(8, 1), grid=(7,), extra_tokens=1)
    assert (reading.center, reading.spread, reading.share, reading.weakest, reading.offset) == ((0,), 0, 0, 0, None)


@pytest.mark.parametrize(("step", "most"), [(1, True), (3, True), (4, False)])
@pytest.mark.parametrize("lost", [0.0, 0.1, 0.2])
def test_a_head_is_the_shift_that_most_queries_have_to_eps(step, most, lost):
    """It may leave lost of its attention elsewhere, and so be 2 lost away."""
    shift = hard((8,), [(step,)])
    (reading,) = head_offsets((1 - lost) * shift + lost * np.roll(shift, 1, -1), grid=(8,), eps=0.3)
    assert reading.offset == ((step,) if most and lost < 0.15 else None)


@pytest.mark.parametrize("seed", range(4))
def test_heads_are_one_pattern_up_to_what_their_translates_differ_by(seed):
    """The second head is the first moved by (1, -2), mixed with another row; half their mean distance decides."""
    rng, sides, shift = np.random.default_rng(seed), (6, 7), (1, -2)
    (first,) = heads_on(sides, lambda head, square, largest: np.exp(-2.0 * square), [(0, 1)])
    first = first * rng.uniform(0.9, 1, first.shape)
    first /= first.sum(-1, keepdims=True)
    second, distances = rng.dirichlet(np.full(42, 0.3), 42), []
    for query in np.ndindex(sides):
        mover = tuple(np.subtract(query, shift).tolist())
        if all(0 <= place < side for place, side in zip(mover, sides, strict=True)):
            here, there = (np.ravel_multi_index(each, sides) for each in (query, mover))
            second[there] = 0.8 * first[here] + 0.2 * second[there]
            distances.append(sum(abs(a - b) for a, b in zip(first[here], second[there], strict=True)) / 2)
    apart = sum(distances) / len(distances)
    near = profiles(np.stack([first, second]), grid=sides, tolerance=apart * (1 + 1e-9))
    assert near.patterns[0].shifts == ((0, 0), shift)
    assert len(profiles(np.stack([first, second]), grid=sides, tolerance=apart * (1 - 1e-9)).patterns) == 2


def test_shifts_are_a_kernel_where_they_are_a_box_of_even_steps():
    boxes = {
        frozenset(product(range(a, a + rows * down, down), range(b, b + columns * right, right)))
        for a, b in product(range(4), repeat=2)
        for rows, columns, down, right in product((1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3))
    }
    rng = np.random.default_rng(0)
    drawn = [frozenset(map(tuple, rng.integers(0, 3, (rng.integers(1, 7), 2)).tolist())) for _ in range(200)]
    for shifts in [*boxes, *drawn]:
        assert MovedPattern((), tuple(shifts)).kernel == (shifts in boxes)
    assert not MovedPattern((0, 1), ((0, 0), (0, 0))).kernel


def test_a_convolution_is_fitted_on_three_kernels_a_side_by_default():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(2, 3, (3, 2), dilation=(1, 3)))
    heads.encoding.assign(alpha=0.5)
    found, on_a_grid, elsewhere = (expression(conv, heads, grid=grid).mixing for grid in (None, (9, 12), (12, 12)))
    assert np.array_equal(found, on_a_grid)
    assert not np.allclose(found, elsewhere)


@pytest.mark.parametrize("condition", ["interior queries", "no interior query"])
def test_heads_that_cannot_are_fitted_by_least_squares_at_the_queries_of_all_images(condition):
    conv, sides = integers(nn.Conv1d(2, 3, 3 if condition == "interior queries" else 9)), (5,)
    attention = np.random.default_rng(0).dirichlet(np.ones(5), (3, 2, 5))
    taps = conv.weight.detach().numpy()
    offsets = [t - (taps.shape[2] - 1) // 2 for t in range(taps.shape[2])]
    queries = [q for q in range(5) if all(0 <= q + d < 5 for d in offsets)] or list(range(5))
    asked = np.stack([np.eye(5, k=d)[queries] for d in offsets])
    rows = attention[:, :, queries].swapaxes(0, 1).reshape(2, -1).T
    phi = np.linalg.lstsq(rows, np.stack([asked] * 3, 1).reshape(len(offsets), -1).T)[0].T
    made = fit_heads(conv, attention, grid=sides).weights.taps().detach().numpy()
    assert np.allclose(made, np.einsum("th,oct->hoc", phi, taps))


def test_a_copy_with_other_findings_has_their_verdict():
    """The verdict follows from the rows, and is never that of the report that was copied."""
    heads = hard((5,), LINE)
    holds, refuted = (conv2attn.check_span(each, offsets=LINE, grid=(5,)) for each in (heads, heads[:2]))
    assert (holds.verdict, refuted.verdict) == (Verdict.HOLDS, Verdict.REFUTED)
    copied = msgspec.structs.replace(holds, rows=refuted.rows)
    assert (copied.verdict, copied.exit_code) == (Verdict.REFUTED, 1)
    assert json.loads(copied.to_json())["verdict"] == "refuted"
    assert msgspec.structs.replace(holds, rows=()).exit_code == 3
    facts = conv2attn.heads(heads, grid=(5,))
    assert msgspec.structs.replace(facts, layers=()).verdict is Verdict.UNDECIDED
