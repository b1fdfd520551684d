"""The paper's layer: Eqs. (1) to (8) against loops over Python numbers."""

import pytest
import torch
from layers.attention.formula import encoding_of
from torch import nn

from conv2attn.errors import EngineError, HeadSizeError, UnsupportedError, UsageError
from conv2attn.layers.attention import ENGINES, Encoding, MultiHeadSelfAttention, from_plan, set_engine, to_plan
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import AttentionGrid, Padding, Sites

TERMS = ["vr", "qr", "qk", "uk", "qk+qr", "qk+vr", "qk+qr+uk", "qk+qr+uk+vr"]
ALL = "qk+qr+uk+vr"


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


@pytest.mark.parametrize("terms", TERMS[1:])
def test_content_is_left_to_the_dense_and_the_fused_engine(terms):
    layer = layer_with(terms=terms)
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    assert layer.which_engine(image) == "sdpa"
    for engine in set(ENGINES) - {"auto", "dense", "sdpa"}:
        with pytest.raises(EngineError, match=f"engine '{engine}' is not exact here: its attention depends on the con"):
            set_engine(layer, engine)(image)
    with pytest.raises(UsageError, match="C2A004 attention: pass an image, or sides where attention is position-only"):
        layer.attention(sides=(4, 3))


def test_attention_needs_an_image_or_sides():
    layer = layer_with()
    for arguments in ({}, {"image": torch.ones(1, 4, 4, 4), "sides": (4, 4)}):
        with pytest.raises(UsageError, match="C2A004 attention: pass an image, or sides"):
            layer.attention(**arguments)


def test_images_that_do_not_fit_are_refused():
    layer = layer_with()
    for shape in ((1, 3, 4, 4), (3, 4, 4), (4, 4), (1, 1, 4, 4, 4)):
        with pytest.raises(UsageError, match=r"C2A120 attention: an image .* is not \(batch, 4, 2 sides\)"):
            layer(torch.ones(shape, dtype=torch.float64))


WIDTHS = [
    ({"d_key": 2, "terms": "qr"}, "d_key=2 is less than d_position=3"),
    ({"d_head": 3, "groups": 2}, "d_head=3 is not a positive multiple of groups=2"),
    ({"d_head": 0}, "d_head=0 is not a positive multiple of groups=1"),
    ({"groups": 3}, "d_in=4 is not a positive multiple of groups=3"),
    ({"value": False, "d_head": 3}, "value is the identity, so d_head=3 must be d_in=4"),
    ({"output": False, "d_head": 3}, "output is the identity, so d_head=3 must be d_out=2"),
]


@pytest.mark.parametrize(("options", "message"), WIDTHS)
def test_widths_that_do_not_fit_are_refused(options, message):
    with pytest.raises(HeadSizeError, match=f"C2A105 {message}"):
        layer_with(**options)
    with pytest.raises(HeadSizeError, match="C2A105 value and output are both the identity"):
        MultiHeadSelfAttention(2, 2, Encoding.of("quadratic", [[0.0]], 1.0), value=False, output=False)


@pytest.mark.parametrize("terms", ["", "qk+qk", "qk, qr", "vq"])
def test_terms_are_four(terms):
    with pytest.raises(UsageError, match=r"C2A002 terms=.* is not a sum of qk, qr, uk and vr"):
        layer_with(terms=terms)


@pytest.mark.parametrize("kind", ["quadratic", "generalised", "learned", "sinusoidal"])
def test_without_vr_heads_have_no_vectors_and_survive_a_plan(kind):
    encoding = encoding_of(kind, 2, heads=2)
    by_head = {name for name, _ in encoding.named_parameters() if not name.startswith("tables")}
    layer = MultiHeadSelfAttention(3, 4, encoding, dtype=torch.float64, terms="qk+qr")
    assert by_head
    assert not by_head & {name for name, _ in encoding.named_parameters()}
    again = from_plan(to_plan(layer))
    again.load_state_dict(layer.state_dict(), assign=True)
    image = torch.randn(1, 3, 4, 3, dtype=torch.float64)
    assert torch.equal(again(image), layer(image))


def test_no_rule_reads_content_as_a_basis():
    from conv2attn.theory.basis import as_affine_map, as_basis

    with pytest.raises(UnsupportedError, match="C2A110"):
        as_affine_map(as_basis(layer_with(terms="qk+vr")), (4, 3))


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
