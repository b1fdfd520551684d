"""The paper's layer: Eqs. (1) to (8) against loops over Python numbers."""

import pytest
import torch
from layers.attention.formula import encoding_of
from torch import nn

from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import AttentionGrid, Padding, Sites


def layer_with(kind="quadratic", axes=2, dtype=torch.float64, **options):
    """A layer with real centres, three heads, and padding, strides and parameters of every size."""
    generator = torch.Generator().manual_seed(axes)
    centers = torch.randn(3, axes, generator=generator, dtype=torch.float64)
    encoding = Encoding.of(kind, centers, torch.tensor([0.1, 0.5, 1.5], dtype=torch.float64))
    padding = Padding((1, 0, 1)[:axes], (0, 2, 1)[:axes])
    sites = Sites((2, 1, 2)[:axes], (1, 0, 0)[:axes], (0, 1, 0)[:axes])
    torch.manual_seed(0)
    layer = MultiHeadSelfAttention(4, 2, encoding, padding=padding, sites=sites, dtype=dtype, **options)
    nn.init.normal_(layer.bias)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("kind", ["quadratic", "generalised", "learned", "sinusoidal"])
def test_without_vr_heads_have_no_vectors(kind):
    encoding = encoding_of(kind, 2, heads=2)
    by_head = {name for name, _ in encoding.named_parameters() if not name.startswith("tables")}
    MultiHeadSelfAttention(3, 4, encoding, terms="qk+qr")
    assert by_head
    assert not by_head & {name for name, _ in encoding.named_parameters()}


def test_the_enumerated_layer_follows_its_equations():
    """`r_delta = (t, t^2)`: its vectors meet queries too, where content meets positions."""
    layer = layer_with("enumerated", terms="qr+vr", d_key=5)
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    keys = layer.image_padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), layer.sites)
    asking = keys[layer.sites.view(grid.keys, (0, 0))].flatten(2)[0]
    operators, rows = layer.positions, grid.every_query()
    t = operators.enumeration(grid, rows)
    vectors = torch.stack([t, t * t], -1).double()
    scores = operators.scores(grid, rows, torch.float64)[0] + torch.einsum(
        "hdc,cq,hdp,qkp->hqk", layer.query, asking, layer.position_key, vectors
    )
    assert_same_output(layer.attention(image)[0], scores.softmax(-1), 1e-9)
