"""How a network's functional convolutions are found: by running it on an example, or by tracing it without one."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.models.conversion.functional import FUNCTIONS, FunctionalCall, as_convolution
from conv2attn.theorem import STOCK, has_own_forward

OTHER_FUNCTIONS = (torch.convolution, torch._convolution, torch.conv_tbc)


def copy_network(network: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """A deep copy in which an object whose id is in `memo` becomes what `memo` says; `memo` learns of the others.

    Works also where hooks have left computed tensors, which torch does not copy, as attributes.
    """
    attributes = (value for module in network.modules() for value in vars(module).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    memo = {} if memo is None else memo
    memo.update({id(tensor): tensor.detach().clone() for tensor in computed})
    return copy.deepcopy(network, memo)


@final
@dataclass(frozen=True)
class Discovery:
    """The functional convolutions of a network, and how they were looked for.

    `read` names the convolution layers whose weight is read by others, with the reader; `ran` the modules that ran, if
    the network was run.
    """

    calls: tuple[FunctionalCall, ...]
    looked: str
    read: Mapping[str, str]
    ran: frozenset[str] | None = None


class Recorder(TorchFunctionMode):
    """Notes each functional convolution of a network with the module whose forward is running, and which ones ran.

    The network is a copy made for it: the forward of each module is replaced.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.stock = {module for module in self.names if is_stock(module)}
        self.running: list[nn.Module] = []
        self.ran: set[str] = set()
        self.calls: dict[tuple[Any, ...], FunctionalCall] = {}
        weights = ((self.names[module], module._parameters.get("weight")) for module in self.stock)
        known = ((name, weight) for name, weight in weights if weight is not None and not is_lazy(weight))
        self.weights = {place: name for name, weight in known if (place := weight.untyped_storage().data_ptr())}
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                self.watch(module)

    def watch(self, module: nn.Module) -> None:
        """Makes the forward of `module` say when it is running."""
        forward = module.forward

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.running.append(module)
            self.ran.add(self.names[module])
            try:
                return forward(*args, **kwargs)
            finally:
                self.running.pop()

        vars(module)["forward"] = noted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes `func` if it is a convolution called outside a convolution layer, and computes it."""
        owner = self.running[-1] if self.running else None
        if owner not in self.stock and not isinstance(owner, MultiHeadSelfAttention):
            if func in FUNCTIONS:
                self.note(owner, func, args, kwargs or {})
            elif func in OTHER_FUNCTIONS:
                self.note_unconverted(owner, func.__name__, f"calls torch.{func.__name__}")
        return func(*args, **(kwargs or {}))

    def note(self, module: nn.Module | None, func: Any, args: Any, kwargs: Any) -> None:
        """Keeps one record of each call with the same owner, geometry and weight."""
        function = FUNCTIONS[func][0]
        if module is None:
            return self.note_unconverted(None, function, f"calls {function} in a hook")
        owner, reason, convolution, source = self.names[module], "", None, None
        try:
            convolution = as_convolution(func, args, kwargs)
            source = self.weights.get(convolution.weight.untyped_storage().data_ptr())
        except Conv2AttnError as error:
            reason = str(error)
        call = FunctionalCall(owner, function, convolution, reason, source)
        self.calls[owner, call.signature, source] = call

    def note_unconverted(self, module: nn.Module | None, function: str, found: str) -> None:
        """Keeps one record of the calls of a function that is not converted."""
        owner = "" if module is None else self.names[module]
        reason = str(UnsupportedError("C2A107", f"{owner or 'the network'} {found}", "Call an nn.Conv layer instead."))
        self.calls[owner, function, None] = FunctionalCall(owner, function, None, reason)


def is_stock(module: nn.Module) -> bool:
    """Whether `module` is a convolution layer that computes what its attributes say."""
    return isinstance(module, STOCK) and not has_own_forward(module)


def discover(network: nn.Module, example: Any) -> Discovery:
    """The functional convolutions of `network`: on `example` if there is one, else those that tracing finds."""
    if example is None:
        return Discovery((), "none", {}) if isinstance(network, STOCK) else trace(network)
    recorder = record(network, example)
    read = {call.weight_of: f"its weight is read by {call.name}" for call in recorder.calls.values() if call.weight_of}
    return Discovery(tuple(recorder.calls.values()), "checked on the example input", read, frozenset(recorder.ran))


def record(network: nn.Module, example: Any) -> Recorder:
    """What a copy of `network` does when it is run once on `example`."""
    trial = copy_network(network)
    recorder = Recorder(trial)
    with recorder:
        run_on(trial, example)
    return recorder


def run_on(network: nn.Module, example: Any) -> Any:
    """`network` called on `example` (a tensor, positional or named arguments), leaving random numbers as they were."""
    with torch.no_grad(), torch.random.fork_rng():
        if isinstance(example, Tensor):
            return network(example)
        return network(**example) if isinstance(example, Mapping) else network(*example)


class LayerTracer(fx.Tracer):
    """Traces into everything but layers of torch.nn, convolutions whatever their forward, and attention."""

    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        """Whether tracing stays outside `module`."""
        leaves = (*STOCK, MultiHeadSelfAttention)
        return isinstance(module, leaves) or super().is_leaf_module(module, module_qualified_name)


def trace(network: nn.Module) -> Discovery:
    """What symbolic tracing finds."""
    try:
        with torch.random.fork_rng():
            graph = LayerTracer().trace(copy_network(network))
    except Exception:  # tracing runs the network's own code on symbols, which may raise anything
        return Discovery((), "not checked", {})
    calls, read = {}, {}
    for node in graph.nodes:
        if node.op == "get_attr":
            read[str(node.target).rpartition(".")[0]] = f"the network reads its {str(node.target).rpartition('.')[2]}"
        if node.op == "call_function" and node.target in FUNCTIONS:
            owner = str(list(node.meta.get("nn_module_stack") or {"": None})[-1]).partition("@")[0]
            function = FUNCTIONS[node.target][0]
            reason = str(UnsupportedError("C2A107", f"{owner or 'the network'} calls {function}"))
            calls[owner, function] = FunctionalCall(owner, function, None, reason)
    return Discovery(tuple(calls.values()), "traced", read)
