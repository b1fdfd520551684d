"""Reads queries, keys, values and outputs of a layer that attends from its weights, by their names."""

from typing import Any, NamedTuple, TypeGuard

from torch import Tensor, nn

HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "nheads", "num_head")
"""Attributes in which modules keep their number of heads."""
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
"""Linear layers that compute several of these at once, and their number."""
AFTER = ("pool_v", "norm_v")
"""Modules that act on values after their weights."""
OUTPUTS = ("out_proj", "proj", "o_proj", "output", "out_lin", "dense", "to_out", "projection_layer")


class Projection(NamedTuple):
    """The linear map of tokens to queries, keys or values of all heads: views of its weight and bias."""

    weight: Tensor
    bias: Tensor | None


def head_count(module: nn.Module) -> int | None:
    """The number of heads that a module has as an attribute."""
    values = (getattr(module, name, None) for name in HEADS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def projections_of(module: nn.Module) -> dict[str, Projection]:
    """The maps to `query`, `key` and `value`: queries and keys only together, and only if both read one sequence."""
    weight: Any = getattr(module, "in_proj_weight", None)
    bias: Any = getattr(module, "in_proj_bias", None)
    count = 3
    if getattr(module, "bias_k", None) is not None or getattr(module, "add_zero_attn", False):
        return {}  # there is one more key than tokens
    for name, number in FUSED.items() if not isinstance(weight, Tensor) else ():
        if is_linear(layer := getattr(module, name, None)):
            weight, bias, count = layer.weight, layer.bias, number
    if isinstance(weight, Tensor) and weight.shape[0] % count == 0:
        kinds = ("query", "key", "value")[3 - count :]
        separate = [getattr(module, f"{kind[0]}_bias", None) for kind in kinds]  # timm's BEiT
        biases = bias.chunk(count) if isinstance(bias, Tensor) else separate
        parts = zip(kinds, weight.chunk(count), biases, strict=True)
        fused = {kind: Projection(weight_part, bias_part) for kind, weight_part, bias_part in parts}
        return fused if count == 3 else {"value": fused["value"]}
    value = first_linear(module, tuple(names[2] for names in SEPARATE))
    maps = {} if value is None else {"value": Projection(value.weight, value.bias)}
    for *names, _ in SEPARATE:
        query, key = (getattr(module, name, None) for name in names)
        if is_linear(query) and is_linear(key):
            both = {"query": Projection(query.weight, query.bias), "key": Projection(key.weight, key.bias)}
            return maps | both
    return maps


def value_and_output(network: nn.Module, name: str) -> tuple[Projection, nn.Linear] | None:
    """The map to values and the output layer of a layer that attends (or of its parent); None if unknown.

    Values that are pooled or normalised after their weights (MViT) count as unknown.
    """
    module = network.get_submodule(name)
    output = first_linear(module, OUTPUTS) or first_linear(network.get_submodule(name.rpartition(".")[0]), OUTPUTS)
    value = projections_of(module).get("value")
    after = any(getattr(module, part, None) is not None for part in AFTER)
    return None if output is None or value is None or after else (value, output)


def is_linear(layer: Any) -> TypeGuard[nn.Linear]:
    """Whether a module computes `W x + b` of its weight and bias: no custom forward, no hooks."""
    if not isinstance(layer, nn.Linear) or "forward" in vars(layer):
        return False
    plain = type(layer).forward.__module__ in ("torch.nn.modules.linear", "timm.layers.linear")
    return plain and not (layer._forward_hooks or layer._forward_pre_hooks)


def first_linear(module: nn.Module, names: tuple[str, ...]) -> nn.Linear | None:
    """The first linear layer with one of these names, or inside a child with such a name."""
    for name in names:
        child = getattr(module, name, None)
        if is_linear(child):
            return child
        if isinstance(child, nn.Module):
            inner = next((each for each in child.children() if is_linear(each)), None)
            if inner is not None:
                return inner
    return None
