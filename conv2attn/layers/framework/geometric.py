"""Reads the graph layers of torch_geometric: importing this file registers them with `as_basis` and `from_torch`."""

from collections.abc import Callable
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv, GATConv, GCNConv, RGCNConv, SGConv, TAGConv

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.framework.attention_convolution import AttentionConvolution
from conv2attn.layers.framework.mechanisms import BiAffine
from conv2attn.layers.framework.torch_layers import from_torch
from conv2attn.theory.basis import (
    Basis,
    Composition,
    Concatenation,
    Graph,
    Powers,
    Shift,
    Sparse,
    Weights,
    adjacency,
    as_basis,
    basis_of,
    chebyshev,
    gcn,
    pattern_of,
    relations,
)


def as_graph(source: Any) -> Graph:
    """A `Graph` from a graph, an edge_index (its largest node is the last), or data of torch_geometric.

    Raises:
        UsageError: the source is not a graph (C2A006).
        GeometryError: edges, weights and nodes do not fit together (C2A122).
    """
    if isinstance(source, Graph):
        return source
    edges = source if isinstance(source, Tensor) else getattr(source, "edge_index", None)
    if not isinstance(edges, Tensor):
        reason = f"{type(source).__name__} is not a graph" if source is not None else "a graph layer needs a graph"
        raise UsageError(
            "C2A006", reason, "Pass a Graph, an edge_index, or data of torch_geometric: as_basis(layer, graph)."
        )
    nodes = None if source is edges else source.num_nodes
    return Graph(edges, int(edges.max()) + 1 if nodes is None else nodes, getattr(source, "edge_weight", None))


def graph_rule(rule: Callable[..., Basis]) -> Callable[..., Basis]:
    """Registers a rule for `as_basis` whose second argument is a graph, in any form that `as_graph` takes."""
    as_basis.register(
        get_type_hints(rule)["layer"], lambda layer, graph=None, *more: rule(layer, as_graph(graph), *more)
    )
    return rule


def require_plain(layer: Any, aggregation: str = "add", unsupported: bool = False) -> None:
    """Refuse layers whose flow, aggregation or cache differs from their paper."""
    unusual = layer.flow != "source_to_target" or layer.aggr != aggregation or getattr(layer, "cached", False)
    if unusual or unsupported:
        raise UnsupportedError(
            "C2A101",
            f"{layer} has options that are not read: flow, aggregation, cache or residual",
            "Build the layer with those options at their defaults.",
        )


def typed(graph: Graph, like: Tensor) -> Graph:
    """`graph` with weights of the layer's dtype."""
    return Graph(graph.edges, graph.nodes, graph.weight.to(like))


def with_loops(graph: Graph, loop: float) -> Sparse:
    """Kipf's normalisation of a graph with at most one loop per node, as torch_geometric keeps them."""
    # torch_geometric keeps one of several loops of a node, and a basis would add them up.
    loops = graph.edges[0][graph.edges[0] == graph.edges[1]]
    if len(loops.unique()) < len(loops):
        raise UnsupportedError(
            "C2A122", "a node has two loops, of which torch_geometric keeps one", "Remove one of both loops."
        )
    return gcn(graph, loop)


@graph_rule
def _(layer: GCNConv, graph: Graph) -> Basis:
    """`improved` loops have weight 2 only on weighted graphs, as in torch_geometric, and otherwise weight 1."""
    require_plain(layer)
    heavy = layer.improved and graph.weights is not None
    graph = typed(graph, layer.lin.weight)
    family = adjacency(graph)
    if layer.normalize:
        family = with_loops(graph, 2.0 if heavy else 1.0) if layer.add_self_loops else gcn(graph, None)
    return basis_of(family, Weights(None, layer.lin.weight[None], layer.bias), 1)


@graph_rule
def _(layer: SGConv, graph: Graph) -> Basis:
    require_plain(layer)
    graph = typed(graph, layer.lin.weight)
    step = with_loops(graph, 1.0) if layer.add_self_loops else gcn(graph, None)
    return basis_of(Composition((step,) * layer.K), Weights(None, layer.lin.weight[None], layer.lin.bias), 1)


@graph_rule
def _(layer: TAGConv, graph: Graph) -> Basis:
    require_plain(layer)
    taps = torch.stack([lin.weight for lin in layer.lins])
    graph = typed(graph, taps)
    step = gcn(graph, None) if layer.normalize else adjacency(graph)
    return basis_of(Powers(step, layer.K), Weights(None, taps, layer.bias), 1)


@graph_rule
def _(layer: ChebConv, graph: Graph) -> Basis:
    require_plain(layer)
    taps = torch.stack([lin.weight for lin in layer.lins])
    family = chebyshev(typed(graph, taps), len(taps) - 1, layer.normalization)
    return basis_of(family, Weights(None, taps, layer.bias), 1)


@graph_rule
def _(layer: RGCNConv, graph: Graph, kinds: Tensor) -> Basis:
    require_plain(layer, layer.aggr if layer.aggr in ("add", "mean") else "add")
    graph = Graph(graph.edges, graph.nodes, torch.ones(graph.edges.shape[1]).to(layer.weight))
    family: Any = relations(graph, kinds, layer.num_relations, layer.aggr == "mean")
    taps = layer.weight
    if layer.num_bases is not None:
        taps = torch.einsum("rb,bio->rio", layer.comp, taps)
    # Blocks on the diagonal of each relation's matrix, stored without the zeros around them.
    if layer.num_blocks is not None:
        taps = torch.stack([torch.block_diag(*blocks) for blocks in taps])
    if layer.root is not None:
        family, taps = Concatenation((family, Shift(((0,),)))), torch.cat([taps, layer.root[None]])
    return basis_of(family, Weights(None, taps.mT, layer.bias), 1)


@graph_rule
def _(layer: GATConv, graph: Graph, features: Tensor) -> Basis:
    """The layer at these features (nodes, channels), on which its attention depends."""
    return from_torch(layer).basis(features.mT[None], mask=pattern_of(graph, layer.add_self_loops))


@from_torch.register
def _(layer: GATConv) -> AttentionConvolution:
    """Called with `mask=pattern_of(graph, layer.add_self_loops)`; dropout is not copied."""
    require_plain(layer, unsupported=layer.edge_dim is not None or layer.res is not None or layer.lin is None)
    mechanism = BiAffine(from_key=layer.att_src.detach()[0].clone(), from_query=layer.att_dst.detach()[0].clone())
    value = layer.lin.weight.detach().clone().unflatten(0, (layer.heads, -1))
    return AttentionConvolution(
        mechanism.leaky_relu(layer.negative_slope).softmax(),
        value,
        bias=None if layer.bias is None else layer.bias.detach().clone(),
        join="concatenation" if layer.concat else "mean",
        of_values=True,
    )
