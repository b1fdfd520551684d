"""Functional convolutions turned into attention as they are called, with the weights of the call."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention, Weights
from conv2attn.models.calls import FUNCTIONS, FunctionalCall, as_convolution
from conv2attn.models.replacement import Settings, attention_layers
from conv2attn.theorem import Convolution, attention_for

CHILD = "attending_calls"
active = threading.local()


class AttendingCalls(nn.Module):
    """The attention that stands for the functional convolutions of one module: one layer a geometry met.

    The layers hold positions only: the weights are those of the call, wherever the network keeps them.
    """

    def __init__(self, settings: Settings, left_alone: Sequence[nn.Module]):
        super().__init__()
        self.settings, self.left_alone = settings, list(left_alone)
        self.geometries: list[tuple[Any, ...]] = []
        self.layers = nn.ModuleList()

    def forward(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """What `function(*args, **kwargs)` returns, computed by multi-head self-attention."""
        convolution = as_convolution(function, args, kwargs)
        weights = Weights(None, convolution.taps(), convolution.bias, convolution.groups)
        image = args[0] if args else kwargs["input"]
        return self.layer_for(convolution)(image, weights=weights)

    def layer_for(self, convolution: Convolution) -> MultiHeadSelfAttention:
        """The attention for the geometry of `convolution`, made when it is first met."""
        shape = (tuple(convolution.weight.shape), convolution.weight.dtype, convolution.groups)
        geometry = (*shape, convolution.stride, convolution.dilation, convolution.padding)
        if geometry not in self.geometries:
            layer = attention_for(convolution, **self.settings.arguments())
            layer.value = layer.output = layer.bias = None
            for known in attention_layers(self).values():
                layer.engine, layer.memory_limit = known.engine, known.memory_limit
            self.geometries.append(geometry)
            self.layers.append(layer)
        return attention_layers(self)[f"layers.{self.geometries.index(geometry)}"]


class Redirection(TorchFunctionMode):
    """While active, the functional convolutions of `owner` are computed by its AttendingCalls.

    Convolution layers that were left as they are stay so, also when they run inside it.
    """

    def __init__(self, owner: nn.Module):
        super().__init__()
        self.calls = owner.get_submodule(CHILD)
        assert isinstance(self.calls, AttendingCalls)
        self.left_alone = [module.weight for module in self.calls.left_alone]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` by attention if it is a convolution to convert."""
        kwargs = kwargs or {}
        if func not in FUNCTIONS:
            return func(*args, **kwargs)
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        if any(weight is other for other in self.left_alone):
            return func(*args, **kwargs)
        return self.calls(func, args, kwargs)


def enter(module: nn.Module, args: Any) -> None:
    """Forward pre-hook: starts redirecting."""
    redirection = Redirection(module)
    active.__dict__.setdefault("stack", []).append(redirection)
    redirection.__enter__()


def leave(module: nn.Module, args: Any, result: Any) -> None:
    """Forward hook, called after an error too: stops redirecting."""
    active.stack.pop().__exit__(None, None, None)


def redirect_calls(
    network: nn.Module, calls: Iterable[FunctionalCall], settings: Settings, left_alone: Sequence[nn.Module]
) -> None:
    """Makes the owners of `calls` compute their functional convolutions by attention, those of `left_alone` not."""
    owners: dict[str, AttendingCalls] = {}
    for call in calls:
        if call.owner not in owners:
            owners[call.owner] = AttendingCalls(settings, left_alone)
        if call.convolution is not None:
            owners[call.owner].layer_for(call.convolution).name = f"{call.owner or '(root)'}:{call.function}"
    for name, attending in owners.items():
        owner = network.get_submodule(name)
        owner.add_module(CHILD, attending)
        owner.register_forward_pre_hook(enter, prepend=True)
        owner.register_forward_hook(leave, always_call=True)
