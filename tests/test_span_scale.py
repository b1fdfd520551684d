"""check-span of large grids: hard heads without their attention, soft heads under a limit of memory."""

import tracemalloc

import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard, soft
from click.testing import CliRunner

from conv2attn import MultiHeadSelfAttention, check_span, convert
from conv2attn.attention import QuadraticEncoding
from conv2attn.cli import main
from conv2attn.verdicts import Strength, Verdict

MIB = 2**20


def test_a_hard_layer_whose_attention_would_not_fit():
    stem = convert(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3))
    report = check_span(stem, grid=(224, 224))
    assert [c.verdict for c in report.rows[0].conditions] == [Verdict.HOLDS] * 3
    assert [c.queries for c in report.rows[0].conditions] == [112**2] * 3
    assert {c.strength for c in report.rows[0].conditions} == {Strength.PROVED}
    wider = check_span(stem, 9, grid=(224, 224))
    assert wider.verdict is Verdict.REFUTED
    assert [t.verdict for t in wider.rows[0].deciding.targets].count(Verdict.HOLDS) == 49


def test_unpadded_hard_heads_of_a_large_grid_are_replicate_padding():
    encoding = QuadraticEncoding(torch.tensor(OFFSETS, dtype=torch.float32), 128.0)
    report = check_span(MultiHeadSelfAttention(1, 1, encoding), grid=(160, 170))
    assert [c.verdict for c in report.rows[0].conditions] == [Verdict.HOLDS, Verdict.REFUTED, Verdict.HOLDS]


@pytest.mark.parametrize(
    ("offsets", "kernel_size", "sides", "limit"),
    [
        (OFFSETS, 3, (16, 17), 16),
        (OFFSETS, 3, (7, 7), 16),
    ],
)
def test_memory_stays_under_the_limit(offsets, kernel_size, sides, limit):
    """What chunks need, on top of what is kept at any limit: the array itself, factors and mixings."""
    images = np.stack([soft(sides, alpha, offsets).astype(np.float32) for alpha in (1.5, 2.0)])
    check_span(images[..., :9, :9] / images[..., :9, :9].sum(-1, keepdims=True), grid=(3, 3), eps=1e-3)
    tracemalloc.start()
    check_span(images, kernel_size, grid=sides, memory_limit=limit * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= limit * MIB


def test_the_limit_is_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("line.npy", hard((9,), LINE))

    def call(*options):
        return CliRunner().invoke(main, ["check-span", "line.npy", "--grid", "9", "--kernel-size", "3", *options])

    assert call("--memory-limit", "1").stdout == call().stdout
    refused = call("--memory-limit", "0")
    assert refused.exit_code == 2
    assert "'--memory-limit': 0 is not in the range x>=1" in refused.stderr
