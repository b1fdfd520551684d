"""Writes graph layers of torch_geometric."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import ChebConv, GATConv, GCNConv, SGConv, TAGConv

from conv2attn.basis import Basis, Chebyshev, Composition, Powers, Sparse
from conv2attn.errors import UnsupportedError
from conv2attn.framework.attention import AttentionConvolution
from conv2attn.framework.mechanisms import BiAffine, LeakyReLU, Mechanism, Normalised

KINDS: dict[type, Any] = {Sparse: GCNConv, Composition: SGConv, Powers: TAGConv, Chebyshev: ChebConv}


@singledispatch
def to_geometric(layer: object, **options: Any) -> nn.Module:
    """The same map as a layer of torch_geometric, with parameters of its own; `compare` certifies it on a graph.

    Args:
        layer: the basis of a graph convolution (GCNConv, SGConv, TAGConv or ChebConv, by its operators), or an
            `AttentionConvolution` that is a graph attention (GATConv).
        options: how that layer is to make its operators of a graph, such as `normalization="rw"`.
    Raises:
        UnsupportedError: torch_geometric has no such layer (C2A110).
    """
    raise UnsupportedError("C2A110", f"{type(layer).__name__} is no layer that torch_geometric has")


@to_geometric.register
def _(layer: Basis, **options: Any) -> nn.Module:
    operators, weights = layer.operators, layer.weights
    if type(operators) not in KINDS or weights.groups != 1:
        raise UnsupportedError("C2A110", f"no graph layer has the operators of a {type(operators).__name__}, or groups")
    kind, taps = KINDS[type(operators)], weights.taps().detach()
    order = {TAGConv: len(taps) - 1, ChebConv: len(taps)}.get(kind)
    order = len(operators.factors) if kind is SGConv else order
    sizes = {} if order is None else {"K": order}
    made = kind(weights.d_in, weights.d_out, bias=weights.bias is not None, **sizes, **options).to(taps)
    linear = made.lins if kind in (TAGConv, ChebConv) else [made.lin]
    fill([each.weight for each in linear], list(taps))
    if weights.bias is not None:
        fill([made.lin.bias if kind is SGConv else made.bias], [weights.bias])
    return made


@to_geometric.register
def _(layer: AttentionConvolution, **options: Any) -> nn.Module:
    scored, slope = additive(layer.mechanism)
    if scored is None or not layer.of_values or layer.given is not None or not layer.concatenate:
        raise UnsupportedError("C2A110", "a GATConv has leaky sums of scores of its values, and its heads side by side")
    heads, size, channels = layer.value.shape
    made = GATConv(channels, size, heads, negative_slope=slope, bias=layer.bias is not None, **options).to(layer.value)
    assert scored.from_key is not None
    assert scored.from_query is not None
    targets = [made.lin.weight, made.att_src[0], made.att_dst[0]]
    fill(targets, [layer.value.flatten(0, 1), scored.from_key, scored.from_query])
    if layer.bias is not None:
        fill([made.bias], [layer.bias])
    return made


def additive(mechanism: Mechanism) -> tuple[BiAffine | None, float]:
    """The scores of a graph attention and its slope; None of another mechanism."""
    leaky = mechanism.scored if isinstance(mechanism, Normalised) and mechanism.over == "keys" else None
    scored = leaky.scored if isinstance(leaky, LeakyReLU) else None
    if not isinstance(leaky, LeakyReLU) or not isinstance(scored, BiAffine):
        return None, 0.0
    plain = scored.bilinear is None and scored.constant is None
    return (scored if plain and scored.from_key is not None and scored.from_query is not None else None), leaky.slope


@torch.no_grad()
def fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies each source to its target."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
