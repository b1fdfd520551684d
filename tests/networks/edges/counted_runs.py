"""How many runs of a network its reading takes: no run is made twice."""

from itertools import count

import pytest
import torch

from conv2attn.span import ask_attention
from studies.transformer import TransformerPlan, VisionTransformer


@pytest.mark.parametrize(("width", "most"), [(32, 19), (8, 25)])
def test_a_plain_encoder_is_read_in_a_bounded_number_of_runs(width, most):
    """Few channels are asked on a second image too."""
    torch.manual_seed(0)
    plan = TransformerPlan(side=16, patch=4, width=width, heads=2, layers=2, hidden=width)
    network, numbers = VisionTransformer(plan).eval(), count()

    def note(*_):
        next(numbers)

    network.register_forward_pre_hook(note)
    first, second = ask_attention(network, torch.randn(8, 1, 16, 16)).reads()
    assert next(numbers) <= most
    for each in (first, second):
        assert (each.tokens.sides, each.unplaced) == ((4, 4), "")
        assert each.replay < 1e-9
