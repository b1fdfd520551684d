"""Heads are no images, wherever batch and heads share an axis."""

import pytest
import torch
from attentions import OFFSETS, hard
from torch import nn

from conv2attn import capture, check_span
from conv2attn.networks.positions import Unread
from conv2attn.verdicts import Strength, Verdict

SCORES = 1e9 * torch.from_numpy(hard((4, 4), OFFSETS)).float()


class Flat(nn.Module):
    """Nine heads that are shifts, over (batch * heads, queries, keys)."""

    def forward(self, x):
        attention = torch.softmax(SCORES.to(x).repeat(len(x), 1, 1), -1)
        return (attention @ x.repeat_interleave(9, 0)).unflatten(0, (-1, 9)).sum(1)


class Named(Flat):
    """It says how many heads it has."""

    num_heads = 9


class Silent(nn.Module):
    """Nothing says what of the first axis is an image and what a head."""

    def forward(self, given):
        return torch.softmax(SCORES + 0 * given["x"].sum(), -1)


@pytest.mark.parametrize("network", [Flat(), Named()])
@pytest.mark.parametrize("batch", [1, 2])
def test_batch_and_heads_on_one_axis(network, batch):
    (seen,) = capture(network, torch.randn(batch, 16, 4)).values()
    assert seen.shape == (batch, 9, 16, 16)
    assert check_span(seen, grid=(4, 4)).strength is Strength.PROVED
    of_a_run = check_span(network, example_input=torch.randn(batch, 16, 4), grid=(4, 4))
    assert (of_a_run.verdict, of_a_run.strength) == (Verdict.HOLDS, Strength.SAMPLED)


def test_torch_s_own_layer_without_a_batch():
    layer = nn.MultiheadAttention(8, 4)
    tokens = torch.randn(9, 8)
    own = layer(tokens, tokens, tokens, average_attn_weights=False)[1]
    (seen,) = capture(layer.eval(), (tokens, tokens, tokens)).values()
    assert torch.equal(seen, own[None])


def test_where_nothing_tells_it_is_undecided_what_they_are():
    (seen,) = capture(Silent(), ({"x": torch.randn(16, 4)},)).values()
    assert isinstance(seen, Unread)
    assert "heads=" in seen.reason
    (seen,) = capture(Silent(), ({"x": torch.randn(16, 4)},), heads=9).values()
    assert seen.shape == (1, 9, 16, 16)


def test_a_softmax_over_two_axes_of_keys_is_seen():
    """Cordonnier's own code: scores (batch, rows, columns, heads, keys)."""

    class Plane(nn.Module):
        def forward(self, x):
            scores = SCORES.unflatten(1, (4, 4)).movedim(0, 2)[None].expand(len(x), -1, -1, -1, -1)
            return torch.softmax(scores, -1)

    (seen,) = capture(Plane(), torch.randn(2, 16, 4)).values()
    assert seen.shape == (2, 9, 16, 16)
    assert check_span(seen, grid=(4, 4)).verdict is Verdict.HOLDS
