"""A recorded run of a network on an example: the functional convolutions it calls, and the modules that run."""

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.functional import (
    FUNCTIONS,
    OTHER_FUNCTIONS,
    FunctionalCall,
    as_convolution,
    unconverted,
)
from conv2attn.models.conversion.replacement import attention_layers
from conv2attn.theorem import STOCK, has_own_forward


def copy_network(network: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """A deep copy in which an object whose id is in `memo` becomes what `memo` says; `memo` learns of the others.

    Works also where hooks have left computed tensors, which torch does not copy, as attributes. A module whose own
    `__deepcopy__` returns itself is copied all the same: what is done to the copy must not be done to the original.
    Attributes of parameters, which torch does not copy either, are those of the original.
    """
    attributes = (value for module in network.modules() for value in vars(module).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    memo = {} if memo is None else memo
    memo.update({id(tensor): tensor.detach().clone() for tensor in computed})
    given = dict(memo)
    copied = copy.deepcopy(network, memo)
    for graph in (each for each in network.modules() if isinstance(each, torch.fx.GraphModule)):  # its copy drops it
        twin, forward = memo.get(id(graph)), vars(graph).get("forward")
        if forward is not None and twin is not None and "forward" not in vars(twin):
            vars(twin)["forward"] = copy.deepcopy(forward, memo)
    originals = set(network.modules())
    for parameter in network.parameters():
        if id(parameter) in memo and vars(parameter):
            vars(memo[id(parameter)]).update(vars(parameter))
    if not (uncopied := [module for module in copied.modules() if module in originals]):
        return copied
    memo.clear()
    memo.update(given)
    emptied = {module: type(module).__new__(type(module)) for module in uncopied if id(module) not in given}
    memo.update({id(module): empty for module, empty in emptied.items()})
    for module, empty in emptied.items():
        vars(empty).update({key: copy.deepcopy(value, memo) for key, value in vars(module).items()})
    return copy.deepcopy(network, memo)


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
        self.calls[owner, function, None] = unconverted(owner, function, found, "Call an nn.Conv layer instead.")


def is_stock(module: nn.Module) -> bool:
    """Whether `module` is a convolution layer that computes what its attributes say."""
    return isinstance(module, STOCK) and not has_own_forward(module)


def record(trial: nn.Module, example: Any) -> Recorder:
    """Records one run on `example` of `trial`, a network made to be thrown away."""
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


def missed_layers(network: nn.Module, example_input: Any, ran: Collection[str] | None) -> dict[str, str]:
    """The attention layers that the network's own code does not take for a convolution, and how its run shows that.

    `ran` are the modules that ran in the original, or None where there is no example to run it on.

    Raises:
        AttributeError: the network's own, which has nothing to do with attention.
    """
    if ran is None:
        return {}
    trial = copy_network(network)
    layers = attention_layers(trial)
    try:
        now = record(trial, example_input).ran
    except AttributeError as error:
        asked = {name: f"the network's own code reads its {error.name}" for name in layers if layers[name] is error.obj}
        if not asked:
            raise
        return asked
    return {name: "the network's own code asks for its class" for name in layers if name in ran and name not in now}
