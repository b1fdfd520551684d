"""Functions that are made of others, so that code that writes them out is the same function."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.equality.worlds.shadows import Shadow
from conv2attn.equality.worlds.steps import Step, shadow_rule


def gated_linear_unit(x: Tensor, axis: int = -1) -> Tensor:
    """One half of the channels times the sigmoid of the other."""
    value, gate = x.chunk(2, axis)
    return value * gate.sigmoid()


COMPOSED: dict[str, Callable[..., Any]] = {
    "aten::silu": lambda x: x * x.sigmoid(),
    "aten::mish": lambda x: x * F.softplus(x).tanh(),
    "aten::log_sigmoid_forward": lambda x: (-F.softplus(-x), x),
    "aten::hardsigmoid": lambda x: F.relu6(x + 3) / 6.0,
    "aten::hardswish": lambda x: x * (F.relu6(x + 3) / 6.0),
    "aten::glu": gated_linear_unit,
    "aten::_log_softmax": lambda x, axis, _: x - x.logsumexp(axis, keepdim=True),
}
"""Operators that are called as this code, in place of the network's own."""


@shadow_rule("gelu")
def gelu(step: Step) -> Any:
    """x (1 + erf(x / sqrt 2)) / 2, or its approximation by tanh."""
    if step.bound["approximate"] == "none":
        # Without a name, so that the argument is freed before the product is made.
        erf = step.oracle("erf", step.across(torch.mul, step.x, step.shadow(math.sqrt(0.5))))
        return step.across(halved_sum, step.x, erf)
    factors = step.shadow(0.044715), step.shadow(math.sqrt(2 / math.pi))
    inner = step.across(lambda t, c, r: r * (t + c * t**3), step.x, *factors)
    return step.across(halved_sum, step.x, step.oracle("tanh", inner))


def halved_sum(t: Tensor, e: Tensor) -> Tensor:
    """t (1 + e) / 2."""
    return torch.addcmul(t, t, e).mul_(0.5)


@shadow_rule("leaky_relu", "_prelu_kernel", "abs")
def slopes(step: Step) -> Any:
    """relu(x) - slope relu(-x): two slopes around 0."""
    if step.name == "leaky_relu":
        slope = step.shadow(step.bound["negative_slope"])
        step.watch.slopes.add(float(step.bound["negative_slope"]))
    else:
        slope = step.args[1] if step.name == "_prelu_kernel" else step.shadow(-1.0)
    below: Shadow = step.oracle("relu", step.across(torch.neg, step.x))

    def joined(p: Tensor, q: Tensor, s: Tensor) -> Tensor:
        return p - s * q

    return step.across(joined, step.oracle("relu", step.x), below, slope)
