"""Rules of activations that are made of others, so that code that writes them out is the same function."""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.largest import clamped
from conv2attn.equality.worlds.shadows import Shadow
from conv2attn.equality.worlds.steps import Step, shadow_rule

SOFTPLUS = "softplus beta=1.0 threshold=20.0"


@shadow_rule("silu")
def silu(step: Step) -> Any:
    """x sigmoid(x)."""
    return step.across(torch.mul, step.x, step.oracle("sigmoid", step.x))


@shadow_rule("mish")
def mish(step: Step) -> Any:
    """x tanh(softplus(x))."""
    return step.across(torch.mul, step.x, step.oracle("tanh", step.oracle(SOFTPLUS, step.x)))


@shadow_rule("log_sigmoid_forward")
def log_of_sigmoid(step: Step) -> Any:
    """-softplus(-x)."""
    return [step.across(torch.neg, step.oracle(SOFTPLUS, step.across(torch.neg, step.x))), None]


@shadow_rule("hardsigmoid")
def hardsigmoid(step: Step) -> Any:
    """relu6(x + 3) / 6."""
    shifted = clamped(step, step.across(lambda t: t + 3, step.x), 0, 6)
    return step.across(torch.div, shifted, step.shadow(6.0))


@shadow_rule("hardswish")
def hardswish(step: Step) -> Any:
    """x hardsigmoid(x)."""
    return step.across(torch.mul, step.x, hardsigmoid(step))


@shadow_rule("glu")
def gated_linear_unit(step: Step) -> Any:
    """One half of the channels times the sigmoid of the other."""
    value, gate = step.across(lambda t: t.chunk(2, step.bound["dim"]), step.x)
    return step.across(torch.mul, value, step.oracle("sigmoid", gate))


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
