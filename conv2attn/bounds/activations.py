"""Lipschitz constants of the activation functions, rounded up, and what else bounds a value that passes through one.

Where the largest slope is no plain number it stands at an inflection, and a test certifies it by ball arithmetic: no
point of the line has a larger slope, and some point has almost as large a one.
"""

import math
from dataclasses import dataclass
from typing import final

LIBRARY = 64  # roundings that one exp, erf, log1p or tanh stands for: 20 ulps, that is 40 u, and 24 steps around it


@final
@dataclass(frozen=True)
class Activation:
    """Bounds on a function f of the real numbers, for every x and x'.

    Args:
        slope: |f(x) - f(x')| <= slope |x - x'|.
        at_zero: |f(0)|.
        largest: |f(x)| is never above this.
        width: |f(x) - f(x')| is never above this.
        roundings: |computed f(x) - f(x)| <= roundings u (|x| + 1), u of the format in which the result is stored.
        jump: what the function that is computed differs by from f beside that.
        saturates: the same without |x|, as where exp of a large number only decides between 0 and 1.
    """

    slope: float
    at_zero: float = 0.0
    largest: float = math.inf
    width: float = math.inf
    roundings: int = 0
    jump: float = 0.0
    saturates: bool = False


RELU = Activation(1.0)
SIGMOID = Activation(0.25, 0.5, 1.0, 1.0, LIBRARY, saturates=True)
TANH = Activation(1.0, 0.0, 1.0, 2.0, LIBRARY, saturates=True)
SOFTSIGN = Activation(1.0, 0.0, 1.0, 2.0, 4, saturates=True)
SINE = Activation(1.0, 0.0, 1.0, 2.0, LIBRARY)
COSINE = Activation(1.0, 1.0, 1.0, 2.0, LIBRARY)
ARCTANGENT = Activation(1.0, 0.0, 1.5708, 3.1416, LIBRARY, saturates=True)
ERF = Activation(1.1283792, 0.0, 1.0, 2.0, LIBRARY, saturates=True)  # 2 / sqrt(pi), at 0
LOG_SIGMOID = Activation(1.0, 0.69314719, roundings=2 * LIBRARY)  # log 2 at 0
GELU = Activation(1.1289042, roundings=LIBRARY)  # Phi(x) + x phi(x), at sqrt(2)
GELU_TANH = Activation(1.1289931, roundings=LIBRARY)  # near 1.4185
SILU = Activation(1.0998394, roundings=LIBRARY)  # at the root 2.3994 of x tanh(x / 2) = 2
MISH = Activation(1.0884982, roundings=3 * LIBRARY)  # near 1.4906
HARDSWISH = Activation(1.5, roundings=4)  # x (x + 3) / 6 has slope (2 x + 3) / 6, at 3
HARDSIGMOID = Activation(1 / 6 + 2.0**-54, 0.5, 1.0, 1.0, 4, saturates=True)
TANHSHRINK = Activation(1.0, roundings=LIBRARY)
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def clipped(low: float, high: float) -> Activation:
    """min(max(x, low), high), as hardtanh, relu6 and clamp; not rounded."""
    at_zero = abs(min(max(0.0, low), high))
    return Activation(1.0, at_zero, max(abs(low), abs(high)), max(0.0, high - low))


def leaky(slope: float) -> Activation:
    """max(x, 0) + slope min(x, 0)."""
    return Activation(max(1.0, abs(slope)), roundings=2)


def elu(alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Activation:
    """scale (max(x, 0) + alpha (exp(input_scale min(x, 0)) - 1)), whose slope is largest at 0, from either side."""
    steep = max(1.0, abs(alpha * input_scale)) * abs(scale) * (1 + 2.0**-50)
    return Activation(steep, roundings=math.ceil(LIBRARY * max(1.0, abs(scale)) * max(1.0, abs(alpha))))


def softplus(beta: float = 1.0, threshold: float = 20.0) -> Activation:
    """log(1 + exp(beta x)) / beta, taken to be x where beta x > threshold, which is a jump of log(1 + e^-threshold)."""
    roundings = math.ceil(2 * LIBRARY * max(1.0, 1 / abs(beta)))
    return Activation(1.0, 0.69314719 / abs(beta), roundings=roundings, jump=math.exp(-threshold) / abs(beta))


def softshrink(threshold: float = 0.5) -> Activation:
    """x less `threshold` towards 0."""
    return Activation(1.0, roundings=1) if threshold >= 0 else Activation(math.inf)
