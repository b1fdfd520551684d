"""A bound carried beside each value of a walk: how large its numbers are, and how far two networks are apart there.

The graphs of both are equal, so that an error passes through each operator by a rule of its own, and each side rounds.
For all inputs in a range this bounds the difference of the networks; on deep networks it says nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any, final

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from conv2attn.attention.hardness import FORMAT_NAMES
from conv2attn.attention.measured_arithmetic import arithmetics, thread_flushes
from conv2attn.bounds import format_of, gamma, worst
from conv2attn.equality.context.graph import (
    OperatorGraph,
    arguments_of,
    enclosing_module,
    name_of,
    number_of,
    operator_schema,
    written_by,
)
from conv2attn.equality.context.opaque import OPAQUE, Layer
from conv2attn.equality.context.walk import Compute, Walk
from conv2attn.equality.rounding import SLACK
from conv2attn.errors import UsageError

SHAPES = ("sym_size", "sym_numel", "sym_stride", "_assert_tensor_metadata", "_assert_scalar", "_assert_async")
MAKING = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")


class Stop(Exception):
    """The bound cannot be carried through something."""


@final
@dataclass(frozen=True)
class Carried:
    """The largest magnitude in the first network, and the largest difference from it in the second."""

    size: float
    error: float = 0.0

    @property
    def reach(self) -> float:
        """The largest magnitude in either network."""
        return (self.size + self.error) * SLACK

    def times(self, factor: float, summand: float = 0.0) -> "Carried":
        """These bounds after a multiplication by at most `factor`, and a sum with the same number in both networks."""
        return Carried((self.size * factor + summand) * SLACK, self.error * factor * SLACK)

    def rounded(self, operations: int, dtype: torch.dtype) -> "Carried":
        """These bounds after each side rounded so many times in a row.

        Below the normal numbers each operation loses less than the smallest of these.
        """
        if dtype not in FORMAT_NAMES:
            raise Stop(f"numbers of {dtype}")
        form = format_of(FORMAT_NAMES[dtype])
        try:
            return self.apart(gamma(operations, form.unit_roundoff) * self.reach + operations * form.smallest_normal)
        except UsageError:
            raise Stop(f"{operations} roundings in a row in {form.name}") from None

    def apart(self, one_side: float) -> "Carried":
        """These bounds if each side is off by so much."""
        return Carried((self.size + one_side) * SLACK, (self.error + 2 * one_side) * SLACK)


LayerRule = Callable[[Carried], Carried]
RuleOf = Callable[[Layer], LayerRule | None]


@final
@dataclass(frozen=True, eq=False)
class Given:
    """A tensor as the argument of an operator; `bounds` are None where it does not come from the image."""

    value: Tensor
    bounds: Carried | None
    fake: Tensor


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A call of an operator with its arguments by name, defaults filled in, and what it returned."""

    name: str
    arguments: Mapping[str, Any]
    value: Any
    batch: Any

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what was returned."""
        dtype: torch.dtype = self.value.dtype
        return dtype

    def of(self, item: Any) -> Carried:
        """The bounds of a tensor, or of a number, which may be rounded to the dtype."""
        if not isinstance(item, Given):
            return Carried(abs(float(item)) * (1 + 2.0**-7))
        if item.bounds is not None:
            return item.bounds
        return Carried(item.value.detach().double().abs().max().item() if item.value.numel() else 0.0)

    def constants(self, *names: str) -> list[Any]:
        """The tensors of some arguments; stops where one comes from the image."""
        tensors = [self[name] for name in names]
        if any(isinstance(each, Given) and each.bounds is not None for each in tensors):
            raise Stop(f"{self.name} with numbers that are computed")
        return [each.value.detach().cpu().double() if isinstance(each, Given) else each for each in tensors]

    def count(self, axes: Any) -> int:
        """The number of entries joined along some axes of the first argument; along all axes for None or an empty list.

        Stops where one of them holds several images, for which no bound of one image holds.
        """
        listed = [] if axes is None else list(axes) if isinstance(axes, list | tuple | range) else [axes]
        counted = listed or range(self.first.fake.ndim)
        sides = [self.first.fake.shape[axis] for axis in counted]
        if any(isinstance(side, torch.SymInt) and self.batch in side.node.expr.free_symbols for side in sides):
            raise Stop(f"{self.name} over the images")
        return math.prod(self.first.value.shape[axis] for axis in counted)


BOUND_RULES: dict[str, Callable[[Step], Any]] = {}


class BoundWalk(Walk):
    """A walk that carries the bounds of each node that comes from the image: None, or a list, where it is no tensor.

    Where subnormal numbers are flushed none is given, since what is lost then without any rounding is not counted.

    Args:
        rule: how a layer carries a bound on, asked after it was computed; None where nothing is known.
        reach: of the images.
    Attributes:
        bound: the largest error of all outputs; `stopped` says where the bounds end, and is empty where they do not.
    """

    def __init__(self, graph: OperatorGraph, compute: Compute, rule: RuleOf, reach: float):
        super().__init__(graph, compute)
        self.rule, self.reach, self.bound, self.stopped = rule, reach, 0.0, ""
        self.bounds: dict[fx.Node, Any] = {}
        self.batch: Any = None
        if not math.isfinite(reach):
            self.stopped = "inputs that are not finite"
        if thread_flushes():
            self.stopped = "numbers that are flushed to zero"

    def run_node(self, n: fx.Node) -> Any:
        """Computes a node, and the bounds of what it returns."""
        value = super().run_node(n)
        if not self.stopped:
            with _disable_current_modes():  # no operators of the network's
                self.carry(n, value)
        return value

    def carry(self, n: fx.Node, value: Any) -> None:
        """Keeps the bounds of what a node returned."""
        try:
            bounds = self.bounds_of(n, value)
            if bounds is not NotImplemented:
                self.bounds[n] = self.checked(value, bounds)
        except Stop as stop:
            self.stopped = f"{stop} in {enclosing_module(n)}" if enclosing_module(n) else str(stop)
        except Exception as error:  # a rule may meet anything
            self.stopped = f"an error ({type(error).__name__}) at {n.name}"

    def bounds_of(self, n: fx.Node, value: Any) -> Any:
        """The bounds of what a node returned; NotImplemented if it does not come from the image."""
        if n.op == "output":
            self.bound = max((self.error_of(each) for each in n.all_input_nodes), default=0.0)
            if not math.isfinite(self.bound):
                raise Stop("an infinite bound")
            return NotImplemented
        if n.op == "placeholder":
            side = n.meta["val"].shape[0] if n.name == self.source.image else None
            self.batch = side.node.expr if isinstance(side, torch.SymInt) else self.batch
            return Carried(self.reach) if side is not None else NotImplemented
        name, computed = name_of(n.target), [each for each in n.all_input_nodes if each in self.bounds]
        if n.target is getitem and computed:
            return self.bounds[computed[0]][n.args[1]]
        if not computed and torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()):
            raise Stop(f"{name}, which is random")
        if n.target is OPAQUE:
            return self.through_layer(n)
        if not computed or name in SHAPES or (name in MAKING and len(computed) == 1):
            return NotImplemented
        if any(self.bounds[each] is None for each in computed):
            raise Stop(f"{name} of numbers without a bound")
        if name not in BOUND_RULES:
            raise Stop("a graph inside the graph" if operator_schema(n) is None else name)
        arguments = arguments_of(n, self.given)
        bounds = BOUND_RULES[name](Step(name, arguments, value, self.batch))
        for each in written_by(n):
            self.change(arguments[each], bounds)
        return bounds

    def through_layer(self, n: fx.Node) -> Carried:
        """The bounds of what a layer returns: of constants too, since the layer of the second rounds otherwise."""
        image, weight, bias = (each for each in n.args[:3])
        rule = self.rule(self.source.layers[number_of(n)])
        if rule is None or weight in self.bounds or bias in self.bounds:
            raise Stop("a layer without a bound")
        assert isinstance(image, fx.Node)
        read = self.bounds.get(image) or Carried(self.env[image].detach().double().abs().max().item())
        return rule(read)

    def given(self, node: fx.Node) -> Any:
        """A node as the argument of a step."""
        value = self.env[node]
        return Given(value, self.bounds.get(node), node.meta["val"]) if isinstance(value, Tensor) else value

    def checked(self, value: Any, bounds: Any) -> Any:
        """The bounds of what a node returns, as long as they are numbers and it does not overflow."""
        if isinstance(bounds, list):
            return [self.checked(*pair) for pair in zip(value, bounds, strict=True)]
        if bounds is None or not isinstance(value, Tensor):
            return bounds
        if not math.isfinite(bounds.reach):
            raise Stop("an infinite bound")
        if value.dtype in FORMAT_NAMES and bounds.reach > format_of(FORMAT_NAMES[value.dtype]).largest:
            raise Stop(f"numbers of up to {bounds.reach:.3g}, beyond {FORMAT_NAMES[value.dtype]}")
        return bounds

    def change(self, target: Given, bounds: Carried) -> None:
        """Gives what shares memory with a tensor that is changed in place the larger of its bounds and the new ones."""
        if target.bounds is None:
            raise Stop("a change in place of what does not come from the image")
        place = target.value.untyped_storage().data_ptr()
        for node, value in self.env.items():
            before = self.bounds.get(node)
            tensors = [each for each in tree_leaves(value) if isinstance(each, Tensor) and each.numel()]
            if any(each.untyped_storage().data_ptr() == place for each in tensors):
                if not isinstance(before, Carried):
                    raise Stop("a change in place of what does not come from the image")
                self.bounds[node] = Carried(max(before.size, bounds.size), max(before.error, bounds.error))

    def error_of(self, node: fx.Node) -> float:
        """The largest error of an output."""
        if node not in self.bounds:
            return 0.0
        side = next(iter(node.meta["val"].shape), None)
        if self.bounds[node] is None:
            raise Stop("an output without a bound")
        if self.batch is not None and not (isinstance(side, torch.SymInt) and side.node.expr == self.batch):
            raise Stop("an output whose first axis is not that of the images")
        return float(self.bounds[node].error * SLACK)


# The operators of convolutional networks. At others a bound stops.


def bound_rule(*names: str) -> Callable[[Any], Any]:
    """Registers the rule of some operators, and of their forms in place; `{}` stands for 1, 2 and 3 axes."""

    def register(function: Any) -> Any:
        each_axes = (name.format(axes) for name in names for axes in (1, 2, 3))
        BOUND_RULES.update({form: function for name in each_axes for form in (name, f"{name}_")})
        return function

    return register


@bound_rule("flatten", "reshape", "view", "_unsafe_view", "unflatten", "squeeze", "unsqueeze", "permute", "transpose")
@bound_rule("t", "clone", "detach", "contiguous", "alias", "narrow", "select", "slice", "expand", "flip", "roll")
@bound_rule("pixel_shuffle")
def _(step: Step) -> Any:
    """Numbers are moved, repeated or left out."""
    return step.of(step.first)


@bound_rule("chunk", "split", "split_with_sizes", "unbind")
def _(step: Step) -> Any:
    return [step.of(step.first) for _ in step.value]


@bound_rule("cat", "stack")
def _(step: Step) -> Any:
    parts = [step.of(each) for each in step["tensors"]]
    return Carried(max(each.size for each in parts), max(each.error for each in parts))


@bound_rule("dropout", "feature_dropout", "alpha_dropout")
def _(step: Step) -> Any:
    if step["train"] and step["p"] != 0:
        raise Stop(f"{step.name} in training mode")
    return step.of(step.first)


@bound_rule("add", "sub")
def _(step: Step) -> Any:
    first, second = step.of(step.first), step.of(step["other"])
    factor = 1.0 if step["alpha"] is None else abs(step["alpha"])
    size, error = first.size + factor * second.size, first.error + factor * second.error
    return Carried(size * SLACK, error * SLACK).rounded(2, step.dtype)


@bound_rule("linear")
def _(step: Step) -> Any:
    """Each output is a sum of `in_features` products."""
    weight, bias = step.constants("weight", "bias")
    like, image = step["weight"].value, step.of(step.first)
    rounding = worst(arithmetics("dense", like.dtype, like.device.type)).rounding(weight.shape[1])
    rows, summand = weight.abs().sum(1).max().item() * SLACK, 0.0 if bias is None else bias.abs().max().item()
    passed = image.times(rows, summand)
    return passed.apart(rounding.factor * passed.reach + rounding.absolute)


@bound_rule("batch_norm")
def _(step: Step) -> Any:
    """(x - mean) weight / sqrt(variance + eps) + bias, all but x alike in both networks: six roundings, counted ten."""
    mean, variance, weight, bias = step.constants("running_mean", "running_var", "weight", "bias")
    if step["training"] or mean is None or variance is None:
        raise Stop("batch_norm in training mode")
    scale = (variance + step["eps"]).rsqrt() * SLACK * (1 if weight is None else weight.abs())
    shift = scale * mean.abs() + (0.0 if bias is None else bias.abs())
    return step.of(step.first).times(scale.max().item(), shift.max().item()).rounded(10, step.dtype)


@bound_rule("relu", "relu6", "leaky_relu")
def _(step: Step) -> Any:
    """Piecewise linear functions that keep 0, with slopes of at most 1 or as given."""
    slope = max(1.0, abs(float(step["negative_slope"] or 0.0)))
    return step.of(step.first).times(slope).rounded(1, step.dtype)


@bound_rule("clamp", "clamp_min", "clamp_max", "hardtanh")
def _(step: Step) -> Any:
    limits = [step[name] for name in ("min", "max", "min_val", "max_val") if step[name] is not None]
    if any(isinstance(each, Given) for each in limits):
        raise Stop(f"{step.name} between tensors")
    image = step.of(step.first)
    return Carried(max(image.size, *(step.of(each).size for each in limits)), image.error)


@bound_rule("max_pool{}d", "adaptive_max_pool{}d", "max_pool{}d_with_indices")
def _(step: Step) -> Any:
    """One of the numbers; its place has no bound."""
    return step.of(step.first) if isinstance(step.value, Tensor) else [step.of(step.first), None]


@bound_rule("mean", "avg_pool{}d", "adaptive_avg_pool{}d")
def _(step: Step) -> Any:
    """Means of a window, or of what of it lies on the image; zeros of the padding only make it smaller."""
    pooled = range(-int(step.name.partition("pool")[2][0]), 0) if "pool" in step.name else step["dim"]
    count, image = step.count(pooled), step.of(step.first)
    if step["divisor_override"] is not None:
        raise Stop("avg_pool with a divisor of its own")
    form = format_of(format_of(FORMAT_NAMES[step.dtype]).accumulator)
    if not image.reach * count <= form.largest:
        raise Stop(f"numbers of up to {image.reach * count:.3g} on the way in {step.dtype}")
    return image.rounded(count + 2, step.dtype)


@bound_rule("pad", "constant_pad_nd")
def _(step: Step) -> Any:
    """Around the image stands a constant, or a copy of some of its pixels."""
    step.count(range(-(len(step["pad"]) // 2), 0))
    constant = step.of(step["value"] or 0.0).size if step["mode"] in (None, "constant") else 0.0
    image = step.of(step.first)
    return Carried(max(image.size, constant), image.error)
