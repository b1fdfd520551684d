"""Attention with known answers, built from the mathematics."""

import numpy as np
import torch
from torch import nn

from conv2attn import MultiHeadSelfAttention
from conv2attn.layers.attention import Encoding

OFFSETS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
LINE = [(-1,), (0,), (1,)]
EVERY = ("per-query", "joint", "interior")
"""Conditions, of which the first decides."""


def hard(sides, offsets):
    """Unpadded heads that read the nearest key: (heads, queries, keys)."""
    keys = np.stack(np.meshgrid(*map(np.arange, sides), indexing="ij"), -1).reshape(-1, len(sides))
    attention = np.zeros((len(offsets), len(keys), len(keys)))
    for head, offset in enumerate(offsets):
        target = np.clip(keys + offset, 0, np.array(sides) - 1)
        attention[head, np.arange(len(keys)), np.ravel_multi_index(tuple(target.T), sides)] = 1
    return attention


def soft(sides, alpha, offsets=OFFSETS):
    """Heads at the given centres with a finite alpha, in float64."""
    encoding = Encoding.of("quadratic", torch.tensor(offsets, dtype=torch.float64), alpha)
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64)
    return layer.attention(sides=sides)[0].detach().numpy()


def mixture(heads, condition, seed=0):
    """A matrix of positive rows that sum to 1, with the identity's share such that its condition is about this."""
    blur = np.random.default_rng(seed).dirichlet(np.ones(heads))
    return (1 - 1 / condition) * blur + np.eye(heads) / condition


def mixed(attention, condition, seed=0):
    """Attention whose heads are positive mixtures of the given ones; the mixing that undoes it has this norm or so."""
    return np.tensordot(mixture(len(attention), condition, seed), attention, 1)


class GPSA(nn.Module):
    """Four gated heads whose positions are their parameters, as far as they are read."""

    def __init__(self):
        super().__init__()
        self.pos_proj, self.gating_param = nn.Linear(3, 4), nn.Parameter(torch.zeros(4))

    def forward(self, tokens):
        return tokens


def gated():
    """The network that --arch builds: a layer that can be read, and one that cannot."""
    GPSA.__module__ = "convit"
    return nn.Sequential(GPSA(), nn.MultiheadAttention(4, 2))
