"""Readings of a head weigh all of its queries; corners and sinks are no offsets."""

import numpy as np
import pytest
import torch

from conv2attn import convert
from conv2attn.span import head_offsets, profiles


def test_a_far_corner_that_one_query_reads_is_no_peak():
    heads = np.full((1, 49, 49), 0.5 / 49)
    heads[0, np.arange(49), np.maximum(np.arange(49) - 1, 0)] += 0.5
    heads[0, 0] = np.eye(49)[48]
    reading = head_offsets(heads, grid=(49,))[0]
    assert reading.peak == (-1,)
    assert reading.share == pytest.approx(heads[0, np.arange(1, 49), np.arange(48)].sum() / 49)


def test_a_sink_implements_no_offset():
    sink = np.zeros((1, 49, 49))
    sink[..., 48] = 1
    reading = head_offsets(sink)[0]
    assert reading.offset is None
    assert reading.share == pytest.approx(1 / 49)
    assert reading.center == pytest.approx((3, 3))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_loops(seed):
    heads = np.random.default_rng(seed).dirichlet(np.ones(12) / 3, (2, 12))
    places = [(i, j) for i in range(3) for j in range(4)]
    for head, reading in zip(heads, head_offsets(heads, grid=(3, 4)), strict=True):
        mass = {}
        for q, at in enumerate(places):
            for k, key in enumerate(places):
                away = (key[0] - at[0], key[1] - at[1])
                mass[away] = mass.get(away, 0) + head[q, k] / 12
        center = [sum(m * d[a] for d, m in mass.items()) for a in (0, 1)]
        spread = sum(m * sum((d[a] - center[a]) ** 2 for a in (0, 1)) for d, m in mass.items()) ** 0.5
        assert reading.peak == max(mass, key=mass.get)
        assert reading.share == pytest.approx(max(mass.values()))
        assert (*reading.center, reading.spread) == pytest.approx((*center, spread))


def test_attention_at_random_is_no_convolution():
    heads = np.random.default_rng(0).dirichlet(np.ones(36), (2, 36))
    assert profiles(heads[:1]).reads_as == "not relative to position"
    assert profiles(heads).reads_as == "not relative to position"
    layer = convert(torch.nn.Conv2d(1, 1, 3, padding=2))
    assert profiles(layer, grid=(6, 6)).reads_as == "one convolution"
