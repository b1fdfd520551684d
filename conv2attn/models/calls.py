"""Convolutions that a network calls as functions: found by running it on an example, or by tracing it without one."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.basis import Padding
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.theorem import STOCK, Convolution, has_own_forward
from conv2attn.theorem.convolution import DTYPES, resolve_padding, transposed

FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    F.conv1d: ("conv1d", 1),
    F.conv2d: ("conv2d", 2),
    F.conv3d: ("conv3d", 3),
    F.conv_transpose1d: ("conv_transpose1d", 1),
    F.conv_transpose2d: ("conv_transpose2d", 2),
    F.conv_transpose3d: ("conv_transpose3d", 3),
}


@final
@dataclass(frozen=True, eq=False)
class FunctionalCall:
    """A convolution that the module `owner` calls as a function.

    `weight_of` names the convolution layer whose weight it reads, if it is another's. Without a `convolution`, which
    takes running it, `reason` says why.
    """

    owner: str
    function: str
    convolution: Convolution | None = None
    reason: str = ""
    weight_of: str | None = None

    @property
    def signature(self) -> str:
        """The call in one line."""
        return self.convolution.describe(self.function) if self.convolution else self.function


def as_convolution(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Convolution:
    """The convolution that a call of torch.nn.functional.conv* computes.

    Raises:
        UnsupportedError: weights of a dtype without a softmax (C2A102).
    """
    name, axes = FUNCTIONS[function]
    plain = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    order = (*plain[:5], "output_padding", "groups", "dilation") if "transpose" in name else plain
    given = {**dict(zip(order, args, strict=False)), **kwargs}
    weight, bias, groups = given["weight"], given.get("bias"), given.get("groups", 1)
    if weight.dtype not in DTYPES:
        raise UnsupportedError("C2A102", f"{name} is called with weights of {weight.dtype}")
    stride, dilation = (each_axis(given.get(key, 1), axes) for key in ("stride", "dilation"))
    padding = given.get("padding", 0)
    if "transpose" in name:
        amounts = each_axis(padding, axes), each_axis(given.get("output_padding", 0), axes)
        return transposed(weight, bias, stride, *amounts, groups, dilation)
    wanted = padding if isinstance(padding, str) else each_axis(padding, axes)
    before, after = resolve_padding(wanted, weight.shape[2:], dilation, stride)
    return Convolution(weight, bias, stride, dilation, Padding(before, after), groups)


def each_axis(number: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """One number an axis, from one for all or one for each."""
    numbers = (number,) if isinstance(number, int) else tuple(number)
    return numbers * axes if len(numbers) == 1 else numbers


def copy_network(network: nn.Module) -> nn.Module:
    """A deep copy, also where hooks have left computed tensors, which torch does not copy, as attributes."""
    attributes = (value for module in network.modules() for value in vars(module).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    return copy.deepcopy(network, {id(tensor): tensor.detach().clone() for tensor in computed})


class Recorder(TorchFunctionMode):
    """Notes each functional convolution with the module whose forward is running."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.running: list[nn.Module] = []
        self.calls: dict[tuple[Any, ...], FunctionalCall] = {}
        weights = ((name, module._parameters.get("weight")) for module, name in self.names.items() if is_stock(module))
        self.weights = {weight.untyped_storage().data_ptr(): name for name, weight in weights if weight is not None}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes `func` if it is a convolution called outside a convolution layer, and computes it."""
        owner = self.running[-1] if self.running else None
        if func in FUNCTIONS and owner is not None and not is_stock(owner):
            self.note(self.names[owner], func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def note(self, owner: str, func: Any, args: Any, kwargs: Any) -> None:
        """Keeps one record of each call with the same owner, geometry and weight."""
        function, reason, convolution, source = FUNCTIONS[func][0], "", None, None
        try:
            convolution = as_convolution(func, args, kwargs)
            source = self.weights.get(convolution.weight.untyped_storage().data_ptr())
        except Conv2AttnError as error:
            reason = str(error)
        call = FunctionalCall(owner, function, convolution, reason, source)
        self.calls[owner, call.signature, source] = call


def is_stock(module: nn.Module) -> bool:
    """Whether `module` is a convolution layer that computes what its attributes say."""
    return isinstance(module, STOCK) and not has_own_forward(module)


def find_calls(network: nn.Module, example: Any) -> list[FunctionalCall]:
    """The functional convolutions of `network` on `example`; it is run once, on a copy."""
    trial = copy_network(network)
    recorder = Recorder(trial)
    for module in trial.modules():
        module.register_forward_pre_hook(lambda module, args: recorder.running.append(module), prepend=True)
        module.register_forward_hook(lambda *_: recorder.running.pop() and None, always_call=True)
    with recorder:
        run_on(trial, example)
    return list(recorder.calls.values())


def run_on(network: nn.Module, example: Any) -> Any:
    """`network` called on `example` (a tensor, positional or named arguments), leaving random numbers as they were."""
    with torch.no_grad(), torch.random.fork_rng():
        if isinstance(example, Tensor):
            return network(example)
        return network(**example) if isinstance(example, Mapping) else network(*example)


class LayerTracer(fx.Tracer):
    """Traces into everything but convolution layers."""

    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        """Convolution layers, whatever their forward, and the layers of torch.nn."""
        return isinstance(module, STOCK) or super().is_leaf_module(module, module_qualified_name)


def traced_calls(network: nn.Module) -> list[FunctionalCall] | None:
    """The functional convolutions that symbolic tracing finds, or None where the network cannot be traced."""
    try:
        graph = LayerTracer().trace(copy_network(network))
    except Exception:  # tracing runs the network's own code on symbols, which may raise anything
        return None
    calls = []
    for node in graph.nodes:
        if node.op == "call_function" and node.target in FUNCTIONS:
            stack, function = list(node.meta.get("nn_module_stack") or {"": None}), FUNCTIONS[node.target][0]
            reason = str(UnsupportedError("C2A107", f"{stack[-1] or 'the network'} calls {function}"))
            reads = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
            layer = str(reads.target).rpartition(".")[0] if getattr(reads, "op", "") == "get_attr" else None
            calls.append(FunctionalCall(str(stack[-1]), function, None, reason, layer))
    return calls
