"""Dropout of attention weights: by the masks that the generator draws, in training alone."""

import pytest
import torch
from layers.attention.edges.equations import layer_with
from torch.nn import functional as F

from conv2attn.layers.attention.engines.channels import project
from conv2attn.testing import assert_same_output

IMAGE = torch.randn(2, 4, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("terms", ["vr", "qk+qr"])
def test_weights_are_dropped_in_training_alone(terms):
    layer, plain = (layer_with(terms=terms, dropout=p) for p in (0.4, 0.0))
    assert_same_output(layer.eval()(IMAGE), plain.eval()(IMAGE))
    layer.train()
    assert layer.which_engine(IMAGE) == "dense"
    torch.manual_seed(3)
    result = layer(IMAGE)
    torch.manual_seed(3)
    attention, keys = F.dropout(layer.attention(IMAGE), 0.4), layer.image_padding.pad(IMAGE).flatten(2)
    mixed = torch.einsum("bck,bhqk->bchq", keys, attention.expand(2, -1, -1, -1))
    assert_same_output(result.flatten(2), project(mixed, layer.weights, False), 1e-12)
    assert not torch.equal(result, layer(IMAGE))


def test_chunks_draw_their_masks_again_in_the_backward_pass():
    """Planted by not keeping the state of the generator: the gradient is then not that of the output."""
    layer = layer_with(dropout=0.5).train()
    layer.memory_limit = 20_000

    def output(center):
        layer.encoding.assign(center=center)
        torch.manual_seed(4)
        return torch.func.functional_call(layer, {"encoding.center": center}, (IMAGE,))

    assert torch.autograd.gradcheck(output, layer.encoding.center.clone().requires_grad_())
