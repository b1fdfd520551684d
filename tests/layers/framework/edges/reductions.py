"""Smaller layers are as near as their certificate says."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn import convert
from conv2attn.errors import UsageError
from conv2attn.layers.framework import compare, reduce
from conv2attn.layers.theorem import read_convolution
from conv2attn.theory.basis import (
    Chebyshev,
    Graph,
    Weights,
    adjacency,
    as_basis,
    as_matrix,
    basis_of,
)
from conv2attn.verdicts import Strength, Verdict

SEEDS = st.integers(0, 2**16)
EDGES = torch.tensor([[0, 1, 1, 2, 3, 3], [1, 0, 2, 1, 3, 0]])


def worst_difference(first, second, sides):
    """The largest difference that any input within [-1, 1] makes: every output is driven by the signs of its row."""
    rows = []
    for basis in (first, second):
        taps = basis.weights.to(torch.float64).dense()
        rows.append(torch.einsum("toi,tqk->oqik", taps, as_matrix(basis.mixing, sides)).flatten(0, 1).flatten(1))
    return (rows[0] - rows[1]).abs().sum(1).max().item()


@given(st.sampled_from(["rank", "terms"]), st.sampled_from([0.0, 0.1, 0.5, 2.0]), st.integers(1, 2), SEEDS)
def test_the_certified_error_holds_and_is_nearly_met(kind, share, groups, seed):
    torch.manual_seed(seed)
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=groups)
    basis = as_basis(conv)
    whole = basis.weights.taps().detach().abs().sum((0, 2)).max().item()
    found = reduce(basis, share * whole, kind)
    assert found.error <= share * whole
    worst = worst_difference(basis, found.basis, (3, 4))
    assert worst <= found.error
    assert found.error <= worst * (1 + 1e-9) + 1e-12
    if share == 0:
        assert found.size == {"rank": 4 // groups, "terms": 9}[kind]
    if share == 2:
        assert found.size == 1


def test_a_wrong_factorisation_gets_no_wrong_certificate(monkeypatch):
    """Planted: singular vectors that are half too long. The error is that of the factors, whatever made them."""
    basis, right = as_basis(read_convolution(nn.Conv2d(4, 6, 3))), torch.linalg.svd
    monkeypatch.setattr("torch.linalg.svd", lambda *a, **k: (lambda u, s, v: (u * 1.5, s, v))(*right(*a, **k)))
    assert reduce(basis, 1e-6).error == 0  # no rank is near enough, so the layer stays as it is
    found = reduce(basis, 100.0)
    assert 0.1 < worst_difference(basis, found.basis, (5, 6)) <= found.error


def test_families_without_known_rows_need_sides():
    family = Chebyshev(adjacency(Graph(EDGES, 5)), 2)
    basis = basis_of(family, Weights(None, torch.randn(3, 4, 4)), 1)
    for kind in ("rank", "terms"):
        found = reduce(basis, 10.0, kind, (5,))
        assert worst_difference(basis, found.basis, (5,)) <= found.error <= 10


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("d_in", [4, 12])
def test_a_convolution_converts_to_fewer_or_narrower_heads_within_a_bound(groups, d_in):
    torch.manual_seed(0)
    conv = nn.Conv2d(d_in, 8, 3, padding=1, stride=2, groups=groups).double()
    matrices = conv.weight.data.flatten(2)
    flat = torch.randn(8, 1, 9).double() * torch.randn(1, d_in // groups, 9).double()
    for name, weight in (("narrow", flat), ("sparse", matrices * torch.tensor([0, 0, 0, 0, 1, 1e-3, 0, 1, 0]))):
        conv.weight.data = weight.reshape(conv.weight.shape)
        whole = convert(conv)
        layer = convert(conv, max_error=0.05, alpha=1024)
        assert sum(p.numel() for p in layer.parameters()) < sum(p.numel() for p in whole.parameters())
        assert (layer.heads, layer.d_head) == ((9, groups) if name == "narrow" else (2, min(d_in, 8)))
        found = compare(as_basis(layer), as_basis(conv), (5, 6), 0.05)
        assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.BOUNDED)
        if name == "sparse":
            assert compare(as_basis(layer), as_basis(conv), (5, 6), found.floor / 2).verdict is Verdict.REFUTED
        image = torch.rand(2, d_in, 9, 8).double() * 2 - 1
        assert (layer(image) - conv(image)).abs().max() <= 0.05
    assert all(p.requires_grad for name, p in layer.named_parameters() if not name.startswith("encoding"))


def test_no_error_allowed_is_the_convolution_itself_and_every_layer_of_a_network_has_its_own():
    conv = nn.Conv2d(3, 4, 3)
    plain, layer = convert(conv), convert(conv, max_error=0.0)
    assert torch.equal(layer(torch.ones(1, 3, 5, 5)), plain(torch.ones(1, 3, 5, 5)))
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
    reduced = convert(network, max_error=1.0)
    for before, after in zip(network[::2], reduced[::2], strict=True):
        assert after.weights.numbers < before.weight.numel()
        assert compare(as_basis(after), as_basis(before), (4, 4), 1.0).verdict is Verdict.HOLDS
    for options in ({"max_error": math.nan}, {"max_error": 0.1, "d_head": 3}):
        with pytest.raises(UsageError, match=r"C2A00[14] max_error="):
            convert(conv, **options)
