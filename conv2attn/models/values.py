"""Queries, keys, values and outputs of a layer that attends, from its weights by their names."""

from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.models.axes import HEADS

SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("to_q", "to_k", "to_v"),
    ("q", "k", "v"),
    ("wq", "wk", "wv"),
)
"""Separate linear layers for queries, keys and values."""
FUSED = {"qkv": 3, "to_qkv": 3, "kv": 2}
"""Linear layers that make several of them, and their number."""
AFTER = ("pool_v", "norm_v")
"""Modules that act on values after their weights."""
OUTPUTS = ("out_proj", "proj", "o_proj", "output", "out_lin", "dense", "to_out", "projection_layer")


def matrices_of(network: nn.Module, name: str) -> tuple[Tensor, Tensor | None] | None:
    """`W_out W_val` of each head, (heads, d_out, d_in) in float64, and the layer's bias; None where they are not read.

    Known are the layers of this project, torch.nn.MultiheadAttention, fused `qkv`, `kv` or `in_proj` weights with an
    output layer, and linear layers named as in SEPARATE and OUTPUTS, the output also in the parent of the layer; not
    values that are pooled or normalised after their weights (MViT). Rows of attention sum to 1, so that the bias of the
    values passes into that of the layer. Where keys are pooled, the matrices act on the pooled tokens.
    """
    name = name.split("#")[0]
    module = network.get_submodule(name) if name not in ("", "(root)") else network
    if isinstance(module, MultiHeadSelfAttention):
        return own_matrices(module)
    heads = next((value for key in HEADS if isinstance(value := getattr(module, key, None), int)), None)
    parent = network.get_submodule(name.rpartition(".")[0]) if "." in name else network
    output = first_linear(module, OUTPUTS) or first_linear(parent, OUTPUTS)
    value = value_of(module)
    if not heads or output is None or value is None or value[0].shape[0] % heads:
        return None
    weight, bias = (None if part is None else part.detach().double().cpu() for part in value)
    assert weight is not None
    outer = output.weight.detach().double().cpu()
    if outer.shape[1] != weight.shape[0]:
        return None
    matrices = torch.einsum("ohc,hci->hoi", outer.unflatten(1, (heads, -1)), weight.unflatten(0, (heads, -1)))
    shift = torch.zeros(outer.shape[0], dtype=torch.float64)
    if bias is not None:
        shift = shift + outer @ bias
    return matrices, shift if output.bias is None else shift + output.bias.detach().double().cpu()


def own_matrices(layer: MultiHeadSelfAttention) -> tuple[Tensor, Tensor | None]:
    """`matrices_of` for a layer of this project; groups are diagonal blocks."""
    return (
        layer.weights.dense().detach().double().cpu(),
        None if layer.bias is None else layer.bias.detach().double().cpu(),
    )


def fused_of(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of queries, keys and values (or keys and values) that are in one matrix, and their biases."""
    weight: Any = getattr(module, "in_proj_weight", None)
    bias: Any = getattr(module, "in_proj_bias", None)
    parts = 3
    for name, count in FUSED.items() if not isinstance(weight, Tensor) else ():
        if isinstance(layer := getattr(module, name, None), nn.Linear):
            weight, bias, parts = layer.weight, layer.bias, count
    if not isinstance(weight, Tensor) or weight.shape[0] % parts:
        return [], []
    separate_biases: list[Any] = [getattr(module, f"{kind}_bias", None) for kind in "qkv"[3 - parts :]]  # timm's BEiT
    if bias is None and isinstance(separate_biases[-1], Tensor):
        return [*weight.chunk(parts)], [*separate_biases]
    return [*weight.chunk(parts)], [*bias.chunk(parts)] if isinstance(bias, Tensor) else []


def query_and_key(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Views of the weights of queries and keys, and of their biases; none where they are not linear in one sequence."""
    weights, biases = fused_of(module)
    if len(weights) == 3:
        return [weight.detach() for weight in weights[:2]], [bias.detach() for bias in biases[:2] if bias is not None]
    for names in SEPARATE:
        layers: list[Any] = [getattr(module, name, None) for name in names[:2]]
        if all(isinstance(layer, nn.Linear) for layer in layers):
            biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
            return [layer.weight.detach() for layer in layers], biases
    return [], []


def value_of(module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight and bias of the values, the last part of a fused one."""
    if any(getattr(module, name, None) is not None for name in AFTER):
        return None
    weights, biases = fused_of(module)
    if weights:
        return weights[-1], biases[-1] if biases else None
    layer = first_linear(module, tuple(names[2] for names in SEPARATE))
    return None if layer is None else (layer.weight, layer.bias)


def first_linear(module: nn.Module, names: tuple[str, ...]) -> nn.Linear | None:
    """The first linear layer of one of these names, or within a child of that name."""
    for name in names:
        child = getattr(module, name, None)
        if isinstance(child, nn.Linear):
            return child
        if isinstance(child, nn.Module):
            inner = next((each for each in child.children() if isinstance(each, nn.Linear)), None)
            if inner is not None:
                return inner
    return None
