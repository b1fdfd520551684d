"""A bound on the difference of two networks' outputs, carried through their layers; on deep networks it is vacuous.

Every value is described per channel by how large it can be (`size`) and by how much the second network's can differ
from the first's (`error`), both for all finite inputs in the range. Between the compared layers both networks do the
same, so there an error only passes through (Lipschitz constant 1, or the weights' absolute values), and each side
rounds.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import convolution_bound, format_of, gamma
from conv2attn.models.discovery import LayerTracer, copy_network

SLACK = 1 + 2.0**-30
PASSING = (nn.ReLU, nn.ReLU6, nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d)
MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


@final
@dataclass(frozen=True, eq=False)
class Carried:
    """Per channel, in float64: the largest magnitude in the first network, and the largest difference."""

    size: Tensor
    error: Tensor

    @property
    def reach(self) -> float:
        """The largest magnitude in either network."""
        return (self.size + self.error).max().item() * SLACK


class Stop(Exception):
    """The bound cannot be carried through something."""

    def __init__(self, where: str):
        super().__init__(where)
        self.where = where


LayerRule = Callable[[Carried], Carried]


def propagate(
    original: nn.Module, layers: Mapping[str, LayerRule], images: Tensor, input_range: float
) -> tuple[float | None, str]:
    """The bound on the difference of the outputs for inputs within +-input_range, or None and where it stops.

    Args:
        layers: for the compared layers, by name, how what goes in becomes what comes out.
    """
    if not math.isfinite(input_range):
        return None, "inputs that are not finite"
    try:
        trial = copy_network(original)
        graph = fx.GraphModule(trial, LayerTracer().trace(trial))
        with torch.no_grad():
            carrier = Carrier(graph, layers, input_range)
            carrier.run(images[:1])
        bound = carrier.last.error.max().item() * SLACK
        return (bound, "") if math.isfinite(bound) else (None, "an infinite bound")
    except Stop as stop:
        return None, stop.where
    except Exception as error:  # tracing runs the network's own code on symbols, which may raise anything
        return None, f"tracing ({type(error).__name__})"


class Carrier(fx.Interpreter):
    """Runs the first network for its shapes, and carries the bounds along."""

    def __init__(self, graph: fx.GraphModule, layers: Mapping[str, LayerRule], input_range: float):
        super().__init__(graph)
        self.layers, self.input_range = layers, input_range
        self.carried: dict[fx.Node, Carried] = {}
        self.last: Carried

    def run_node(self, n: fx.Node) -> Any:
        """The value of a node; its bound is noted."""
        value = super().run_node(n)
        if n.op == "placeholder":
            size = torch.full((value.shape[1],), self.input_range, dtype=torch.float64)
            self.carried[n] = Carried(size, torch.zeros_like(size))
        elif n.op == "output":
            if not isinstance(n.args[0], fx.Node):
                raise Stop("an output that is not one tensor")
            self.last = self.carried[n.args[0]]
        elif n.op != "get_attr" and isinstance(value, Tensor):
            given = [self.carried[node] for node in n.all_input_nodes if node in self.carried]
            seen = [self.env.get(node) for node in n.all_input_nodes]
            shape = next((tuple(each.shape) for each in seen if isinstance(each, Tensor)), ())
            self.carried[n] = refit(self.rule(n, given, shape), value)
        return value

    def rule(self, n: fx.Node, given: list[Carried], shape: tuple[int, ...]) -> Carried:
        """What a node makes of the bounds of what it reads."""
        if n.op == "call_module":
            if n.target in self.layers:
                return self.layers[str(n.target)](given[0])
            return through(self.fetch_attr(str(n.target)), given[0], shape, self.dtype)
        if n.target in (operator.add, operator.iadd, torch.add, "add", "add_") and len(given) == 2 and not n.kwargs:
            first, second = given
            size = (first.size + second.size) * SLACK
            rounding = 2 * format_of(FORMATS[self.dtype]).unit_roundoff
            return Carried(size, (first.error + second.error + rounding * (size + first.error + second.error)) * SLACK)
        if n.target in (F.relu, torch.relu, torch.flatten, "flatten", "relu", "relu_", "contiguous"):
            return given[0]
        if n.target in (torch.mean, "mean") and len(given) == 1 and keeps_channels(n, len(shape)):
            return averaged(given[0], math.prod(shape), self.dtype)
        raise Stop(str(n.target) if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target)))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the network."""
        return next(parameter.dtype for parameter in self.module.parameters() if parameter.is_floating_point())


