"""What modules and other objects hold, as values that can be compared."""

import functools
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.certificates.computed.gaps import gap
from conv2attn.models.conversion.outcomes import MEMORY
from conv2attn.models.conversion.redirection import CHILD, AttendedForward, pause, resume
from conv2attn.models.conversion.replacement import REPARAMETRISATIONS, computed_by_hooks
from conv2attn.tables import counted

OWN = ("_parameters", "_buffers", "_modules", MEMORY, "_conv2attn_provenance", "_is_full_backward_hook")
PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size, type, slice)
CODE = (types.FunctionType, types.BuiltinFunctionType, types.BuiltinMethodType, types.ModuleType)
FLAGS = {
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
}


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """What a module has in itself besides parameters, buffers and modules, seen through a forward that attends."""
    own = {key: value for key, value in vars(module).items() if key not in OWN}
    forward = own.get("forward")
    if isinstance(forward, AttendedForward) and forward.owner is module:
        own = {**own, "forward": forward.replaced}
        return {key: value for key, value in own.items() if key != "forward" or value is not None}
    return own


def added_to(layer: nn.Module) -> dict[str, Any]:
    """What a convolution or attention layer holds beside what one of its class does, or computes its weight from."""
    held = {**vars(layer), **layer._parameters, **layer._buffers, **layer._modules}
    means = tuple(f"{name}_" for name in computed_by_hooks(layer))
    return {key: item for key, item in held.items() if key not in names_of_layers() and not key.startswith(means)}


@functools.cache
def names_of_layers() -> frozenset[str]:
    """All names that layers of this project and convolutions have of their own."""
    layers = MultiHeadSelfAttention(1, 1, QuadraticEncoding([[0.0]], 1.0)), nn.Conv1d(1, 1, 1)
    held = [{*vars(each), *each._parameters, *each._modules} for each in layers]
    return frozenset({*OWN, "parametrizations", CHILD}.union(*held))


def hooks(registered: Any) -> Any:
    """The hooks of a module in order, without their handles and without those that keep redirections out."""
    return list(standing(registered).values()) if isinstance(registered, Mapping) else registered


def flagged_hooks(layer: nn.Module, key: str) -> list[list[Any]]:
    """The same of a layer, each with how it is called: with keywords, and after an error too."""
    flags = [getattr(layer, flag) for flag in FLAGS[key]]
    return [[hook, *(handle in flag for flag in flags)] for handle, hook in standing(getattr(layer, key)).items()]


def standing(registered: Mapping[int, Any]) -> dict[int, Any]:
    """The hooks that count, by their handles."""
    ours = (pause, resume)
    return {
        handle: hook
        for handle, hook in registered.items()
        if hook not in ours and not isinstance(hook, REPARAMETRISATIONS)
    }


def bindings(function: types.FunctionType) -> tuple[Any, ...]:
    """What a function holds besides its text."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return cells, function.__defaults__, function.__kwdefaults__, vars(function)


def state_of(thing: Any) -> tuple[Any, ...] | None:
    """All that an object holds: attributes, slots, and what it has as a list or mapping; None where it may be more.

    Source: the pickle protocol, which refuses an object of a class in C that does not tell its state.
    """
    own, plain = type(thing), object
    if (own.__reduce_ex__, own.__reduce__) != (plain.__reduce_ex__, plain.__reduce__) or isinstance(thing, PLAIN):
        return None
    try:
        thing.__reduce_ex__(2)
    except TypeError:
        return None
    held = list(thing.items()) if isinstance(thing, dict) else list(thing) if isinstance(thing, list | tuple) else None
    state = object.__getstate__(thing)
    known = hasattr(thing, "__dict__") or state is not None or held is not None
    return (state, held) if known else None


def worst_place(ours: Any, theirs: Any) -> str:
    """Where two parameters differ most, in words; empty where one is missing."""
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor):
        return ""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f": {theirs.dtype} {tuple(theirs.shape)}, not {ours.dtype} {tuple(ours.shape)}"
    unequal = (ours != theirs) & ~(ours.isnan() & theirs.isnan())
    if not unequal.any():
        return " in the sign of a zero or the bits of a NaN"
    most = gap(ours, theirs).amax(-1).masked_fill(~unequal, -2.0).argmax()
    place = tuple(int(i) for i in torch.unravel_index(most, ours.shape))
    numbers = f"{theirs[place].item()!r}, not {ours[place].item()!r}"
    return f" in {counted(int(unequal.sum()), 'number')}, the worst at {place}: {numbers}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and values, bit for bit, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
