"""Layers that attend and are not `sum_h A_h x M_h^T + b`: the report says which premise fails; unusual ones replay."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.networks.reading import replay_result
from conv2attn.span import ask_attention

WINDOW = torch.arange(36).reshape(2, 3, 2, 3).transpose(1, 2).flatten()
NEIGHBOURS = (torch.arange(6)[:, None] + torch.arange(-1, 2)).clamp(0, 5)


class Attention(nn.Module):
    """Attention of two heads on 36 tokens; `kind` says what is unusual."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.qkv, self.proj, self.act = kind, nn.Linear(8, 24), nn.Linear(8, 8), nn.Hardswish()
        self.mix = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, tokens):
        kind = self.kind
        if kind == "in windows of tokens in the order of the image":
            tokens = tokens[:, WINDOW].reshape(4, 9, 8)
        query, key, value = self.qkv(tokens).chunk(3, -1)
        if kind == "a convolution of values":
            value = self.mix(value.mT).mT
        if kind == "an activation of values":
            value = F.gelu(value)
        if kind == "between channels":
            return self.channels(query, key, value)
        query, key, value = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in (query, key, value))
        if kind == "heads in other orders":
            value = torch.cat([value[:, :1], value[:, 1:].flip(2)], 1)
        if kind == "in overlapping windows":
            query = query.reshape(1, 2, 6, 6, 4)
            key, value = (each.reshape(1, 2, 6, 6, 4)[:, :, NEIGHBOURS].flatten(3, 4) for each in (key, value))
        weights = (query @ key.mT).softmax(-1)
        if kind == "sums by einsum":
            mixed = torch.einsum("bhqk,bhkc->bqhc", weights, value).transpose(1, 2)
        elif kind == "sums by hand":
            mixed = (weights[..., None] * value[..., None, :, :]).sum(-2)
        else:
            mixed = weights @ value
        if kind == "two attentions, one after the other":
            mixed = (key @ query.mT).softmax(-1) @ mixed
        if kind == "two attentions, added":
            mixed = mixed + (key @ query.mT).softmax(-1) @ value
        if kind == "its values are added":
            mixed = mixed + value
        if kind == "in overlapping windows":
            mixed = mixed.reshape(1, 2, 36, 4)
        mixed = mixed.transpose(1, 2).flatten(2)
        if kind == "an activation behind":
            mixed = self.act(mixed)
        if kind == "pooled behind":
            mixed = mixed.unflatten(1, (18, 2)).mean(2)
        if kind == "in windows of tokens in the order of the image":
            mixed = mixed.reshape(1, 36, 8)[:, WINDOW.argsort()]
        return self.proj(mixed)

    def channels(self, query, key, value):
        """Cross-covariance attention."""
        query, key, value = (each.unflatten(-1, (2, 4)).permute(0, 2, 3, 1) for each in (query, key, value))
        return self.proj(((query @ key.mT).softmax(-1) @ value).permute(0, 3, 1, 2).flatten(2))


class Network(nn.Module):
    """12x12 pixels, 6x6 tokens, and a layer that attends."""

    def __init__(self, kind):
        super().__init__()
        self.stem, self.attn = nn.Conv2d(3, 8, 2, 2), Attention(kind)

    def forward(self, image):
        return self.attn(self.stem(image).flatten(2).mT)


def reads(kind):
    torch.manual_seed(0)
    return list(ask_attention(Network(kind).eval(), torch.randn(1, 3, 12, 12)).reads())


FAILING = {
    "an activation behind": replay_result.NOT_LINEAR,
    "two attentions, one after the other": replay_result.NOT_LINEAR,
    "two attentions, added": replay_result.SEVERAL_TIMES,
    "pooled behind": replay_result.NOT_ONE_EACH,
    "a convolution of values": replay_result.MIXES_VALUES,
    "an activation of values": replay_result.VALUES_NOT_LINEAR,
    "between channels": replay_result.CHANNELS,
    "heads in other orders": replay_result.NO_ORDER,
    "sums by hand": replay_result.NO_PRODUCT,
    "its values are added": replay_result.UNKNOWN,
}


@pytest.mark.parametrize("kind", FAILING)
def test_the_reason_is_the_premise_that_fails(kind):
    for read in reads(kind):
        assert read.weights is None
        assert read.notes[0] == FAILING[kind]


OF_THE_FORM = ("", "in windows of tokens in the order of the image", "in overlapping windows", "sums by einsum")


@pytest.mark.parametrize("kind", OF_THE_FORM)
def test_unusual_layers_of_the_form_replay_with_their_weights(kind):
    (read,) = reads(kind)
    torch.manual_seed(0)
    layer = Network(kind).attn.double()
    value = layer.qkv.weight[16:].unflatten(0, (2, 4))
    expected = torch.einsum("ohc,hci->hoi", layer.proj.weight.unflatten(1, (2, 4)), value)
    assert read.replay < 1e-9
    torch.testing.assert_close(read.weights[0], expected.detach(), rtol=1e-9, atol=1e-9)


class ClassAttention(nn.Module):
    """One query, a class token, on 36 tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.stem, self.heads, self.token = nn.Conv2d(3, width, 2, 2), heads, nn.Parameter(torch.randn(1, 1, width))
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, image):
        tokens = self.stem(image).flatten(2).mT
        return self.attn(self.token, tokens, tokens, need_weights=False)[0]


@pytest.mark.parametrize(("width", "heads"), [(8, 4), (128, 64)])
def test_one_query_takes_a_run_for_each_head_and_channel_up_to_a_limit(width, heads):
    torch.manual_seed(0)
    (read,) = ask_attention(ClassAttention(width, heads).eval(), torch.randn(1, 3, 12, 12)).reads()
    if width * heads <= replay_result.MOST_PASSES:
        assert read.replay < 1e-9
    else:
        assert read.weights is None
        assert read.notes[0] == replay_result.too_many(width * heads, heads, width, 1)
