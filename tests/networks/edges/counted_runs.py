"""How many runs of a network its reading takes: no run is made twice."""

from itertools import count

import torch
from torch import nn

from conv2attn.span import ask_attention

MOST = 25


class Layer(nn.Module):
    """Two heads, with a residual."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, tokens):
        query, key, value = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in self.qkv(tokens).chunk(3, -1))
        return tokens + self.proj(((query @ key.mT / 2).softmax(-1) @ value).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """Patches of 4x4, a class token, positions, and two layers."""

    def __init__(self):
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, 8, 4, 4), nn.Sequential(Layer(), Layer())
        self.first, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(17, 8))

    def forward(self, image):
        tokens = self.patch(image).flatten(2).mT
        return self.blocks(torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1) + self.positions)


def test_a_plain_encoder_is_read_in_a_bounded_number_of_runs():
    torch.manual_seed(0)
    network, numbers = Encoder().eval(), count()

    def note(*_):
        next(numbers)

    network.register_forward_pre_hook(note)
    first, second = ask_attention(network, torch.randn(8, 3, 16, 16)).reads()
    assert next(numbers) <= MOST
    for each in (first, second):
        assert (each.tokens.sides, each.tokens.leading, each.unplaced) == ((4, 4), 1, "")
        assert each.replay < 1e-9
