"""Writes graph layers of torch_geometric."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import ChebConv, GATConv, GCNConv, RGCNConv, SGConv, TAGConv

from conv2attn.errors import UnsupportedError
from conv2attn.layers.framework.attention_convolution import AttentionConvolution
from conv2attn.layers.framework.mechanisms import BiAffine, LeakyReLU, Mechanism, Normalised
from conv2attn.theory.basis import Basis, Chebyshev, Composition, Concatenation, Powers, Shift, Sparse, terms

LAYER_KINDS: dict[type, Any] = {Sparse: GCNConv, Composition: SGConv, Powers: TAGConv, Chebyshev: ChebConv}


@singledispatch
def to_geometric(layer: object, **options: Any) -> nn.Module:
    """Writes a layer as one of torch_geometric, with parameters of its own; `compare` certifies it on a graph.

    Args:
        layer: the basis of a graph convolution (GCNConv, SGConv, TAGConv, ChebConv or RGCNConv, by its operators), or
            an `AttentionConvolution` that is a graph attention (GATConv).
        options: how that layer is to make its operators of a graph, such as `normalization="rw"` or `aggr="add"`.
    Raises:
        UnsupportedError: torch_geometric has no such layer (C2A110).
    """
    raise UnsupportedError(
        "C2A110",
        f"{type(layer).__name__} is no layer that torch_geometric has",
        "Pass one of the layers of docs/framework.md.",
    )


@to_geometric.register
def _(layer: Basis, **options: Any) -> nn.Module:
    operators, weights = layer.operators, layer.weights
    taps, biased = weights.dense().detach(), weights.bias is not None
    if weights.bias is not None and weights.bias.ndim > 1:
        raise UnsupportedError(
            "C2A110", "no graph layer has a bias for each node", "Pass a basis with one bias for all nodes."
        )
    if isinstance(operators, Concatenation):
        return relational_layer(operators, taps, weights.bias, **options)
    if not one_step(operators):
        family = f"{type(operators).__name__} of {terms(operators)} terms"
        raise UnsupportedError(
            "C2A110",
            f"no graph layer has the operators of a {family}",
            "Pass one of the families of docs/framework.md.",
        )
    kind = LAYER_KINDS[type(operators)]
    order = {TAGConv: len(taps) - 1, ChebConv: len(taps)}.get(kind)
    order = len(operators.factors) if isinstance(operators, Composition) else order
    sizes = {} if order is None else {"K": order}
    module = kind(weights.d_in, weights.d_out, bias=biased, **sizes, **options).to(taps)
    linear = module.lins if kind in (TAGConv, ChebConv) else [module.lin]
    copy_all([each.weight for each in linear], list(taps))
    if weights.bias is not None:
        copy_all([module.lin.bias if kind is SGConv else module.bias], [weights.bias])
    return module


def one_step(operators: object) -> bool:
    """Whether the operators are a single one, a product of it with itself, or its polynomials."""
    match operators:
        case Sparse():
            return terms(operators) == 1
        case Composition((first, *others)):
            return isinstance(first, Sparse) and one_step(first) and all(each is first for each in others)
        case Powers(operator) | Chebyshev(operator):
            return terms(operator) == 1
        case Composition(()):
            return True
        case _:
            return False


def relational_layer(operators: Concatenation, taps: Tensor, bias: Tensor | None, **options: Any) -> nn.Module:
    """An RGCNConv with a free matrix for each relation, and one for the node itself if that is the last term."""
    relations, identity = operators, Shift(((0,),))
    rooted = len(operators.families) == 2 and operators.families[1] == identity
    if rooted and isinstance(operators.families[0], Concatenation):
        relations = operators.families[0]
    if not all(isinstance(family, Sparse) and terms(family) == 1 for family in relations.families):
        raise UnsupportedError(
            "C2A110",
            "an RGCNConv has one term a relation, and perhaps one for the node itself",
            "Pass one operator for each relation, and the identity for the node itself.",
        )
    count, sizes = len(relations.families), taps.shape[:0:-1]
    module = RGCNConv(*sizes, count, root_weight=len(taps) > count, bias=bias is not None, **options).to(taps)
    copy_all([module.weight], [taps[:count].mT])
    if module.root is not None:
        copy_all([module.root], [taps[count].mT])
    if bias is not None:
        copy_all([module.bias], [bias])
    return module


@to_geometric.register
def _(layer: AttentionConvolution, **options: Any) -> nn.Module:
    scored, slope = graph_attention_scores(layer.mechanism)
    joins_heads = layer.output is None and layer.join != "sum"
    if scored is None or not layer.of_values or layer.given is not None or not joins_heads:
        raise UnsupportedError(
            "C2A110",
            "a GATConv scores its values by leaky sums, and joins its heads or their mean",
            "Pass another class of layer, or a mechanism of leaky sums.",
        )
    heads, size, channels = layer.value.shape
    options |= {"negative_slope": slope, "bias": layer.bias is not None, "concat": layer.join != "mean"}
    module = GATConv(channels, size, heads, **options).to(layer.value)
    assert scored.from_key is not None
    assert scored.from_query is not None
    targets = [module.lin.weight, module.att_src[0], module.att_dst[0]]
    copy_all(targets, [layer.value.flatten(0, 1), scored.from_key, scored.from_query])
    if layer.bias is not None:
        copy_all([module.bias], [layer.bias])
    return module


def graph_attention_scores(mechanism: Mechanism) -> tuple[BiAffine | None, float]:
    """The scores of a graph attention and its slope; None of another mechanism."""
    leaky = mechanism.scored if isinstance(mechanism, Normalised) and mechanism.over == "keys" else None
    scored = leaky.scored if isinstance(leaky, LeakyReLU) else None
    if not isinstance(leaky, LeakyReLU) or not isinstance(scored, BiAffine):
        return None, 0.0
    plain = scored.bilinear is None and scored.constant is None
    return (scored if plain and scored.from_key is not None and scored.from_query is not None else None), leaky.slope


@torch.no_grad()
def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies each source to its target."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
