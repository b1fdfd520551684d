"""Every graph layer of torch_geometric is the basis that we read from it, on real graphs."""

from importlib.util import find_spec
from pathlib import Path

import networkx
import pytest
import torch
import torch_geometric.nn
from forks import run_apart
from scipy.io import loadmat
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, GATConv, GCNConv, RGCNConv, SGConv, TAGConv
from torch_geometric.utils import from_networkx

import conv2attn
from conv2attn.errors import Conv2AttnError, Conv2AttnWarning, UnsupportedError, UsageError
from conv2attn.layers.framework import from_torch
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    Graph,
    Weights,
    as_affine_map,
    as_basis,
    basis_of,
    evaluate,
    gcn,
    pattern_of,
)

ROUNDING = 1e-12
ROADS = Path(find_spec("pygsp").submodule_search_locations[0]) / "data" / "pointclouds" / "minnesota.mat"
CLUB = from_networkx(networkx.karate_club_graph())
D_IN, D_OUT = 5, 6

LINEAR = {
    "GCN": lambda: GCNConv(D_IN, D_OUT),
    "GCN, two loops a node": lambda: GCNConv(D_IN, D_OUT, improved=True),
    "GCN, no loops": lambda: GCNConv(D_IN, D_OUT, add_self_loops=False, bias=False),
    "GCN, sums": lambda: GCNConv(D_IN, D_OUT, normalize=False),
    "SGC": lambda: SGConv(D_IN, D_OUT, K=3),
    "TAG": lambda: TAGConv(D_IN, D_OUT, K=3),
    "TAG, sums": lambda: TAGConv(D_IN, D_OUT, K=0, normalize=False),
    "Chebyshev": lambda: ChebConv(D_IN, D_OUT, K=4),
    "Chebyshev, random walk": lambda: ChebConv(D_IN, D_OUT, K=3, normalization="rw"),
    "Chebyshev, not normalised": lambda: ChebConv(D_IN, D_OUT, K=2, normalization=None),
    "Chebyshev of order 0": lambda: ChebConv(D_IN, D_OUT, K=1),
}
RELATIONAL = {
    "free": {},
    "bases": {"num_bases": 2},
    "blocks": {"num_blocks": 1},
    "sums": {"aggr": "add"},
    "no root": {"root_weight": False, "bias": False},
}


def structures():
    """Zachary's club; one way of its ties, weighted, with equal edges, a loop and a stranger; and no tie at all."""
    edges = CLUB.edge_index
    plain = Graph(edges, 34)
    directed = torch.cat([edges[:, ::2], torch.tensor([[3, 7, 7], [3, 9, 9]])], 1)
    weighted = Graph(directed, 35, torch.rand(directed.shape[1], dtype=torch.float64) + 0.5)
    return {"club": plain, "directed, weighted": weighted, "without edges": Graph(edges[:, :0], 4)}


@pytest.fixture(autouse=True)
def _in_double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.rotated
@pytest.mark.parametrize("kind", structures())
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("d_out", [4, 6])
def test_linear_layers_are_their_basis_in_values_and_gradients(name, kind, d_out, monkeypatch):
    monkeypatch.setitem(globals(), "D_OUT", d_out)
    layer, graph = LINEAR[name](), structures()[kind]
    features = torch.randn(graph.nodes, D_IN, requires_grad=True)
    expected = layer(features, graph.edges, graph.weights)
    outputs = evaluate(as_basis(layer, graph), features.mT[None])[0].mT
    if name == "Chebyshev, not normalised" and kind == "without edges":
        assert outputs.isfinite().all()  # torch_geometric divides 0 by 0
        assert expected.isnan().all()
        return
    assert_same_output(outputs.detach(), expected.detach(), ROUNDING)
    inputs = [features, *layer.parameters()]
    gradients = [torch.autograd.grad(each.square().sum(), inputs) for each in (outputs, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        assert_same_output(ours, theirs, 1e-10)


@pytest.mark.rotated
@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (7, 1), (16, 16)])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_layers_of_other_sizes_are_their_basis(name, sizes, monkeypatch):
    monkeypatch.setitem(globals(), "D_IN", sizes[0])
    monkeypatch.setitem(globals(), "D_OUT", sizes[1])
    layer, graph = LINEAR[name](), structures()["directed, weighted"]
    features = torch.randn(graph.nodes, sizes[0])
    outputs = evaluate(as_basis(layer, graph), features.mT[None])[0].mT
    assert outputs.shape == (graph.nodes, sizes[1])
    assert_same_output(outputs.detach(), layer(features, graph.edges, graph.weights).detach(), ROUNDING)


