"""A network in float64: its parameters are cast as they are used, and nothing in it is rounded to fewer digits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import Any, final
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.torch_internals import DisableTorchFunctionSubclass, tree_map_only

NARROW = {torch.float32, torch.float16, torch.bfloat16}
CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
GROUPED = ("grouped_mm", "_grouped_mm")
"""Products of groups of rows with a matrix each, as of experts, which torch has not in float64."""
COPIES = WeakSet[nn.Module]()
"""The modules of all copies in float64."""


@final
class InDouble(TorchFunctionMode):
    """While active, what would be cast to fewer digits is cast to float64.

    Many networks compute scores or softmaxes in float32 whatever their dtype, which hides changes as small as those
    that are asked for here.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` with float64 in place of each dtype of fewer digits."""
        if func in CASTS:
            return args[0].double()
        if func.__name__ in GROUPED:
            return grouped(*args, **(kwargs or {}))
        if func is not Tensor.view:  # which reads bits as another dtype
            args = [widest(each) for each in args]
            kwargs = {name: widest(each) for name, each in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


def widest(argument: Any) -> Any:
    """float64 in place of a dtype of fewer digits; all else as it is."""
    return torch.float64 if isinstance(argument, torch.dtype) and argument in NARROW else argument


def grouped(rows: Tensor, matrices: Tensor, offs: Tensor, bias: Tensor | None = None, **_: Any) -> Tensor:
    """The rows (rows, d_in) of each group times its matrix (groups, d_in, d_out); `offs` are the ends of groups."""
    stops = offs.tolist()
    parts = [
        rows[start:stop] @ matrices[at] for at, (start, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True))
    ]
    return torch.cat(parts) if bias is None else torch.cat(parts) + bias


def in_double(network: nn.Module) -> AbstractContextManager[Any]:
    """Within the block a copy in float64, or a module of one, rounds nothing to fewer digits; others do as they do."""
    return InDouble() if network in COPIES else nullcontext()


class Widened(nn.Parameter):
    """A parameter of another dtype that every function takes in float64: cast when it is used, or `held` in float64."""

    held: Tensor | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` of the parameter in float64; what writes into it writes into what is held from then on."""
        if func in UNCAST:
            return super().__torch_function__(func, types, args, kwargs or {})
        first = args[0] if args and isinstance(args[0], cls) else None
        if first is not None and (func in WRITES or (func.__name__.endswith("_") and func.__name__[-2:] != "__")):
            first.hold()
        args, kwargs = tree_map_only(cls, cls.in_double, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return first if first is not None and result is first.held else result

    def in_double(self) -> Tensor:
        """What is held, else its numbers in a tensor of their own."""
        with DisableTorchFunctionSubclass():
            return self.detach().double() if self.held is None else self.held

    def hold(self) -> None:
        """Keeps its numbers in float64."""
        self.held = self.in_double()


T: Any = Tensor
UNCAST = {T.shape.__get__, T.device.__get__, T.requires_grad.__get__, T.size, T.dim}
"""Functions of a tensor that its dtype does not change."""
WRITES = {T.data.__get__, T.data.__set__, T.__setitem__, T.__iadd__, T.__imul__}
"""Functions that write into a tensor, or give access to do so, beside those whose names end with `_`."""


@contextmanager
def held(module: nn.Module) -> Iterator[None]:
    """Within the block the parameters of a module are cast only once."""
    cast = [each for each in module.parameters() if type(each) is Widened and each.held is None]
    try:
        for each in cast:
            each.hold()
        yield
    finally:
        for each in cast:
            each.held = None


def double_copy(network: nn.Module, share: bool = True) -> nn.Module:
    """A copy of a network on the CPU that computes in float64.

    Its parameters are those of the network, and cast as they are used, if it is to `share` them: code that is none of
    torch's functions takes them as they are.
    """
    # A copy in float64 takes twice the memory of the network. Sharing parameters and casting each as it is used takes
    # that of one layer.
    narrow = [each for each in network.parameters() if type(each) is nn.Parameter and each.is_floating_point()]
    narrow = [each for each in narrow if share and each.dtype != torch.float64]
    twins: dict[int, Any] = {id(each): nn.Parameter(each.detach().cpu(), each.requires_grad) for each in narrow}
    shared = {id(each) for each in twins.values()}

    def converted(tensor: Tensor) -> Tensor:
        if id(tensor) in shared:
            return tensor
        return tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu()

    copied = deepcopy(network, dict(twins))._apply(converted)
    for each in twins.values():
        each.__class__ = Widened
    COPIES.update(copied.modules())
    return copied
