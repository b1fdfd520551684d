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


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Fused attention as scores, a softmax and a sum of values; its second result serves gradients alone."""
    # Several queries may share a head of keys and values.
    if q.dim() > 3 and (groups := q.shape[-3] // k.shape[-3]) > 1:
        k, v = (t.repeat_interleave(groups, -3) for t in (k, v))
    scores = q * (q.shape[-1] ** -0.5 if scale is None else scale) @ k.mT
    if causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    return scores.softmax(-1) @ v, q


COMPOSED: dict[str, Callable[..., Any]] = {
    "silu": lambda x: x * x.sigmoid(),
    "mish": lambda x: x * F.softplus(x).tanh(),
    "log_sigmoid_forward": lambda x: (-F.softplus(-x), x),
    "hardsigmoid": lambda x: F.relu6(x + 3) / 6.0,
    "hardswish": lambda x: x * (F.relu6(x + 3) / 6.0),
    "glu": gated_linear_unit,
    "_log_softmax": lambda x, axis, _: x - x.logsumexp(axis, keepdim=True),
    "_scaled_dot_product_flash_attention_for_cpu": attention,
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
