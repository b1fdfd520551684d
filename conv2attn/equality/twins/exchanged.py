"""Runs a network with the layers of another, such that its own code cannot notice the exchange.

A layer of such a copy is still the original convolution in its class, its attributes, and the form of its output
(strides, fresh memory, requires_grad). Its numbers are those of the other network's layer. So the layers are equal by
construction, and twins return equal bits unless the code between the layers notices a difference.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.equality.layers.compared_layers import own, softened_module, with_weights
from conv2attn.equality.layers.rows import LayerPair
from conv2attn.equality.twins.walked_modules import attending, is_layer, modules_outside_layers
from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution
from conv2attn.networks.conversion.functional import FUNCTIONS, convolution_of_call, geometry_of
from conv2attn.networks.conversion.redirection import AttendedForward
from conv2attn.networks.copies import copy_network


def with_layers_of_the_first(
    networks: tuple[nn.Module, nn.Module], same: Collection[str]
) -> tuple[nn.Module, nn.Module]:
    """Copies of both networks, where the second uses the first's layers if these are the same maps.

    Args:
        same: the names of layers, and of owners of functional convolutions, that are the same maps.
    """
    first, second = (copy_network(network) for network in networks)
    ours = modules_outside_layers(first)
    for name, module in modules_outside_layers(second).items():
        forward = vars(module).get("forward")
        if attending(module) is not None and name in same and isinstance(forward, AttendedForward):
            vars(module).pop("forward")
            if forward.replaced is not None:
                vars(module)["forward"] = forward.replaced
        elif is_layer(module) and name in same:
            vars(module)["forward"] = partial(own, ours[name])
    return first, second


@final
class Exchanged(TorchFunctionMode):
    """A copy of the first network whose layers return the numbers of those of a copy of the second.

    Its modules stay unchanged except for the forward of each layer; a functional convolution is identified by the
    module whose forward calls it. The layers are measured as they run; unless `carrying`, they return their own
    numbers.
    """

    def __init__(
        self, first: nn.Module, second: nn.Module, pairs: Mapping[str, list[LayerPair]], *, carrying: bool = True
    ):
        super().__init__()
        self.network, self.owners = first, dict[int, FunctionNumbers]()
        theirs = modules_outside_layers(second)
        ours = modules_outside_layers(first)
        self.layers = {
            id(module) for name, module in ours.items() if is_layer(module) and attending(theirs.get(name)) is None
        }
        for name, module in ours.items():
            other, measured = theirs.get(name), pairs.get(name, [])
            if other is None:
                continue
            if (calls := attending(other)) is not None:
                self.owners[id(module)] = FunctionNumbers(calls, measured, carrying)
            elif is_layer(module) and is_layer(other):
                vars(module)["forward"] = LayerNumbersOf(module, other, measured, carrying).forward

    def __call__(self, *images: Tensor, **named: Any) -> Any:
        """The outputs of the network."""
        with self if self.owners else nullcontext():
            return self.network(*images, **named)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; a functional convolution gets the numbers of the attention that replaces it."""
        if func not in FUNCTIONS or (numbers := self.numbers()) is None:
            return func(*args, **(kwargs or {}))
        if FUNCTIONS[func][0] in numbers.untouched:
            return func(*args, **(kwargs or {}))
        try:
            convolution = convolution_of_call(func, args, kwargs or {})
        except UnsupportedError:
            return func(*args, **(kwargs or {}))
        image = args[0] if args else (kwargs or {})["input"]
        return numbers(convolution, image, partial(func, *args, **(kwargs or {})))

    def numbers(self) -> "FunctionNumbers | None":
        """The numbers for the module whose forward runs; None within a layer."""
        # A function has no reference to its caller, so its owner is the innermost module on the stack whose forward
        # runs.
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(owner, (LayerNumbersOf, FunctionNumbers)) or id(owner) in self.layers:
                return None
            if isinstance(owner, nn.Module) and id(owner) in self.owners:
                return self.owners[id(owner)]
            frame = frame.f_back  # type: ignore[assignment]
        return None


@final
class LayerNumbersOf:
    """The forward of a layer whose output has its own form and the numbers of another layer."""

    def __init__(self, layer: nn.Module, other: nn.Module, pairs: list[LayerPair], carrying: bool):
        self.layer, self.other, self.pairs, self.carrying = layer, other, pairs, carrying

    def forward(self, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        """The output; records the difference of both layers."""
        # Its own result first: later code may read its strides, fresh memory and gradients.
        result: Tensor = type(self.layer).forward(self.layer, input, *rest, **keywords)
        image = input.detach()

        def numbers(layer: nn.Module) -> Tensor:
            return own(layer, image, *rest, **keywords)

        return carried(result, self.other, numbers, self.pairs, image, carrying=self.carrying)


@final
class FunctionNumbers:
    """Computes a functional convolution, and gives its result the numbers of the attention that replaces it."""

    def __init__(self, calls: Any, pairs: list[LayerPair], carrying: bool):
        self.calls, self.carrying, self.untouched = calls, carrying, calls.untouched
        # A function may be called with several geometries; the pairs are in the same order.
        geometries = [*calls.geometries, *calls.later_layers]
        self.by_geometry = dict(zip(geometries, pairs, strict=False))

    def __call__(self, convolution: Convolution, image: Tensor, plain: "partial[Tensor]") -> Tensor:
        """The output of one call."""
        result = plain()
        layer = self.calls.layer_for(convolution)
        pairs = [pair] if (pair := self.by_geometry.get(geometry_of(convolution))) else []
        for each in pairs if measuring() else ():
            each.called_with(convolution)

        def numbers(layer: nn.Module) -> Tensor:
            return with_weights(layer, image, convolution)

        return carried(result, layer, numbers, pairs, image, carrying=self.carrying)


def measuring() -> bool:
    """Whether layers are measured: only in the mode without gradients."""
    return not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def carried(
    result: Tensor,
    other: nn.Module,
    numbers: Callable[[nn.Module], Tensor],
    pairs: list[LayerPair],
    image: Tensor,
    *,
    carrying: bool,
) -> Tensor:
    """The result of a layer with the numbers of the other's; the difference of both layers is counted."""
    for pair in pairs if measuring() else ():
        pair.measure(result.detach(), partial(numbers, softened_module(other)), image)
    return with_numbers(result, numbers(other)) if carrying else result


def with_numbers(result: Tensor, numbers: Tensor) -> Tensor:
    """A result with other numbers in its memory.

    Raises:
        TypeError: the numbers have another shape or dtype.
    """
    if numbers.shape != result.shape or numbers.dtype != result.dtype:
        theirs, ours = (f"{tuple(each.shape)} of {each.dtype}" for each in (numbers, result))
        raise TypeError(f"a layer returns {theirs}, not {ours}")
    result.data.copy_(numbers.detach())
    return result


def has_attention(network: nn.Module) -> bool:
    """Whether a network holds attention of this package."""
    return any(isinstance(module, MultiHeadSelfAttention) or attending(module) for module in network.modules())
