"""Files of format /2, which kept the taps of a layer as `output` or `value` and its positions in the state dict."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from torch import Tensor

FORMAT = "conv2attn.network/2"
CALLS = "attending_calls.layers"


def upgraded(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The plan and the tensors of format /3.

    Raises:
        KeyError, TypeError, ValueError: they are not whole.
    """
    state, renamed = dict(tensors), dict[str, str]()
    layers = {name: upgraded_layer(name, plan, state, renamed) for name, plan in content["layers"].items()}
    calls = {}
    for owner, owner_calls in content.get("calls", {}).get("owners", {}).items():
        names = [f"{owner}.{CALLS}.{number}".lstrip(".") for number in range(len(owner_calls["layers"]))]
        plans = [upgraded_layer(*each, state, renamed) for each in zip(names, owner_calls["layers"], strict=True)]
        calls[owner] = {**owner_calls, "layers": plans}
    frozen = [renamed.get(name, name) for name in content.get("frozen", ())]
    tied = [[renamed.get(name, name) for name in names] for names in content.get("tied", ())]
    plan = {"source": None, **content, "layers": layers, "calls": calls, "tied": tied}
    return {**plan, "frozen": [name for name in frozen if name in state]}, state


def upgraded_layer(name: str, plan: Mapping[str, Any], state: dict[str, Tensor], renamed: dict[str, str]) -> Any:
    """The plan of a layer, whose tensors in `state` are renamed, or moved into the plan where they do not train."""
    prefix = f"{name}." if name else ""
    layer_plan = {"content_linear": False, **plan, "kernel_size": None, "transposed": False, "fixed": {}}
    centers = state.get(f"{prefix}encoding.center")
    if centers is not None and not layer_plan.pop("trained_positions"):
        values = {key: state.pop(f"{prefix}encoding.{key}").tolist() for key in ("center", "alpha")}
        layer_plan["fixed"] = {"dtype": str(centers.dtype).removeprefix("torch."), **values}
    kernel = None if centers is None else kernel_of(centers.tolist())
    if kernel and plan["value"] != plan["output"]:
        old_name = prefix + ("value" if plan["value"] else "output")
        state[f"{prefix}weight"], renamed[old_name] = state.pop(old_name).unflatten(-1, kernel), f"{prefix}weight"
        layer_plan |= {
            "value": False,
            "output": False,
            "kernel_size": list(kernel),
            "d_head": min(plan["d_in"], plan["d_out"]),
        }
    return layer_plan


def kernel_of(centers: list[list[float]]) -> tuple[int, ...] | None:
    """The kernel whose taps, row-major, have these offsets; None if there is none."""
    axes = [sorted(set(along)) for along in zip(*centers, strict=True)]
    return tuple(map(len, axes)) if list(map(tuple, centers)) == list(product(*axes)) else None