@pytest.mark.parametrize("options", RELATIONAL.values(), ids=RELATIONAL)
def test_relational_layers_are_their_basis(options):
    graph = structures()["directed, weighted"]
    kinds = torch.arange(graph.edges.shape[1]) % 4
    layer = RGCNConv(D_IN, D_OUT, 5, **options)
    if layer.num_blocks is not None:
        layer = RGCNConv(6, 6, 5, num_blocks=3)
    features = torch.randn(35, layer.in_channels)
    expected = layer(features, graph.edges, kinds)
    outputs = evaluate(as_basis(layer, graph, kinds), features.mT[None])[0].mT
    assert_same_output(outputs.detach(), expected.detach(), ROUNDING)


@pytest.mark.parametrize("kind", structures())
@pytest.mark.parametrize("options", [{}, {"concat": False}, {"add_self_loops": False}, {"negative_slope": 0.5}])
def test_graph_attention_is_an_attention_convolution_and_a_basis_on_its_input(options, kind):
    layer, graph = GATConv(D_IN, D_OUT, heads=3, **options), structures()[kind]
    layer.bias.data.normal_()
    features = torch.randn(graph.nodes, D_IN)
    expected = layer(features, graph.edges)
    ours = from_torch(layer)
    outputs = ours(features.mT[None], mask=pattern_of(graph, layer.add_self_loops))[0].mT
    assert_same_output(outputs.detach(), expected.detach(), ROUNDING)
    assert_same_output(
        evaluate(as_basis(layer, graph, features), features.mT[None])[0].mT.detach(), expected.detach(), 1e-11
    )
    outputs.square().sum().backward()
    expected.square().sum().backward()
    assert_same_output(ours.value.grad.flatten(0, 1), layer.lin.weight.grad, 1e-9)
    assert_same_output(ours.mechanism.scored.scored.from_key.grad, layer.att_src.grad[0], 1e-9)
    assert_same_output(ours.mechanism.scored.scored.from_query.grad, layer.att_dst.grad[0], 1e-9)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_layers_are_their_basis_on_the_roads_of_minnesota(name):
    """A graph of 2,642 crossings, two of them apart from the others."""
    roads = torch.from_numpy(loadmat(ROADS)["A"].toarray()).nonzero().T.contiguous()
    graph, layer = Graph(roads, 2642), LINEAR[name]()
    assert roads.shape == (2, 6606)
    features = torch.randn(2642, D_IN)
    outputs = evaluate(as_basis(layer, graph), features.mT[None])[0].mT
    assert_same_output(outputs.detach(), layer(features, roads).detach(), ROUNDING)
    attention = GATConv(D_IN, D_OUT, heads=3)
    outputs = from_torch(attention)(features.mT[None], mask=pattern_of(graph))[0].mT
    assert_same_output(outputs.detach(), attention(features, roads).detach(), ROUNDING)


def test_another_graph_or_another_weight_changes_the_output():
    """Planted: an edge turned round, a weight moved, self-loops left out."""
    graph, layer = structures()["directed, weighted"], GCNConv(D_IN, D_OUT)
    image = torch.randn(35, D_IN).mT[None]
    right = evaluate(as_basis(layer, graph), image).detach()
    turned = graph.edges.clone()
    turned[:, 0] = turned[:, 0].flip(0)
    moved = graph.weights.clone()
    moved[5] *= 1.0001
    for other in (Graph(turned, 35, graph.weights), Graph(graph.edges, 35, moved)):
        with pytest.raises(AssertionError, match="output differs in"):
            assert_same_output(evaluate(as_basis(layer, other), image).detach(), right, ROUNDING)
    layer.add_self_loops = False
    with pytest.raises(AssertionError, match="output differs in"):
        assert_same_output(evaluate(as_basis(layer, graph), image).detach(), right, ROUNDING)


