"""Uses of the span: convolutions written with given heads, recovered from them, and counted in heads."""

import doctest
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard
from changes import changed, changing
from torch import nn

import conv2attn
from conv2attn import check_span, convert, express
from conv2attn.layers.theorem import read_convolution
from conv2attn.span import expression
from conv2attn.verdicts import Verdict
from proofs import fewest_heads


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


def test_the_examples_of_the_documentation_run(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    results = doctest.testfile(str(root / "docs" / "check-span.md"), module_relative=False)
    assert results.attempted >= 15
    assert results.failed == 0


def test_a_convolution_is_fitted_on_three_kernels_a_side_by_default():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(2, 3, (3, 2), dilation=(1, 3)))
    heads.encoding.assign(alpha=0.5)
    found, on_a_grid, elsewhere = (expression(conv, heads, grid=grid).mixing for grid in (None, (9, 12), (12, 12)))
    assert np.array_equal(found, on_a_grid)
    assert not np.allclose(found, elsewhere)


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
