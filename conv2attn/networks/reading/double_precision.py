"""A network in float64: parameters are cast when they are used, and no step rounds to fewer digits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import Any, final
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.torch_internals import DisableTorchFunctionSubclass

NARROW = {torch.float32, torch.float16, torch.bfloat16}
CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
GROUPED = ("grouped_mm", "_grouped_mm")
"""Grouped matrix products, as in mixtures of experts; torch has no float64 version."""
COPIES = WeakSet[nn.Module]()
"""The modules of all float64 copies."""


@final
class InDouble(TorchFunctionMode):
    """While active, casts to fewer digits become casts to float64.

    Many networks compute scores or softmaxes in float32 whatever their dtype, which would hide changes as small as
    those measured here.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` with float64 in place of each dtype of fewer digits."""
        if func in CASTS:
            return args[0].double()
        if func.__name__ in GROUPED:
            return grouped(*args, **(kwargs or {}))
        if func is not Tensor.view:  # `view` with a dtype reinterprets bits
            args = [widest(each) for each in args]
            kwargs = {name: widest(each) for name, each in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


def widest(argument: Any) -> Any:
    """float64 for a floating dtype with fewer digits; any other argument unchanged."""
    return torch.float64 if isinstance(argument, torch.dtype) and argument in NARROW else argument


def grouped(rows: Tensor, matrices: Tensor, offs: Tensor, bias: Tensor | None = None, **_: Any) -> Tensor:
    """Each group of rows (rows, d_in) times its own matrix of (groups, d_in, d_out); `offs` are the ends of the
    groups.
    """
    stops = offs.tolist()
    parts = [
        rows[start:stop] @ matrices[at] for at, (start, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True))
    ]
    return torch.cat(parts) if bias is None else torch.cat(parts) + bias


def in_double(network: nn.Module) -> AbstractContextManager[Any]:
    """Within the block, a float64 copy or one of its modules never rounds to fewer digits; other networks are
    unaffected.
    """
    return InDouble() if network in COPIES else nullcontext()


class Widened(nn.Parameter):
    """A parameter that functions receive in float64: cast at each use, or kept in float64 as `held`."""

    held: Tensor | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` on the float64 value. If `func` writes in place, it changes the value that is held from then
        on.
        """
        if func in UNCAST:
            return super().__torch_function__(func, types, args, kwargs or {})
        first = args[0] if args and isinstance(args[0], cls) else None
        if first is not None and (func in WRITES or (func.__name__.endswith("_") and func.__name__[-2:] != "__")):
            first.hold()
        args, kwargs = cast((args, kwargs or {}))
        result = func(*args, **kwargs)
        return first if first is not None and result is first.held else result

    def in_double(self) -> Tensor:
        """The held float64 value, otherwise a new float64 copy."""
        with DisableTorchFunctionSubclass():
            return self.detach().double() if self.held is None else self.held

    def hold(self) -> None:
        """Holds the value in float64."""
        self.held = self.in_double()


def cast(arguments: Any) -> Any:
    """Arguments of a function with each widened parameter in float64."""
    if isinstance(arguments, Widened):
        return arguments.in_double()
    if isinstance(arguments, dict):
        return {name: cast(each) for name, each in arguments.items()}
    return type(arguments)(map(cast, arguments)) if type(arguments) in (tuple, list) else arguments


T: Any = Tensor
UNCAST = {T.shape.__get__, T.device.__get__, T.requires_grad.__get__, T.size, T.dim}
"""Functions whose result does not depend on the tensor's dtype."""
WRITES = {T.data.__get__, T.data.__set__, T.__setitem__, T.__iadd__, T.__imul__}
"""Functions that write into a tensor or expose its memory, besides those whose names end with `_`."""


@contextmanager
def cast_once(module: nn.Module) -> Iterator[None]:
    """Within the block, each parameter of a module is cast only once."""
    cast = [each for each in module.parameters() if type(each) is Widened and each.held is None]
    try:
        for each in cast:
            each.hold()
        yield
    finally:
        for each in cast:
            each.held = None


def precise(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, in float64 if its dtype is floating."""
    return tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu()


def double_copy(network: nn.Module, share: bool = True) -> nn.Module:
    """A copy of a network on the CPU that computes in float64.

    With `share`, its parameters are those of the network, cast at each use; code outside torch's functions then sees
    them uncast.
    """
    # A copy in float64 takes twice the memory of the network. Sharing parameters and casting each as it is used takes
    # that of one layer.
    narrow = [each for each in network.parameters() if type(each) is nn.Parameter and each.is_floating_point()]
    narrow = [each for each in narrow if share and each.dtype != torch.float64]
    twins: dict[int, Any] = {id(each): nn.Parameter(each.detach().cpu(), each.requires_grad) for each in narrow}
    shared = {id(each) for each in twins.values()}

    def converted(tensor: Tensor) -> Tensor:
        return tensor if id(tensor) in shared else precise(tensor)

    copied = deepcopy(network, dict(twins))._apply(converted)
    for each in twins.values():
        each.__class__ = Widened
    COPIES.update(copied.modules())
    return copied
