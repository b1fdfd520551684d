"""Networks of random layers against the same written by hand: 80 are identified, 80 with a planted change are not."""

import random

import pytest
import torch
import torch.nn.functional as F

from conv2attn.equality.fingerprint import identify

IMAGES = torch.rand(1, 4, 6, 6, generator=torch.Generator().manual_seed(1))
EACH = 20


def weights(source, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(source.randrange(2**40)))


def changed(source, weight):
    """The weight with one number changed."""
    weight = weight.clone()
    weight.view(-1)[source.randrange(weight.numel())] += 2.0**-10
    return weight


def convolution(source, change):
    weight, bias = weights(source, 4, 4, 3, 3), weights(source, 4)
    theirs = changed(source, weight) if change else weight

    def by_hand(x):
        return (theirs.flatten(1) @ F.unfold(x, 3, padding=1) + bias[:, None]).view(1, 4, 6, 6)

    return lambda x: F.conv2d(x, weight, bias, padding=1), by_hand


def pointwise(source, change):
    weight, bias = weights(source, 4, 4), weights(source, 4)
    theirs = changed(source, bias) if change else bias
    return (
        lambda x: F.conv2d(x, weight[:, :, None, None], bias),
        lambda x: F.linear(x.movedim(1, -1), weight, theirs).movedim(-1, 1),
    )


def grouped(source, change):
    weight = weights(source, 4, 2, 3, 3)
    order = (1, 0) if change else (0, 1)

    def by_hand(x):
        parts = [F.conv2d(a, w, padding=1) for a, w in zip(x.chunk(2, 1), weight.chunk(2), strict=True)]
        return torch.cat([parts[i] for i in order], 1)

    return lambda x: F.conv2d(x, weight, padding=1, groups=2), by_hand


def depthwise(source, change):
    weight = weights(source, 4, 1, 3, 3)
    theirs = changed(source, weight) if change else weight

    def by_hand(x):
        padded = F.pad(x, (1, 1, 1, 1))
        taps = [(i, j) for i in range(3) for j in range(3)]
        return sum(padded[..., i : i + 6, j : j + 6] * theirs[:, 0, i, j, None, None] for i, j in taps)

    return lambda x: F.conv2d(x, weight, padding=1, groups=4), by_hand


def layer_norm(source, change):
    weight = weights(source, 4)
    correction = int(change)

    def by_hand(x):
        tokens = x.movedim(1, -1)
        variance = tokens.var(-1, keepdim=True, correction=correction)
        return ((tokens - tokens.mean(-1, True)) / (variance + 1e-5).sqrt() * weight).movedim(-1, 1)

    return lambda x: F.layer_norm(x.movedim(1, -1), (4,), weight).movedim(-1, 1), by_hand


def gelu(source, change):
    factor = 0.7071 if change else 0.70710678118654752440
    return F.gelu, lambda x: x * 0.5 * (1 + torch.erf(x * factor))


def silu(source, change):
    return F.silu, lambda x: x * torch.sigmoid(x * (1.0 + 2**-10 if change else 1))


def rectified(source, change):
    return F.relu, lambda x: x.clamp(min=2.0**-10 if change else 0)


def attention(source, change):
    scale = 0.5 + change * 2.0**-10

    def by_torch(x):
        tokens = x.flatten(2).mT
        return F.scaled_dot_product_attention(tokens, tokens, tokens).mT.reshape(x.shape)

    def by_hand(x):
        tokens = x.flatten(2).mT
        return ((tokens @ tokens.mT * scale).softmax(-1) @ tokens).mT.reshape(x.shape)

    return by_torch, by_hand


def pooled(source, change):
    width = 5 if change else 6
    return (
        lambda x: x * F.adaptive_avg_pool2d(x, 1),
        lambda x: x * x[..., :width].mean((2, 3), keepdim=True),
    )


def residual(source, change):
    return lambda x: x + x * x, lambda x: x * (x + (1 if not change else 1 + 2**-10))


LAYERS = [
    *(convolution, pointwise, grouped, depthwise, layer_norm, gelu, silu, rectified, attention, pooled, residual),
]
"""Batch norm is none of them: by hand its constants are rounded to float32, which is another formula."""


def pair(source, planted):
    """Two networks of one to four layers; one layer of the second is changed where an error is planted."""
    layers = [source.choice(LAYERS) for _ in range(source.randint(1, 4))]
    place = source.randrange(len(layers)) if planted else None
    forms = [layer(source, index == place) for index, layer in enumerate(layers)]

    def network(which):
        def run(x):
            for form in forms:
                x = form[which](x)
            return x

        return run

    return network(0), network(1)


@pytest.mark.rotated
@pytest.mark.parametrize("part", range(4))
def test_networks_written_by_hand_are_identified(part):
    source = random.Random(part)
    for _ in range(EACH):
        found = identify(*pair(source, planted=False), IMAGES)
        assert found.equal is True, found


@pytest.mark.rotated
@pytest.mark.parametrize("part", range(4))
def test_one_planted_change_is_never_identified(part):
    source = random.Random(100 + part)
    for _ in range(EACH):
        assert identify(*pair(source, planted=True), IMAGES).equal is not True
