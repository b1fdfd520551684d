"""Attention by position alone, asked of a run: networks that know the biases of their scores."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn import check_span
from conv2attn.networks.positions import Unread
from conv2attn.networks.reading import by_position
from conv2attn.span import ask_attention

HEADS, SIDES, WIDTH = 2, (3, 4), 8
CELLS = torch.cartesian_prod(torch.arange(3), torch.arange(4))
DISPLACEMENTS = CELLS[None] - CELLS[:, None]


class BiasedAttention(nn.Module):
    """Two heads whose scores have a bias for each displacement."""

    def __init__(self, leading=0):
        super().__init__()
        self.qkv, self.table = nn.Linear(WIDTH, 3 * WIDTH), nn.Parameter(torch.randn(HEADS, 5, 7))
        self.leading = leading

    def bias(self):
        rows, columns = (DISPLACEMENTS + torch.tensor([2, 3])).unbind(-1)
        return F.pad(self.table[:, rows, columns], (self.leading, 0, self.leading, 0))

    def mix(self, query, key, value):
        return (query @ key.mT / 2 + self.bias()).softmax(-1) @ value

    def forward(self, tokens):
        parts = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(tokens).chunk(3, -1))
        return self.mix(*parts).transpose(1, 2).flatten(2)


class FusedAttention(BiasedAttention):
    """The biases are the mask of torch's fused attention."""

    def mix(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.bias())


class MetAttention(BiasedAttention):
    """Queries meet a table too, which is content, and vanishes with them."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Parameter(torch.randn(HEADS, len(CELLS), WIDTH // HEADS))

    def mix(self, query, key, value):
        met = torch.einsum("bhqc,hkc->bhqk", query, self.keys)
        return (query @ key.mT / 2 + met + self.bias()).softmax(-1) @ value


class NoAttention(BiasedAttention):
    """It has no biases."""

    def bias(self):
        return super().bias() * 0


class ScaledAttention(BiasedAttention):
    """What the image shows scales the biases."""

    def mix(self, query, key, value):
        return (query @ key.mT + self.bias() * value.mean((-1, -2), keepdim=True)).softmax(-1) @ value


class Network(nn.Module):
    """Patches of 2x2, tokens in front of them, and the attention."""

    def __init__(self, attention):
        super().__init__()
        self.patch, self.attn = nn.Conv2d(3, WIDTH, 2, 2), attention
        self.classes = nn.Parameter(torch.randn(1, attention.leading, WIDTH))

    def forward(self, image):
        tokens = self.patch(image).flatten(2).mT
        return self.attn(torch.cat([self.classes.expand(len(tokens), -1, -1), tokens], 1))


def by_position_of(network, grid=None, inputs=None):
    (read,) = ask_attention(network, inputs, grid, position_only=True).reads()
    return read.attention


def expected(layer):
    """Rows of pixels; what leads them comes last."""
    weights = layer.bias().double().softmax(-1)
    return weights[:, layer.leading :].roll(-layer.leading, -1)


@pytest.mark.parametrize("attention", [BiasedAttention, FusedAttention, MetAttention, lambda: BiasedAttention(1)])
def test_biases_of_any_class_are_read_on_the_grid(attention):
    torch.manual_seed(0)
    network = Network(attention()).eval()
    found = by_position_of(network, SIDES)
    assert torch.allclose(found.attention, expected(network.attn), rtol=0, atol=1e-12)
    assert (found.grid.keys, found.extra) == (SIDES, network.attn.leading)
    (row,) = check_span(network, position_only=True, grid=SIDES).rows
    assert len(row.conditions[0].targets) == 9


def test_the_caller_s_inputs_say_the_grid():
    torch.manual_seed(0)
    network = Network(BiasedAttention()).eval()
    found = by_position_of(network, inputs=torch.randn(2, 3, 6, 8))
    assert torch.allclose(found.attention, expected(network.attn), rtol=0, atol=1e-12)
    assert found.grid.keys == SIDES


def test_tokens_alone_stand_on_the_grid():
    torch.manual_seed(0)
    layer = BiasedAttention().eval()
    found = by_position_of(layer, SIDES)
    assert torch.allclose(found.attention, expected(layer), rtol=0, atol=1e-12)


class Placed(Network):
    """Positions are added to the patches, and the layer of torch sees no other."""

    def __init__(self):
        super().__init__(BiasedAttention())
        self.attn, self.later = (nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.positions = nn.Parameter(torch.randn(len(CELLS), WIDTH))

    def forward(self, image):
        tokens = self.patch(image).flatten(2).mT + self.positions
        tokens = tokens + self.attn(tokens, tokens, tokens, need_weights=False)[0]
        return self.later(tokens, tokens, tokens)[0]


def test_absolute_positions_are_what_the_first_layer_makes_of_them_without_patches():
    torch.manual_seed(0)
    network = Placed().eval()
    first, later = ask_attention(network, grid=SIDES, position_only=True).reads()
    query, key, _ = F.linear(network.positions, network.attn.in_proj_weight, network.attn.in_proj_bias).chunk(3, -1)
    query, key = (each.detach().double().unflatten(-1, (HEADS, -1)).transpose(0, 1) for each in (query, key))
    weights = (query @ key.mT / 2).softmax(-1)
    assert torch.allclose(first.attention.attention, weights, rtol=0, atol=1e-6)
    assert first.attention.how == by_position.ABSOLUTE
    assert later.unread == by_position.AFTER_FIRST


@pytest.mark.parametrize(
    ("attention", "reason"), [(NoAttention, by_position.NO_TERM), (ScaledAttention, by_position.DEPENDS)]
)
def test_attention_without_positions_alone_has_a_reason(attention, reason):
    torch.manual_seed(0)
    assert by_position_of(Network(attention()).eval(), SIDES) == Unread(reason)


@pytest.mark.parametrize("grid", [None, (5, 5)])
def test_a_network_whose_size_nothing_tells_says_what_to_pass(grid):
    found = by_position_of(BiasedAttention().eval(), grid)
    assert found.reason.startswith("no input is known on which BiasedAttention runs")


def test_products_of_content_that_stay_are_seen(monkeypatch):
    """Planted: no product is held at zero."""
    changed = by_position.changed
    monkeypatch.setattr(by_position, "changed", lambda first, second: changed(first, first))
    assert by_position_of(Network(BiasedAttention()).eval(), SIDES) == Unread(by_position.DEPENDS)
