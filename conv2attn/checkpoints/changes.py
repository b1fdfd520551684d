"""Changes made to a network after it was built, which a file would not hold."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.models import attention_layers
from conv2attn.models.conversion.redirection import CHILD, AttendedForward, pause, resume

PLAIN = (int, float, complex, str, bytes, bool, type(None), tuple, torch.dtype, torch.device)


def first_change(network: nn.Module, rebuilt: nn.Module) -> str:
    """The first change to `network` since it was built as `rebuilt` is, in words; empty if there is none."""
    first, second = (dict(side.named_modules(remove_duplicate=False)) for side in (network, rebuilt))
    if first.keys() != second.keys():
        return f"{sorted(first.keys() ^ second.keys())[0]} is only on one side"
    layers = attention_layers(network)
    for name, module in first.items():
        other, told = second[name], name or "the network"
        inside = name in layers or CHILD in name.split(".")
        if type(module) is not type(other) or (not inside and module.extra_repr() != other.extra_repr()):
            return f"{told} is another layer"
        if forward_hooks(module) != forward_hooks(other) or own_forward(module) != own_forward(other):
            return f"{told} has a hook or a forward of its own"
        if not inside and (changed := changed_attribute(vars(module), vars(other))):
            return f"{told}: {changed} differs"
        mine, theirs = ({**side._parameters, **side._buffers} for side in (module, other))
        moved = [key for key in mine.keys() | theirs.keys() if not same_tensor(mine.get(key), theirs.get(key))]
        if moved:
            return f"{told}: {sorted(moved)[0]} differs"
    return ""


def forward_hooks(module: nn.Module) -> list[str]:
    """The hooks of a module that may change what it is given or returns, by the names of their functions."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [getattr(hook, "__qualname__", type(hook).__name__) for hook in hooks if hook not in (pause, resume)]


def own_forward(module: nn.Module) -> bool:
    """Whether a module has a forward of its own beside one that attends."""
    forward = vars(module).get("forward")
    return forward is not None and not isinstance(forward, AttendedForward)


def changed_attribute(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The name of a plain attribute that differs or is on one side only; empty if there is none."""
    public = [key for key in {**ours, **theirs} if not key.startswith("_") and key != "forward"]
    for key in public:
        if key not in ours or key not in theirs:
            return key
        if isinstance(ours[key], PLAIN) and repr(ours[key]) != repr(theirs[key]):
            return key
    return ""


def same_tensor(ours: Tensor | None, theirs: Tensor | None) -> bool:
    """Whether two tensors, or none, are the same bit for bit."""
    if ours is None or theirs is None:
        return ours is theirs
    alike = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    parts = (each.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format) for each in (ours, theirs))
    return alike and torch.equal(*(part.view(torch.uint8) for part in parts))
