"""How many runs of a network its reading takes: no run is made twice."""

from itertools import count

import pytest
import torch
from torch import nn

from conv2attn.span import ask_attention


class Layer(nn.Module):
    """Two heads of so many channels, with a residual."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.proj = nn.Linear(2 * width, 6 * width), nn.Linear(2 * width, 2 * width)

    def forward(self, tokens):
        query, key, value = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in self.qkv(tokens).chunk(3, -1))
        return tokens + self.proj(((query @ key.mT / 2).softmax(-1) @ value).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """Patches of 4x4, a class token, positions, and two layers."""

    def __init__(self, width):
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, 2 * width, 4, 4), nn.Sequential(Layer(width), Layer(width))
        self.first, self.positions = (nn.Parameter(torch.randn(*each, 2 * width)) for each in ((1, 1), (17,)))

    def forward(self, image):
        tokens = self.patch(image).flatten(2).mT
        return self.blocks(torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1) + self.positions)


@pytest.mark.parametrize(("width", "most"), [(16, 20), (4, 27)])
def test_a_plain_encoder_is_read_in_a_bounded_number_of_runs(width, most):
    """Few channels are asked on a second image too."""
    torch.manual_seed(0)
    network, numbers = Encoder(width).eval(), count()

    def note(*_):
        next(numbers)

    network.register_forward_pre_hook(note)
    first, second = ask_attention(network, torch.randn(8, 3, 16, 16)).reads()
    assert next(numbers) <= most
    for each in (first, second):
        assert (each.tokens.sides, each.tokens.leading, each.unplaced) == ((4, 4), 1, "")
        assert each.replay < 1e-9