def keeps_channels(n: fx.Node, dimensions: int) -> bool:
    """Whether a reduction says over which axes it goes, and neither images nor channels are among them."""
    axes = n.kwargs.get("dim", n.args[1] if len(n.args) > 1 else None)
    chosen = axes if isinstance(axes, list | tuple) else [axes]
    return all(isinstance(axis, int) and axis % dimensions >= 2 for axis in chosen)


def refit(carried: Carried, value: Tensor) -> Carried:
    """The bounds for the channels of `value`, of one image: repeated where a flattening joined them with the grid."""
    channels, now = len(carried.size), value.shape[1] if value.ndim > 1 else 1
    if channels == now and value.shape[0] == 1:
        return carried
    if now % channels or value.shape[0] != 1:
        raise Stop(f"a tensor of shape {tuple(value.shape)}")
    each = now // channels
    return Carried(carried.size.repeat_interleave(each), carried.error.repeat_interleave(each))


@singledispatch
def through(module: nn.Module, given: Carried, shape: tuple[int, ...], dtype: torch.dtype) -> Carried:
    """What a layer that is the same in both networks makes of a bound."""
    if isinstance(module, PASSING + POOLS) and not (module.training and "Dropout" in type(module).__name__):
        return given
    if isinstance(module, MEANS):
        return averaged(given, math.prod(shape[2:]), dtype)
    raise Stop(type(module).__name__)


def averaged(given: Carried, count: int, dtype: torch.dtype) -> Carried:
    """A mean of at most `count` numbers, formed on both sides."""
    rounding = 2 * gamma(count + 2, format_of(FORMATS[dtype]).unit_roundoff)
    return Carried(given.size * SLACK, (given.error + rounding * (given.size + given.error)) * SLACK)


@through.register
def _(module: nn.Linear, given: Carried, shape: tuple[int, ...], dtype: torch.dtype) -> Carried:
    kind = FORMATS[module.weight.dtype]
    rounding = convolution_bound(module.in_features, kind, bias=True, casts=2)
    weight = module.weight.detach().cpu().double().abs()
    return affine(weight, module.bias, given, 2 * rounding.factor, 2 * rounding.absolute)


@through.register(nn.BatchNorm1d)
@through.register(nn.BatchNorm2d)
@through.register(nn.BatchNorm3d)
def _(module: nn.BatchNorm2d, given: Carried, shape: tuple[int, ...], dtype: torch.dtype) -> Carried:
    if module.training or module.running_var is None or module.running_mean is None:
        raise Stop("BatchNorm in training mode")
    scale = (module.running_var.cpu().double() + module.eps).rsqrt() * SLACK
    if module.weight is not None:
        scale = scale * module.weight.detach().cpu().double().abs()
    shift = scale * module.running_mean.cpu().double().abs()
    if module.bias is not None:
        shift = shift + module.bias.detach().cpu().double().abs()
    size = (scale * given.size + shift) * SLACK
    rounding = 2 * gamma(10, format_of(FORMATS[module.running_mean.dtype]).unit_roundoff)
    error = scale * given.error
    return Carried(size, (error + rounding * (size + error)) * SLACK)


def affine(weight: Tensor, bias: Tensor | None, given: Carried, factor: float, absolute: float) -> Carried:
    """`|W|` applied to both bounds, and each side's rounding."""
    size = weight @ given.size
    if bias is not None:
        size = size + bias.detach().cpu().double().abs()
    error = weight @ given.error
    return Carried(size * SLACK, (error + factor * (size + error) + absolute) * SLACK)
