"""A layer that is said to attend by the name of its class, and that no run shows attending."""

import torch
from torch import nn

import conv2attn
from conv2attn.verdicts import Strength, Verdict


class ToyAttention(nn.Module):
    """It hands its tokens on."""

    def __init__(self):
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(1))

    def forward(self, tokens):
        return tokens


def test_a_layer_that_no_run_shows_is_undecided_and_named():
    span = conv2attn.check_span(nn.Sequential(ToyAttention()), position_only=True, grid=(3, 4))
    assert (span.verdict, [row.name for row in span.rows]) == (Verdict.UNDECIDED, ["0"])
    assert "not read" in span.to_text(verbose=True)
    assert not any(strength.value in span.to_text() for strength in Strength)
