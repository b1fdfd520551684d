"""The column `chance` is what the same numbers are for uniform attention, and a count of pairs by hand."""

import numpy as np
import pytest
import torch
from torch import nn

import conv2attn
from conv2attn import MultiHeadSelfAttention
from conv2attn.layers.attention import Encoding

SIDES = [(4, 4), (3, 5), (9,), (2, 3, 4)]


def uniform_layer(axes):
    """Three heads of ours whose scores are all 0, with drawn values and outputs."""
    torch.manual_seed(0)
    layer = MultiHeadSelfAttention(2, 3, Encoding.of("learned", 3, (9,) * axes, 4), d_head=2)
    for each in layer.encoding.parameters():
        nn.init.zeros_(each)
    return layer.eval()


def pairs_by_hand(sides, size, extra=0):
    """The share of all pairs of a query and a key that a kernel of this size joins, axis by axis."""
    joined = [sum(abs(key - query) <= size // 2 for query in range(n) for key in range(n)) for n in sides]
    return np.prod(joined) / (np.prod(sides) * (np.prod(sides) + extra))


@pytest.mark.parametrize("sides", SIDES, ids=str)
def test_uniform_heads_of_a_layer_explain_what_chance_says(sides):
    (layer,) = conv2attn.heads(uniform_layer(len(sides)), grid=sides).layers
    assert layer.convolutions
    for fact in layer.convolutions:
        assert fact.share == pytest.approx(fact.chance, rel=1e-9)
        assert fact.chance == pytest.approx(pairs_by_hand(sides, fact.kernel_size), rel=1e-12)
    for fact in layer.spans:
        assert fact.mean == pytest.approx(fact.chance, rel=1e-9)


def test_on_four_by_four_a_kernel_of_three_explains_four_tenths_and_one_of_seven_all():
    (layer,) = conv2attn.heads(uniform_layer(2), grid=(4, 4)).layers
    assert layer.convolution(3).chance == pytest.approx(100 / 256)
    assert layer.convolution(7).chance == pytest.approx(1)
    report = conv2attn.heads(uniform_layer(2), grid=(4, 4))
    text = " ".join(report.to_text(verbose=True).split())
    for width in (40, 80, 120):
        said = " ".join(report.to_text(width).split())
        assert "conv 3: a 3x3 convolution (chance, of uniform attention: 39%)" in said
    assert "the nearest convolution of K = 3 explains 39.1%, and 39.1% of uniform attention" in text


def test_leading_tokens_are_keys_that_uniform_attention_reads_too():
    sides, extra = (3, 4), 2
    attention = np.full((3, 12 + extra, 12 + extra), 1 / (12 + extra))
    (layer,) = conv2attn.heads({"a": attention}, grid=sides, extra_tokens=extra).layers
    assert layer.span(3).mean == pytest.approx(layer.span(3).chance, rel=1e-9)
    assert layer.span(3).chance == pytest.approx(pairs_by_hand(sides, 3, extra) / 9)


def test_other_attention_differs_from_its_chance_and_a_causal_mask_has_none():
    drawn = np.random.default_rng(0).random((2, 9, 9)) ** 8
    (layer,) = conv2attn.heads({"a": drawn / drawn.sum(-1, keepdims=True)}, grid=(3, 3)).layers
    assert abs(layer.span(3).mean - layer.span(3).chance) > 0.01
    causal = np.tril(np.random.default_rng(1).random((2, 2, 9, 9)) + 0.1)
    (layer,) = conv2attn.heads({"a": causal / causal.sum(-1, keepdims=True)}, grid=(9,)).layers
    assert layer.span(3).chance is None
