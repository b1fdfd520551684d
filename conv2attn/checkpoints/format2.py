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
    held, renamed = dict(tensors), dict[str, str]()
    layers = {name: upgraded_layer(name, plan, held, renamed) for name, plan in content["layers"].items()}
    calls = {}
    for owner, told in content.get("calls", {}).get("owners", {}).items():
        names = [f"{owner}.{CALLS}.{number}".lstrip(".") for number in range(len(told["layers"]))]
        plans = [upgraded_layer(*each, held, renamed) for each in zip(names, told["layers"], strict=True)]
        calls[owner] = {**told, "layers": plans}
    frozen = [renamed.get(name, name) for name in content.get("frozen", ())]
    tied = [[renamed.get(name, name) for name in names] for names in content.get("tied", ())]
    there = {"source": None, **content, "layers": layers, "calls": calls, "tied": tied}
    return {**there, "frozen": [name for name in frozen if name in held]}, held


def upgraded_layer(name: str, plan: Mapping[str, Any], held: dict[str, Tensor], renamed: dict[str, str]) -> Any:
    """The plan of a layer, whose tensors in `held` are renamed, or moved into the plan where they do not train."""
    prefix = f"{name}." if name else ""
    new = {"content_linear": False, **plan, "kernel_size": None, "transposed": False, "fixed": {}}
    centers = held.get(f"{prefix}encoding.center")
    if centers is not None and not new.pop("trained_positions"):
        values = {key: held.pop(f"{prefix}encoding.{key}").tolist() for key in ("center", "alpha")}
        new["fixed"] = {"dtype": str(centers.dtype).removeprefix("torch."), **values}
    kernel = None if centers is None else kernel_of(centers.tolist())
    if kernel and plan["value"] != plan["output"]:
        old = prefix + ("value" if plan["value"] else "output")
        held[f"{prefix}weight"], renamed[old] = held.pop(old).unflatten(-1, kernel), f"{prefix}weight"
        new |= {
            "value": False,
            "output": False,
            "kernel_size": list(kernel),
            "d_head": min(plan["d_in"], plan["d_out"]),
        }
    return new


def kernel_of(centers: list[list[float]]) -> tuple[int, ...] | None:
    """The kernel whose taps, row-major, have these offsets; None if there is none."""
    axes = [sorted(set(along)) for along in zip(*centers, strict=True)]
    return tuple(map(len, axes)) if list(map(tuple, centers)) == list(product(*axes)) else None
