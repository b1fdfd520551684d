"""The convolutions that a network calls as functions, recorded in one run on an example."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import call_network, running
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import STOCK, Convolution, has_own_forward
from conv2attn.layers.theorem.convolution import (
    CONVOLUTION_DTYPES,
    check_plain,
    per_axis,
    resolve_padding,
    transposed_convolution,
)
from conv2attn.theory.basis import Padding
from conv2attn.torch_internals import any_convolution

FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    F.conv1d: ("conv1d", 1),
    F.conv2d: ("conv2d", 2),
    F.conv3d: ("conv3d", 3),
    F.conv_transpose1d: ("conv_transpose1d", 1),
    F.conv_transpose2d: ("conv_transpose2d", 2),
    F.conv_transpose3d: ("conv_transpose3d", 3),
}

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules whose code runs, numbers or counts their children."""
OTHER_FUNCTIONS = (torch.convolution, any_convolution, torch.conv_tbc)


@final
@dataclass(frozen=True, eq=False)
class FunctionalCall:
    """A functional convolution in the forward of the module `owner`; `reason` says why `convolution` is None."""

    owner: str
    function: str
    convolution: Convolution | None = None
    reason: str = ""

    @property
    def signature(self) -> str:
        """The call in one line."""
        return self.convolution.describe(self.function) if self.convolution else self.function

    @property
    def name(self) -> str:
        """The call as reports name it: `(root):conv2d`."""
        return f"{self.owner or '(root)'}:{self.function}"


def convolution_of_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Convolution:
    """The convolution that a call of torch.nn.functional.conv* computes.

    Raises:
        UnsupportedError: the weights have an unsupported dtype (C2A102), or their tensor class overrides torch's
            functions (C2A106).
    """
    name, axes = FUNCTIONS[function]
    plain = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    order = (*plain[:5], "output_padding", "groups", "dilation") if "transpose" in name else plain
    arguments = {**dict(zip(order, args, strict=False)), **kwargs}
    weight, bias, groups = arguments["weight"], arguments.get("bias"), arguments.get("groups", 1)
    check_plain(name, weight, bias)
    if weight.dtype not in CONVOLUTION_DTYPES:
        raise UnsupportedError(
            "C2A102",
            f"{name} is called with weights of {weight.dtype}",
            "Dequantise or cast the weights to float64, float32, bfloat16 or float16 first.",
        )
    stride, dilation = (per_axis(arguments.get(key, 1), axes) for key in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    if "transpose" in name:
        amounts = per_axis(padding, axes), per_axis(arguments.get("output_padding", 0), axes)
        return transposed_convolution(weight, bias, stride, *amounts, groups, dilation)
    amount = padding if isinstance(padding, str) else per_axis(padding, axes)
    before, after = resolve_padding(amount, weight.shape[2:], dilation, stride)
    return Convolution(weight, bias, stride, dilation, Padding(before, after), groups)


def geometry_of(convolution: Convolution) -> tuple[Any, ...]:
    """The geometry of a convolution in plain tuples, which compilers can trace: the key of a call's attention layer."""
    padding = convolution.padding
    amounts = (padding.before, padding.after, padding.mode, padding.spacing)
    shape = (tuple(convolution.weight.shape), convolution.groups)
    return (*shape, convolution.stride, convolution.dilation, *amounts)


class CallRecorder(TorchFunctionMode):
    """Records each functional convolution of a network with the module whose forward is running.

    It also records modules whose code reads `__class__` of an attention layer. The recorder replaces the forward of
    each module and the class of each attention layer, so the network must be a copy.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.layers = {
            module
            for module in self.names
            if isinstance(module, MultiHeadSelfAttention) or (isinstance(module, STOCK) and not has_own_forward(module))
        }
        self.running: list[nn.Module] = []
        self.calls: dict[tuple[Any, ...], FunctionalCall] = {}
        self.class_readers: dict[str, str] = {}
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                vars(module)["forward"] = partial(self.run, module, module.forward)
            if isinstance(module, MultiHeadSelfAttention):
                module.__class__ = type(type(module).__name__, (type(module),), {"__class__": property(self.class_of)})

    def run(self, module: nn.Module, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls the `forward` of `module`, which is the last of `running` during the call."""
        self.running.append(module)
        try:
            return forward(*args, **kwargs)
        finally:
            self.running.pop()

    def class_of(self, layer: nn.Module) -> type:
        """The `__class__` of a layer; records the module whose code reads it."""
        frame = sys._getframe(1)
        caller = frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))  # a method's own object
        if isinstance(caller, nn.Module) and caller in self.names and caller is not layer:
            self.class_readers[self.names[layer]] = type(caller).__name__
        return MultiHeadSelfAttention

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and records it if it is a convolution called outside a convolution layer."""
        owner = self.running[-1] if self.running else None
        if owner not in self.layers:
            if func in FUNCTIONS:
                self.note(owner, func, args, kwargs or {})
            elif func in OTHER_FUNCTIONS:
                self.note_unconverted(owner, func.__name__, f"calls torch.{func.__name__}")
        return func(*args, **(kwargs or {}))

    def note(self, module: nn.Module | None, func: Any, args: Any, kwargs: Any) -> None:
        """Keeps one record of the calls with the same owner and geometry."""
        function = FUNCTIONS[func][0]
        if module is None:
            return self.note_unconverted(None, function, f"calls {function} in a hook")
        if isinstance(module, CONTAINERS):
            reason = f"calls {function} beside children that it runs, of which attention for the call would be one"
            return self.note_unconverted(module, function, reason)
        reason, convolution, geometry = "", None, tuple[Any, ...]()
        try:
            convolution = convolution_of_call(func, args, kwargs)
            geometry = geometry_of(convolution)
        except Conv2AttnError as error:
            reason = str(error)
        call = FunctionalCall(self.names[module], function, convolution, reason)
        self.calls[call.owner, function, *geometry] = call

    def note_unconverted(self, module: nn.Module | None, function: str, reason: str) -> None:
        """Keeps one record of the calls of a function that is not converted."""
        owner = "" if module is None else self.names[module]
        error = UnsupportedError("C2A107", f"{owner or 'the network'} {reason}", "Wrap the call in an nn.Conv layer.")
        self.calls[owner, function] = FunctionalCall(owner, function, None, str(error))


def record(network: nn.Module, example: Any) -> tuple[list[FunctionalCall], dict[str, str]]:
    """The functional convolutions of one run on `example`, and which modules read `__class__` of an attention layer.

    The dictionary maps the name of an attention layer to the class of the module that reads its `__class__`. The
    network is a disposable copy with attention in it.

    Raises:
        UnsupportedError: its code reads an attribute of an attention layer that only a convolution has (C2A108).
        UsageError: the network does not run on the example (C2A009).
    """
    layers = {id(each): name for name, each in network.named_modules() if isinstance(each, MultiHeadSelfAttention)}
    recorder = CallRecorder(network)
    with running(network, example):
        try:
            with recorder, torch.no_grad():
                call_network(network, example)
        except AttributeError as error:
            if (name := layers.get(id(error.obj))) is None:
                raise
            reason = f"{name}: the network's own code reads its {error.name}"
            raise UnsupportedError("C2A108", reason, "Leave that layer unconverted with skip.") from error
    return [*recorder.calls.values()], recorder.class_readers
