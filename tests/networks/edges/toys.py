"""A family of models of another library is one rule in the table of front ends, and every reader finds it."""

import math

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.networks.positions import RELATIVE, PositionAttention, position_attention
from conv2attn.theory.basis import AttentionGrid, Sites
from conv2attn.verdicts import Strength, Verdict


class ToyAttention(nn.Module):
    """Heads that attend to the pixel on their right by a score that is all that they have: `sharpness`, a head each."""

    def __init__(self, *sharpness: float):
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(sharpness))

    def forward(self, tokens):
        return tokens


def toy(place):
    grid = AttentionGrid(place.grid, Sites.everywhere(2))
    right = (grid.squared_distance((0, 1)) == 0).double()
    sharpness = place.module.sharpness.detach().double()
    return PositionAttention(sharpness[:, None, None] * right, grid, torch.float32, "its table")


@pytest.fixture
def front_end(monkeypatch):
    monkeypatch.setitem(RELATIVE, f"{ToyAttention.__module__}.ToyAttention", toy)


def test_a_front_end_is_one_rule_of_its_table(front_end):
    network = nn.Sequential(nn.Identity(), ToyAttention(0.0, 2.0))
    attention = position_attention(network, (3, 4))["1"].attention
    assert attention[1, 0, 1].item() == pytest.approx(math.exp(2) / (math.exp(2) + 11))
    alone, both = (
        conv2attn.check_span(nn.Sequential(heads), position_only=True, grid=(3, 4), offsets=[(0, 1)])
        for heads in (ToyAttention(2.0), ToyAttention(0.0, 2.0))
    )
    assert (alone.verdict, both.verdict) == (Verdict.REFUTED, Verdict.HOLDS)
    assert "its table" in both.to_text(verbose=True)


def test_without_its_rule_the_layer_is_undecided_and_named():
    span = conv2attn.check_span(nn.Sequential(ToyAttention(1.0)), position_only=True, grid=(3, 4))
    assert (span.verdict, [row.name for row in span.rows]) == (Verdict.UNDECIDED, ["0"])
    assert "ToyAttention" in span.to_text(verbose=True)
    assert not any(strength.value in span.to_text() for strength in Strength)