def test_options_that_are_not_read_are_refused():
    graph = structures()["club"]
    for layer in (GCNConv(2, 2, cached=True), GCNConv(2, 2, flow="target_to_source"), SGConv(2, 2, aggr="max")):
        with pytest.raises(UnsupportedError, match=r"C2A101 .* has options that are not read"):
            as_basis(layer, graph)
    for layer in (GATConv(2, 2, residual=True), GATConv(2, 2, edge_dim=1), GATConv((2, 2), 2)):
        with pytest.raises(UnsupportedError, match=r"C2A101 .* has options that are not read"):
            from_torch(layer)
    with pytest.raises(UnsupportedError, match="C2A122 a node has two loops"):
        as_basis(GCNConv(2, 2), Graph(torch.zeros(2, 2).long(), 1))


def test_a_layer_is_the_map_that_its_paper_writes():
    layer, graph = GCNConv(D_IN, D_OUT), structures()["club"]
    written = basis_of(gcn(graph), Weights(None, layer.lin.weight[None].detach().clone(), layer.bias), 1)
    for read, expected in zip(as_affine_map(as_basis(layer, graph), (34,)), as_affine_map(written, (34,)), strict=True):
        assert torch.equal(read, expected)


def test_a_graph_is_taken_in_every_form_that_torch_geometric_has():
    layer = GCNConv(D_IN, D_OUT).double()
    graph = Graph(CLUB.edge_index, CLUB.num_nodes, torch.rand(CLUB.edge_index.shape[1]))
    features = torch.randn(CLUB.num_nodes, D_IN, dtype=torch.float64)
    right = layer(features, CLUB.edge_index)
    data = Data(edge_index=graph.edges, edge_weight=graph.weights, num_nodes=graph.nodes)
    for graph_argument, expected in (
        (CLUB.edge_index, right),
        (CLUB, right),
        (data, layer(features, graph.edges, graph.weights)),
    ):
        assert_same_output(evaluate(as_basis(layer, graph_argument), features.mT[None])[0].mT, expected, ROUNDING)
    for graph_argument in (None, "graph", torch.ones(3)):
        with pytest.raises(Conv2AttnError, match=r"C2A006|C2A122"):
            as_basis(layer, graph_argument)
    with pytest.raises(UsageError, match="C2A006 a graph layer needs a graph"):
        as_basis(layer)


def test_graph_layers_are_read_without_another_import():
    code = (
        "import conv2attn, torch, torch_geometric.nn as nn;"
        "basis = conv2attn.as_basis(nn.SGConv(2, 3), torch.tensor([[0, 1], [1, 0]]));"
        "assert len(basis.weights.taps()) == 1"
    )
    assert run_apart(exec, code) == 0


UNREAD = {
    "GraphConv": (4, 4),
    "SAGEConv": (4, 4),
    "GINConv": (torch.nn.Linear(4, 4),),
    "APPNP": (3, 0.1),
    "SSGConv": (4, 4, 0.1),
    "MixHopConv": (4, 4),
    "GATv2Conv": (4, 4),
    "TransformerConv": (4, 4),
}


@pytest.mark.parametrize("name", UNREAD)
def test_layers_that_are_not_read_are_refused_and_named_on_the_page(name):
    layer = getattr(torch_geometric.nn, name)(*UNREAD[name])
    with pytest.raises(UnsupportedError, match=f"C2A101 {name} cannot be read"):
        as_basis(layer, torch.tensor([[0, 1], [1, 0]]))
    page = (Path(__file__).parents[2] / "docs" / "framework.md").read_text()
    assert name in page.partition("All other layers are not covered")[2].partition("## Certificates")[0]


def test_a_network_of_graph_convolutions_is_not_said_to_have_none():
    network = torch_geometric.nn.GCN(4, 8, 2)
    with pytest.warns(Conv2AttnWarning, match=r"C2A109 GCN has only graph convolutions \(GCNConv\)"):
        conv2attn.convert(network)
