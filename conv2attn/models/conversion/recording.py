"""One recorded run of a network on an example: the convolutions that it calls as functions."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import running
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.models.conversion.functional import (
    FUNCTIONS,
    OTHER_FUNCTIONS,
    FunctionalCall,
    as_convolution,
    unconverted,
)
from conv2attn.theorem import STOCK, has_own_forward


class Recorder(TorchFunctionMode):
    """Notes each functional convolution of a network with the module whose forward is running.

    Also noted is whose code asks for the class of an attention layer, which is no convolution's any more. The network
    is a copy made for it: the forward of each module, and the class of each attention layer, is replaced.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.layers = {each for each in self.names if isinstance(each, MultiHeadSelfAttention) or is_stock(each)}
        self.running: list[nn.Module] = []
        self.calls: dict[tuple[str, str], FunctionalCall] = {}
        self.asked: dict[str, str] = {}
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                self.watch(module)

    def watch(self, module: nn.Module) -> None:
        """Makes the forward of `module` say when it is running."""
        forward = module.forward

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.running.append(module)
            try:
                return forward(*args, **kwargs)
            finally:
                self.running.pop()

        vars(module)["forward"] = noted
        if isinstance(module, MultiHeadSelfAttention):
            module.__class__ = type(type(module).__name__, (type(module),), {"__class__": property(self.ask)})

    def ask(self, layer: nn.Module) -> type:
        """The class of a layer; notes the network's own code that asks whether it is of another one."""
        frame = inspect.currentframe()
        asking = frame and frame.f_back
        caller = asking and asking.f_locals.get(next(iter(asking.f_code.co_varnames), ""))  # a method's own object
        if isinstance(caller, nn.Module) and caller in self.names and caller is not layer:
            self.asked[self.names[layer]] = type(caller).__name__
        return MultiHeadSelfAttention

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes `func` if it is a convolution called outside a convolution layer, and computes it."""
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
        reason, convolution = "", None
        try:
            convolution = as_convolution(func, args, kwargs)
        except Conv2AttnError as error:
            reason = str(error)
        call = FunctionalCall(self.names[module], function, convolution, reason)
        self.calls[call.owner, call.signature] = call

    def note_unconverted(self, module: nn.Module | None, function: str, found: str) -> None:
        """Keeps one record of the calls of a function that is not converted."""
        owner = "" if module is None else self.names[module]
        self.calls[owner, function] = unconverted(owner, function, found)


def is_stock(module: nn.Module) -> bool:
    """Whether `module` is a convolution layer that computes what its attributes say."""
    return isinstance(module, STOCK) and not has_own_forward(module)


def record(trial: nn.Module, example: Any) -> Recorder:
    """Records one run on `example` of `trial`, a network with attention in it, made to be thrown away.

    Raises:
        UnsupportedError: its code asks an attention layer for what only a convolution has (C2A108).
        UsageError: it does not run on the example (C2A009).
    """
    layers = {id(each): name for name, each in trial.named_modules() if isinstance(each, MultiHeadSelfAttention)}
    recorder = Recorder(trial)
    with running(trial, example):
        try:
            with recorder:
                run_on(trial, example)
        except AttributeError as error:
            if (name := layers.get(id(error.obj))) is None:
                raise
            found = f"{name}: the network's own code reads its {error.name}"
            raise UnsupportedError("C2A108", found, "Leave that layer unconverted with skip.") from error
    return recorder


def run_on(network: nn.Module, example: Any) -> Any:
    """`network` called on `example` (a tensor, positional or named arguments), leaving random numbers as they were."""
    with torch.no_grad(), torch.random.fork_rng():
        if isinstance(example, Tensor):
            return network(example)
        return network(**example) if isinstance(example, Mapping) else network(*example)
