"""Positions alone: our own layers, kinds of layers by name, what cannot be read, and wrong calls."""

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.networks.positions import (
    PositionAttention,
    position_attention,
)
from conv2attn.networks.positions.from_parameters import forward_kind
from conv2attn.span import check_span, heads, rows_of
from conv2attn.theory.basis import AttentionGrid, Sites
from conv2attn.theory.bounds import gamma
from conv2attn.verdicts import Strength, Verdict

UNIT = 2.0**-53


def layer_with_content(padding=None):
    """Three heads on a plane that read positions and content in every way."""
    torch.manual_seed(0)
    parts = {"terms": "qk+qr+uk+vr", "d_key": 8, "padding": padding}
    return MultiHeadSelfAttention(2, 2, Encoding.of("learned", 3, (5, 6), 4), **parts).double()


def of_module(name, module="convit", **children):
    """A module of a class with this name that is said to come from `module`."""
    forward = {"forward": lambda self, x: x, "__module__": module}
    made = type(name, (nn.Module,), forward)()
    for key, value in children.items():
        setattr(made, key, value)
    return made


def gated(side, heads=2):
    """A GPSA as in the authors' own code, which keeps no grid, in a network that does."""
    parts = {"pos_proj": nn.Linear(3, heads), "gating_param": nn.Parameter(torch.zeros(heads))}
    network = nn.Module()
    network.patch_embed = of_module("PatchEmbed", num_patches=side**2)
    network.blocks = nn.ModuleList([of_module("GPSA", **parts)])
    return network


def test_a_layer_that_reads_content_does_by_position_what_it_does_in_an_image_of_zeros():
    layer = layer_with_content()
    found = position_attention(nn.Sequential(layer), (3, 4))["0"]
    own = layer.attention(torch.zeros(1, 2, 3, 4).double())[0]
    assert found.attention.shape == own.shape == (3, 12, 12)
    assert (found.attention - own).abs().max() <= 8 * gamma(64, UNIT)
    assert (found.attention.flip(0) - own).abs().max() > 0.01
    assert "content set to zero" in found.how
    other = layer.attention(torch.randn(1, 2, 3, 4).double())[0]
    assert (found.attention - other).abs().max() > 0.01


def test_padded_keys_are_those_of_the_layer():
    layer = layer_with_content(conv2attn.convert(nn.Conv2d(1, 1, 3, padding=1)).image_padding)
    report = check_span(layer, position_only=True, grid=(3, 4))
    assert [row.grid for row in report.rows] == [(5, 6)]
    with pytest.raises(UsageError, match=r"C2A502.*ask for positions alone"):
        check_span(layer, grid=(3, 4))


def test_a_layer_that_reads_no_content_stands_for_itself():
    network = nn.Sequential(conv2attn.convert(nn.Conv2d(1, 2, 3, padding=1)), nn.ReLU())
    assert position_attention(network) == {"0": network[0]}
    report = check_span(network, position_only=True, grid=(4, 5))
    assert (report.verdict, report.strength, report.rows[0].name) == (Verdict.HOLDS, Strength.PROVED, "0")
    assert "0: from parameters, positions alone" in report.to_text()


def test_gates_and_offsets_of_a_layer_known_by_name():
    network = gated(4)
    with torch.no_grad():
        network.blocks[0].pos_proj.weight.copy_(torch.tensor([[0.0, 2.0, -1.0], [-4.0, 0.0, -1.0]]) * 40)
        network.blocks[0].gating_param.copy_(torch.tensor([0.0, math.log(3)]))
    found = position_attention(network)["blocks.0"]
    assert [head.peak for head in heads(found).layers[0].heads] == [(1, 0), (0, -2)]
    assert found.notes[0].startswith("gates 0.500 0.750:")
    alone = position_attention(network.blocks[0], (3, 3))["(root)"]
    assert alone.grid.keys == (3, 3)


def test_the_doubt_of_gated_positions_bounds_what_rounding_did_to_the_scores():
    torch.manual_seed(0)
    network = gated(4).double()
    layer = network.blocks[0]
    nn.init.normal_(layer.pos_proj.weight)
    found = position_attention(network)["blocks.0"]
    held = (layer.pos_proj.weight.flatten(), layer.pos_proj.bias)
    weights, bias = ([*map(Fraction, each.tolist())] for each in held)
    worst = Fraction(0)
    for query, key in product(product(range(4), repeat=2), repeat=2):
        rows, columns = (k - q for q, k in zip(query, key, strict=True))
        for head in range(2):
            parts = zip(weights[3 * head : 3 * head + 3], (columns, rows, rows**2 + columns**2), strict=True)
            score = bias[head] + sum(w * x for w, x in parts)
            at = found.scores[head, 4 * query[0] + query[1], 4 * key[0] + key[1]]
            worst = max(worst, abs(score - Fraction(float(at))))
    assert 0 < worst <= found.uncertainty < 1e-13


def test_what_attends_unknown_is_named_and_not_passed_over():
    network = nn.Sequential(nn.MultiheadAttention(4, 2), gated(3))
    report = check_span(network, position_only=True)
    assert [(row.name, row.verdict) for row in report.rows] == [
        ("0", Verdict.UNDECIDED),
        ("1.blocks.0", Verdict.REFUTED),
    ]
    assert "0, interior: not read: no input is known on which Sequential runs" in report.to_text()
    assert "undecided" in report.to_markdown()
    assert '"verdict": "undecided"' in report.to_json()
    nothing = check_span(network[0], position_only=True)
    assert (nothing.verdict, nothing.exit_code) == (Verdict.UNDECIDED, 3)
    assert "nothing was checked" in nothing.to_text()


def test_a_forward_of_its_own_is_another_kind():
    layer = gated(3).blocks[0]
    assert position_attention(layer, (3, 3))
    derived = type("Derived", (type(layer),), {"__module__": "mine"})
    changed = type("GPSA", (type(layer),), {"__module__": "mine", "forward": lambda self, x: 2 * x})
    assert forward_kind(derived()) == "convit.GPSA"
    assert forward_kind(changed()) == "mine.GPSA"
    layer.forward = lambda x: x
    assert not position_attention(layer, (3, 3))


def test_uncertainty_grows_with_what_rounding_did_to_the_scores():
    scores, grid = torch.zeros(1, 4, 4).double(), AttentionGrid((2, 2), Sites.everywhere(2))
    layers = [PositionAttention(scores, grid, torch.float64, "", doubt) for doubt in (0.0, 50 * UNIT)]
    assert [rows_of("layer", layer, None).ulps for layer in layers] == [4, 104]
