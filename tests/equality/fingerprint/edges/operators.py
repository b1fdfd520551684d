"""Operators of torch against the same written by hand, and against the same with one change planted."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from equality.fingerprint import whole_rows

from conv2attn.equality.fingerprint import identify

T = torch.tensor
IMAGES = torch.rand(2, 4, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
norm = torch.linalg.vector_norm


def positive(x):
    return x.square() + 1


def by_windows(x):
    rows = x.reshape(2, 4, 3, 2, 6)
    return torch.stack([rows[..., a : a + 2].amax((3, 4)) for a in (0, 1, 3, 4)], 3)


def local_norm(beta):
    def network(x):
        squares = F.pad(x.square(), (0, 0, 0, 0, 1, 1))
        mean = (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]) / 3
        return x / (mean * 0.5 + 2.0) ** beta

    return network


def grouped(order, causal=False, mask=None):
    """Two heads of keys and values for four of queries."""

    def network(x):
        keys, values = (each[:, order] for each in (x[:, :2], x[:, 2:]))
        scores = x @ keys.mT * (1 / math.sqrt(6))
        if causal:
            scores = scores.masked_fill(~torch.ones(6, 6).tril().bool(), -math.inf)
        return (scores if mask is None else scores + mask).softmax(-1) @ values

    return network


def attention(x, **settings: Any):
    return F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], enable_gqa=True, **settings)


def of_the_batch(x):
    return (x - x.mean((0, 2, 3), True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()


SLOPES = T([0.1, 0.2, 0.3, 0.4]).double()
MASK = torch.eye(6, dtype=torch.float64)
BY_HAND = {
    "adaptive maximum": (
        lambda x: F.adaptive_max_pool2d(x, (3, 4)),
        by_windows,
        lambda x: F.adaptive_max_pool2d(x, (3, 5))[..., [0, 1, 2, 4]],
    ),
    "adaptive maximum, three axes": (
        lambda x: F.adaptive_max_pool3d(x, (2, 1, 1)),
        lambda x: x.reshape(2, 2, 2, 36).amax((2, 3))[..., None, None],
        lambda x: F.adaptive_max_pool3d(x.flip(1), (2, 1, 1)),
    ),
    "maximum, three axes": (
        lambda x: F.max_pool3d(x, 2),
        lambda x: x.reshape(2, 2, 2, 3, 2, 3, 2).amax((2, 4, 6)),
        lambda x: F.max_pool3d(x, (1, 2, 2))[:, ::2],
    ),
    "logsumexp": (
        lambda x: x.logsumexp((1, 2)),
        lambda x: x.exp().sum((1, 2)).log(),
        lambda x: (x + 1).logsumexp((1, 2)),
    ),
    "logsumexp of masked numbers": (
        lambda x: x.masked_fill(torch.eye(6).bool(), -math.inf).logsumexp(-1),
        lambda x: (x.exp() * (1 - MASK)).sum(-1).abs().log(),
        lambda x: x.logsumexp(-1),
    ),
    "local response norm": (
        lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 2.0),
        local_norm(0.75),
        local_norm(0.5),
    ),
    "norm of order 3": (
        lambda x: norm(x, 3, 1),
        lambda x: x.abs().pow(3).sum(1).pow(1 / 3),
        lambda x: x.abs().pow(3).sum(1).pow(0.333),
    ),
    "norm of order 3, without absolute values": (
        lambda x: norm(positive(x), 3, 1),
        lambda x: positive(x).pow(3).sum(1).pow(1 / 3),
        lambda x: norm(x, 3, 1),
    ),
    "norm of order 1": (lambda x: norm(x, 1), lambda x: x.abs().sum(), lambda x: x.sum()),
    "norm of order 2.5": (
        lambda x: norm(x, 2.5, (1, 2)),
        lambda x: x.abs().pow(2.5).sum((1, 2)).pow(1 / 2.5),
        lambda x: norm(x, 2.25, (1, 2)),
    ),
    "largest size": (lambda x: norm(x, math.inf, 1), lambda x: x.abs().amax(1), lambda x: x.amax(1)),
    "smallest size": (lambda x: norm(x, -math.inf, 1), lambda x: x.abs().amin(1), lambda x: x.abs().amax(1)),
    "shared heads": (attention, grouped([0, 0, 1, 1]), grouped([0, 1, 0, 1])),
    "shared heads, causal": (
        lambda x: attention(x, is_causal=True),
        grouped([0, 0, 1, 1], causal=True),
        grouped([0, 0, 1, 1]),
    ),
    "shared heads, a mask": (
        lambda x: attention(x, attn_mask=MASK),
        grouped([0, 0, 1, 1], mask=MASK),
        grouped([0, 0, 1, 1], mask=-MASK),
    ),
    "shared heads, a mask of booleans": (
        lambda x: attention(x, attn_mask=MASK == 0),
        grouped([0, 0, 1, 1], mask=torch.zeros(6, 6).masked_fill(MASK > 0, -math.inf)),
        grouped([0, 0, 1, 1], mask=MASK),
    ),
    "maximum along an axis": (lambda x: x.max(1).values, lambda x: x.amax(1), lambda x: x.min(1).values),
    "statistics of each image": (
        lambda x: F.instance_norm(x),
        lambda x: (x - x.mean((2, 3), True)) / (x.var((2, 3), correction=0, keepdim=True) + 1e-5).sqrt(),
        lambda x: (x - x.mean((2, 3), True)) / (x.var((2, 3), correction=1, keepdim=True) + 1e-5).sqrt(),
    ),
    "statistics of a batch": (
        lambda x: F.batch_norm(x, None, None, training=True),
        of_the_batch,
        lambda x: F.instance_norm(x),
    ),
    "statistics of a batch, weighted": (
        lambda x: F.batch_norm(x, None, None, SLOPES, SLOPES.flip(0), training=True),
        lambda x: of_the_batch(x) * SLOPES[:, None, None] + SLOPES.flip(0)[:, None, None],
        lambda x: F.batch_norm(x, None, None, SLOPES.flip(0), SLOPES, training=True),
    ),
    "a gated half": (
        lambda x: F.glu(x, 1),
        lambda x: x[:, :2] * x[:, 2:].sigmoid(),
        lambda x: x[:, 2:] * x[:, :2].sigmoid(),
    ),
    "no NaN in a softmax": (
        lambda x: x.softmax(1).nan_to_num(0.0),
        lambda x: x.exp() / x.exp().sum(1, True),
        lambda x: x.softmax(2).nan_to_num(0.0),
    ),
    "a sigmoid": (
        torch.sigmoid,
        lambda x: 1 / (1 + torch.exp(-x)),
        lambda x: 1 / (1 + torch.exp(x)),
    ),
    "a sigmoid by tanh": (torch.sigmoid, lambda x: (1 + torch.tanh(x / 2)) / 2, lambda x: (1 + torch.tanh(x)) / 2),
    "tanh by a sigmoid": (torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1, lambda x: 2 * torch.sigmoid(x) - 1),
    "SiLU": (F.silu, lambda x: x / (1 + (-x).exp()), lambda x: x / (1 + (1 - x).exp())),
    "the logarithm of a sigmoid": (F.logsigmoid, lambda x: x.sigmoid().log(), lambda x: x.tanh().log()),
    "GELU by tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.0447 * x**3))),
    ),
    "mish": (
        F.mish,
        lambda x: x * torch.tanh(torch.log1p(x.exp())),
        lambda x: x * torch.tanh(F.softplus(x)),  # which is x itself beyond 20
    ),
    "parts of an axis": (
        lambda x: torch.unsafe_split(x, 2, 1)[1] * 1,
        lambda x: x[:, 2:] * 1,
        lambda x: torch.unsafe_split(x, 2, 1)[0] * 1,
    ),
    "a slope below zero": (
        lambda x: F.prelu(x, SLOPES),
        lambda x: x.relu() + SLOPES[:, None, None] * x.clamp(max=0),
        lambda x: x.relu() + T([0.1, 0.2, 0.4, 0.3]).double()[:, None, None] * x.clamp(max=0),
    ),
}
"""An operator, the same by hand, and another function."""
CASES = BY_HAND | whole_rows.CASES


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_what_it_is_by_hand_and_no_other_function(name):
    first, second, planted = CASES[name]
    found = identify(first, second, IMAGES - 0.5)
    assert (found.reason, found.equal) == ("", True)
    assert identify(first, planted, IMAGES - 0.5).equal is False


CONDITIONS = {
    "nan that a sum leaves out": lambda x: x.log().nansum(1),
    "the logarithm of nothing": lambda x: torch.full((6,), -math.inf).where(torch.ones(6).bool(), x).logsumexp(-1),
    "a negative power of what may be zero": lambda x: x.square() ** -1,
    "a pole where no window reaches": lambda x: 1 / F.fold(F.unfold(x.exp(), 1, stride=2), (6, 6), 1, stride=2),
    "a pole above a diagonal": lambda x: 1 / x.exp().tril(),
    "a power of zero": lambda x: x**0,
    "places that depend on the input": lambda x: x.index_add(1, (x[0, :1, 0, 0] > 0).long(), x[:, :1]),
    "a product of what may be infinite": lambda x: x.log().cumprod(1),
    "how many are not zero": lambda x: norm(x, 0, 1),
    "NaN that becomes a number": lambda x: (x - 1).log().nan_to_num(),
    "an order of what may be infinite": lambda x: (x - 1).log().sort(-1).values,
    "the logarithm of an empty sum": lambda x: x[:0].logsumexp(0),
    "an empty mean": lambda x: x[:0].mean(0),
    "a pool of minus infinity": lambda x: F.max_pool2d(x.masked_fill(MASK > 0, -math.inf), 2),
    "a causal mask where the scale turns scores around": lambda x: F.scaled_dot_product_attention(
        x, x, x, is_causal=True, scale=-1.0
    ),
    "statistics that change": lambda x: F.batch_norm(x, torch.zeros(4).double(), torch.ones(4).double(), training=True),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_no_rule_beyond_its_condition(name):
    assert identify(CONDITIONS[name], CONDITIONS[name], IMAGES).equal is None


def test_a_root_of_what_may_be_negative_is_not_taken_for_a_number():
    assert identify(lambda x: 0 * x**1.5, lambda x: 0 * x, IMAGES).equal is False
    assert identify(lambda x: 0 * x.abs() ** 1.5, lambda x: 0 * x, IMAGES).equal is True


def test_a_norm_in_float32_has_the_exponent_in_float64():
    """`pow` rounds its exponent to float32: of 1e36, both roots differ by 8e-7."""
    images = IMAGES.float()
    assert identify(lambda x: norm(x, 3, 1), lambda x: x.abs().pow(3).sum(1).pow(1 / 3), images).equal is False
    assert identify(lambda x: norm(x, 4, 1), lambda x: x.pow(4).sum(1).pow(1 / 4), images).equal is True
