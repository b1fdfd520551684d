"""Rules of maxima and minima, of the order of numbers, and of bounds."""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.all_copies import wide
from conv2attn.equality.worlds.shadows import LEAST, Shadow, Unfollowed, is_number
from conv2attn.equality.worlds.steps import Step, is_single, shadow_rule

LARGEST = (
    *("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("amax", "amin", "max", "min", "maximum", "minimum"),
)
EXCHANGED = (2, 3)  # worlds in which minima replace maxima, so that numbers that rarely win count too


@shadow_rule(*LARGEST)
def maximum(step: Step) -> Any:
    """A maximum, which is a minimum in two more worlds. With a constant bound it is a function of one number."""
    if step.name in ("maximum", "minimum"):
        for x, bound in (step.args[::-1], step.args):
            if is_single(bound) and bound.of(0).dim() <= x.of(0).dim():
                limit = float(bound.of(0))
                return clamped(step, x, *((limit, None) if step.name == "maximum" else (None, limit)))
    result = exchanged(step)
    values = result[0] if isinstance(result, list) else result
    axis = step.bound.get("dim")
    axes = axis if isinstance(axis, list) else [axis]
    if step.bound.get("keepdim") and step.name in ("amax", "max") and len(axes) == 1:
        values.centre(step.x, axes[0], step.plain[0], step.out if isinstance(step.out, Tensor) else step.out[0])
    return result


@shadow_rule("scatter_reduce", "index_reduce")
def reduced_by_groups(step: Step) -> Any:
    """Sums, means and products of groups are computed; maxima and minima as along an axis."""
    if step.bound["reduce"] not in ("amax", "amin"):
        return step.computed()
    return exchanged(step)


def exchanged(step: Step) -> Any:
    """The operator, on negated numbers in some worlds; minus infinity still never wins.

    One copy is negated at a time: a maximum has the largest tensors in many networks.
    """

    def turned(t: Any) -> Any:
        # A mask of -1e9 would win the minimum of every row, so it is excluded there too.
        return torch.where(t < LEAST, -math.inf, -t) if is_number(t) else t

    def largest(sign: float, *args: Any, **kwargs: Any) -> Any:
        if sign > 0:
            return wide(step.func)(*args, **kwargs)
        result = wide(step.func)(*map(turned, args), **kwargs)
        values, *places = [result] if isinstance(result, Tensor) else result
        values = torch.where(values == -math.inf, values, -values)
        return values if isinstance(result, Tensor) else [values, *places]

    worlds = max(step.watch.oracles.worlds, EXCHANGED[-1] + 1)
    signs = step.watch.oracles.spread([torch.tensor(-1.0 if w in EXCHANGED else 1.0) for w in range(worlds)])
    return step.across(largest, signs, *step.args, **step.kwargs)


def clamped(step: Step, x: Shadow, low: float | None, high: float | None) -> Shadow:
    """A clamp as one bound after the other, so that relu6 is a relu and a bound. Bounds are rounded as files do it."""
    low, high = (t if t is None else step.stored(t) for t in (low, high))
    # One lookup costs less than two. A network that writes the two bounds separately is left to the full run.
    if step.watch.oracles.quick and low is not None and high is not None:
        return step.oracle(f"clamp {low} {high}", x)
    if low is not None:
        x = step.oracle("relu" if low == 0 else f"clamp {low} None", x)
    return x if high is None else step.oracle(f"clamp None {high}", x)


@shadow_rule("clamp")
def clamp(step: Step) -> Any:
    """A clamp by two numbers."""
    bounds = step.bound["min"], step.bound["max"]
    if not all(t is None or is_single(t) for t in bounds):
        raise Unfollowed("clamp by tensors")
    return clamped(step, step.x, *(float(t.of(0)) if isinstance(t, Shadow) else t for t in bounds))


@shadow_rule("sort", "topk", "argmax", "argmin")
def order(step: Step) -> Any:
    """Sorts by the results of an oracle instead of the numbers, and returns the numbers in this order.

    Sorting the numbers themselves would test only those that come first, and rounding would decide between neighbours.
    All copies of a world have the same results, and so the same order.
    """
    results = step.oracle("order", step.x)
    chosen = step.across(wide(step.func), results, *step.args[1:], **step.kwargs)
    if isinstance(chosen, Shadow):
        return chosen
    places, axis = chosen[1], int(step.bound["dim"])
    values = step.across(lambda t, at: t.gather(axis, at) if t.dim() else t, step.x, places)
    return [values, places]
