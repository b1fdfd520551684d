"""check-span of large grids: hard heads without their attention, soft heads in chunks."""

import tracemalloc
from math import prod

import numpy as np
import pytest
import torch
from attentions import EVERY, LINE, OFFSETS, hard
from commands import call

from conv2attn import MultiHeadSelfAttention, check_span, convert, heads
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding
from conv2attn.span import layers, rows_of
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.verdicts import Strength, Verdict

MIB = 2**20


def test_a_hard_layer_whose_attention_would_not_fit():
    stem = convert(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3))
    row = check_span(stem, 7, grid=(56, 56), condition=EVERY).rows[0]
    assert [c.verdict for c in row.conditions] == [Verdict.HOLDS] * 3
    assert [c.queries for c in row.conditions] == [28**2] * 3
    assert 4 * row.heads * 28**2 * prod(row.grid) > MEMORY_LIMIT
    assert {c.strength for c in row.conditions} == {Strength.PROVED}
    wider = check_span(stem, 9, grid=(56, 56))
    assert wider.verdict is Verdict.REFUTED
    assert [t.verdict for t in wider.rows[0].deciding.targets].count(Verdict.HOLDS) == 49


def test_facts_of_a_hard_layer_whose_attention_would_not_fit():
    stem = convert(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3))
    (layer,) = heads(stem, grid=(112, 112)).layers
    assert 4 * len(layer.heads) * 56**2 * 112**2 > MEMORY_LIMIT
    kinds = [head.kind for head in layer.heads]
    assert (kinds.count("shift"), kinds.count("itself")) == (48, 1)
    assert layer.convolution(7).share > 0.999999
    assert layer.convolution(7).error < 1e-4 * layer.convolution(7).norm


def test_facts_of_a_soft_layer_whose_attention_would_not_fit():
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", torch.tensor(OFFSETS, dtype=torch.float32), 0.9))
    (facts,) = heads(layer, grid=(100, 100)).layers
    (small,) = heads(layer, grid=(20, 20)).layers
    for head, other in zip(facts.heads, small.heads, strict=True):
        assert (head.kind, head.peak) == (other.kind, other.peak)
        assert head.peak_mass == pytest.approx(other.peak_mass, abs=0.02)
    assert [fact.error is None for fact in facts.convolutions + small.convolutions] == [True] * 4 + [False] * 4


def test_memory_is_that_of_a_chunk_and_of_a_few_rows():
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", torch.tensor(OFFSETS, dtype=torch.float32), 0.9))
    check_span(layer, grid=(8, 8))
    whole = 8 * 9 * (24 * 24) ** 2
    tracemalloc.start()
    assert check_span(layer, grid=(24, 24), memory_limit=4 * MIB).verdict is Verdict.REFUTED
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < whole / 2


def test_the_limit_is_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("line.npy", hard((9,), LINE))

    asked = ["check-span", "line.npy", "--grid", "9", "--kernel-size", "3"]
    assert call(*asked, "--memory-limit", "1").stdout == call(*asked).stdout
    refused = call(*asked, "--memory-limit", "0")
    assert refused.exit_code == 2
    assert "'--memory-limit': 0 is not in the range x>=1" in refused.stderr


@pytest.mark.parametrize(("sides", "scores"), [((6, 2), 36), ((2, 5), 25), ((3, 3), 9)])
def test_a_layer_is_read_where_the_scores_of_its_longest_axis_fit(sides, scores, monkeypatch):
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", torch.tensor(OFFSETS, dtype=torch.float32), 0.9))
    for default, asked in ((8 * scores, 1), (1, 8 * scores)):
        monkeypatch.setattr(layers, "MEMORY_LIMIT", default)
        assert rows_of("layer", layer, sides, memory_limit=asked).grid.keys == sides
        monkeypatch.setattr(layers, "MEMORY_LIMIT", max(1, default - 1))
        with pytest.raises(UsageError, match=f"C2A202 .* have scores of {8 * scores} bytes per axis"):
            rows_of("layer", layer, sides, memory_limit=max(1, asked - 1))
