"""Values and outputs of a layer that attends: for each head the matrix `W_out W_val`, read off its weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.models.axes import HEADS

VALUES = ("v_proj", "value", "v_lin", "v")
OUTPUTS = ("out_proj", "proj", "o_proj", "output", "out_lin", "dense", "to_out", "projection_layer")


def matrices_of(network: nn.Module, name: str) -> tuple[Tensor, Tensor | None] | None:
    """`W_out W_val` of each head, (heads, d_out, d_in) in float64, and the layer's bias; None where they are not read.

    Known are the layers of this project, torch.nn.MultiheadAttention, fused `qkv` or `in_proj` weights with an output
    layer, and linear layers named as in VALUES and OUTPUTS, the output also in the parent of the layer. Rows of
    attention sum to 1, so that the bias of the values passes into that of the layer.
    """
    name = name.split("#")[0]
    module = network.get_submodule(name) if name not in ("", "(root)") else network
    if isinstance(module, MultiHeadSelfAttention):
        return of_own(module)
    heads = next((held for key in HEADS if isinstance(held := getattr(module, key, None), int)), None)
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
    made = torch.einsum("ohc,hci->hoi", outer.unflatten(1, (heads, -1)), weight.unflatten(0, (heads, -1)))
    shift = torch.zeros(outer.shape[0], dtype=torch.float64)
    if bias is not None:
        shift = shift + outer @ bias
    return made, shift if output.bias is None else shift + output.bias.detach().double().cpu()


def of_own(layer: MultiHeadSelfAttention) -> tuple[Tensor, Tensor | None]:
    """Those of a layer of this project, groups as blocks with zeros between them."""
    return (
        layer.weights.dense().detach().double().cpu(),
        None if layer.bias is None else layer.bias.detach().double().cpu(),
    )


def value_of(module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight and bias of the values, the last third of a fused one."""
    fused: Any = getattr(module, "in_proj_weight", None)
    bias: Any = getattr(module, "in_proj_bias", None)
    if not isinstance(fused, Tensor):
        layer = getattr(module, "qkv", None)
        fused, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if isinstance(fused, Tensor) and fused.shape[0] % 3 == 0:
        third: Callable[[Tensor], Tensor] = lambda part: part.chunk(3)[2]  # noqa: E731
        return third(fused), third(bias) if isinstance(bias, Tensor) else None
    found = first_linear(module, VALUES)
    return None if found is None else (found.weight, found.bias)


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
