"""Functions of one number: an error grows by the slope at most."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import activations as known
from conv2attn.bounds import format_of, softmax_error
from conv2attn.bounds.activations import Activation
from conv2attn.equivalence.domain import SLACK, Carried, Stop
from conv2attn.equivalence.rules.registry import Call, rule, stored

PLAIN: dict[str, Activation] = {
    "relu": known.RELU,
    "relu6": known.clipped(0.0, 6.0),
    "abs": known.RELU,
    "neg": known.RELU,
    "sigmoid": known.SIGMOID,
    "special_expit": known.SIGMOID,
    "tanh": known.TANH,
    "sin": known.SINE,
    "cos": known.COSINE,
    "atan": known.ARCTANGENT,
    "erf": known.ERF,
    "log_sigmoid": known.LOG_SIGMOID,
    "silu": known.SILU,
    "mish": known.MISH,
    "hardswish": known.HARDSWISH,
    "hardsigmoid": known.HARDSIGMOID,
    "softshrink": known.softshrink(),
    "selu": known.elu(known.SELU_ALPHA, known.SELU_SCALE),
}
ON_THE_WAY = 8  # hardswish computes x min(x + 3, 6), and gelu x (1 + erf)


def activated(given: Carried, activation: Activation, dtype: torch.dtype, slope: Tensor | None = None) -> Carried:
    """The bounds of f(x), for `slope` in place of the activation's own if it differs from channel to channel."""
    steep = activation.slope if slope is None else slope
    if activation.roundings and not activation.saturates:
        given.below_overflow(ON_THE_WAY, dtype)
    through = Carried((given.size * steep + activation.at_zero) * SLACK, given.error * steep * SLACK)
    through = through.at_most(activation.largest, activation.width)
    largest = torch.ones(()) if activation.saturates else given.size + given.error + 1
    passed = through.rounded(activation.roundings, dtype, largest.double())
    return Carried(passed.size + activation.jump, (passed.error + 2 * activation.jump) * SLACK)


def of_function(choose: Callable[[Call], Activation]) -> Callable[[Call], Carried]:
    """The rule of a function that is the activation chosen by its arguments."""
    return lambda call: activated(call.given, choose(call), call.dtype)


for _name, _activation in PLAIN.items():
    rule(_name)(of_function(lambda call, activation=_activation: activation))  # type: ignore[misc]


@rule("hardtanh")
@of_function
def _(call: Call) -> Activation:
    return clipped(call.argument("min_val", -1.0), call.argument("max_val", 1.0), call.dtype)


def clipped(low: float, high: float, dtype: torch.dtype) -> Activation:
    """Between two numbers, each of which may be rounded to a dtype."""
    return known.clipped(min(stored(float(low), dtype)), max(stored(float(high), dtype)))


@rule("clamp", "clip", "clamp_min", "clamp_max")
@of_function
def _(call: Call) -> Activation:
    low, high = call.argument("min"), call.argument("max")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise Stop("clamp to tensors")
    least, most = -torch.inf if low is None else float(low), torch.inf if high is None else float(high)
    if least > most:
        limit = max(map(abs, stored(most, call.dtype)))
        return Activation(0.0, limit, limit, 0.0)
    return clipped(least, most, call.dtype)


@rule("leaky_relu")
@of_function
def _(call: Call) -> Activation:
    return known.leaky(float(call.argument("negative_slope", 0.01)))


@rule("rrelu")
@of_function
def _(call: Call) -> Activation:
    if call.argument("training"):
        raise Stop("rrelu in training mode")
    return known.leaky((call.argument("lower", 1 / 8) + call.argument("upper", 1 / 3)) / 2 * SLACK)


@rule("elu")
@of_function
def _(call: Call) -> Activation:
    scales = (call.argument(name, 1.0) for name in ("alpha", "scale", "input_scale"))
    return known.elu(*map(float, scales))


@rule("celu")
@of_function
def _(call: Call) -> Activation:
    alpha = float(call.argument("alpha", 1.0))
    if alpha <= 0:
        raise Stop("celu that grows like exp")
    return known.elu(alpha, 1.0, 1 / alpha)


@rule("gelu")
@of_function
def _(call: Call) -> Activation:
    return known.GELU_TANH if call.argument("approximate") == "tanh" else known.GELU


@rule("softplus")
@of_function
def _(call: Call) -> Activation:
    return known.softplus(float(call.argument("beta", 1.0)), float(call.argument("threshold", 20.0)))


@rule("prelu")
def _(call: Call) -> Carried:
    weight: Any = call.argument("weight")
    slopes = call.bounds(weight)
    if call.computed(weight):
        raise Stop("prelu with a slope that is computed")
    steep = slopes.size.clamp(min=1.0)
    return activated(call.given, known.leaky(steep.max().item()), call.dtype, call.per_channel(steep))


@rule("softmax")
def _(call: Call) -> Carried:
    """No weight p moves by more than max |x - x'| / 2, since dp_i = p_i (dx_i - sum_j p_j dx_j) <= 2 p_i (1 - p_i)."""
    given, count = call.given, call.tensor.shape[call.argument("dim")]
    form = format_of(FORMATS[call.dtype])
    off = min(1.0, softmax_error(count, form.name, 2 * form.unit_roundoff * given.reach))
    worst = given.largest_over(range(given.error.ndim)).error / 2 + 2 * off
    return Carried(torch.full_like(worst, 1.0 + off), worst.clamp(max=1 + 2 * off) * SLACK)


@rule("log_softmax")
def _(call: Call) -> Carried:
    """No log p moves by more than 2 max |x - x'|, nor is |log p| above 2 max |x| + log n."""
    given, count = call.given, call.tensor.shape[call.argument("dim")]
    whole = given.largest_over(range(given.size.ndim))
    log_count = torch.tensor(float(count), dtype=torch.float64).log() * SLACK
    bounds = Carried((2 * whole.size + log_count) * SLACK, 2 * whole.error * SLACK)
    return bounds.rounded(count + 2 * known.LIBRARY, call.dtype, bounds.size + bounds.error + 1)
