"""Which engine `auto` takes for soft heads: the measured crossover between all pairs and one axis after the other."""

import pytest
import torch

from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention


@pytest.mark.parametrize(
    ("channels", "side", "batch", "expected"),
    [
        (400, 8, 4, "dense"),
        (400, 16, 4, "separable"),
        (64, 7, 1, "dense"),
        (64, 14, 1, "separable"),
        (16, 8, 8, "dense"),
    ],
)
def test_auto_takes_the_engine_that_was_measured_to_be_faster(channels, side, batch, expected):
    layer = MultiHeadSelfAttention(channels, channels, Encoding.of("quadratic", torch.full((9, 2), 0.3), 1.0))
    assert layer.which_engine(torch.empty(batch, channels, side, side)) == expected
