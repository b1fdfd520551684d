"""Ways to write a softmax and its logarithm are one map but for rounding; what looks like one of them is another."""

import pytest
import torch
from equality.pairs import Net
from torch import nn

from conv2attn.equality.worlds import compare_sections


def attention(shares):
    """Attention whose scores become shares in some way."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        q, k, v = (nn.Linear(8, 8) for _ in range(3))
    return Net(lambda net, x: shares(net.q(x) @ net.k(x).mT) @ net.v(x), q=q, k=k, v=v)


def softmax(z):
    return z.softmax(-1)


def log_softmax(z):
    return z.log_softmax(-1)


def stabilised(z):
    powers = (z - z.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def written_to(z):
    logs = z.log_softmax(-1)
    return logs.add_(z.detach() * 0.01).exp()


SAME = {
    "normalised once more": (softmax, lambda z: z.softmax(-1) / z.softmax(-1).sum(-1, keepdim=True)),
    "maximum subtracted": (softmax, stabilised),
    "exp of log_softmax": (softmax, lambda z: z.log_softmax(-1).exp()),
    "exp of scores less logsumexp": (softmax, lambda z: (z - z.logsumexp(-1, keepdim=True)).exp()),
    "exp of a detached log_softmax": (softmax, lambda z: z.log_softmax(-1).detach().exp()),
    "log of softmax": (log_softmax, lambda z: z.softmax(-1).log()),
    "scores less logsumexp": (log_softmax, lambda z: z - z.logsumexp(-1, keepdim=True)),
}
OTHERS = {
    "along the other axis": (softmax, lambda z: z.log_softmax(-2).exp()),
    "of other scores": (softmax, lambda z: (1.01 * z - z.logsumexp(-1, keepdim=True)).exp()),
    "less the maximum alone": (softmax, lambda z: (z - z.amax(-1, keepdim=True)).exp()),
    "the maximum and logsumexp": (
        lambda z: (z - z.amax(-1, keepdim=True)).exp(),
        lambda z: (z - z.logsumexp(-1, keepdim=True)).exp(),
    ),
    "a logarithm that was written to": (softmax, written_to),
    "less the logarithm of another sum": (log_softmax, lambda z: z - z.abs().logsumexp(-1, keepdim=True)),
    "of both axes": (softmax, lambda z: (z - z.logsumexp((-2, -1), keepdim=True)).exp()),
}


TOKENS = (torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1)),)


@pytest.mark.parametrize("name", SAME)
def test_ways_to_write_a_softmax_are_one_map(name):
    answer = compare_sections(*map(attention, SAME[name]), TOKENS)
    assert answer.equal, answer.reason


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_like_a_softmax_is_another(name):
    assert not compare_sections(*map(attention, OTHERS[name]), TOKENS).equal


def heads(weights, scale=1.0):
    """Attention of several heads, fused or written out, which torch lays out otherwise in memory."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return Net(lambda net, x: net.heads(scale * x, x, x, need_weights=weights)[0], heads=layer).eval()


def test_fused_attention_is_the_attention_written_out():
    fused, written = heads(False), heads(True)
    for pair in ((fused, written), (written, fused), (fused, fused)):
        assert compare_sections(*pair, TOKENS).equal
    for wrong in (heads(True, scale=1.001), heads(False, scale=1.001)):
        assert compare_sections(fused, wrong, TOKENS).equal is False
