"""Licences of the thresholds of alpha: which weights round to 0, by balls around the exponentials."""

import math

from flint import arb, ctx
from licences.cases import Licence, ball

from conv2attn.theory.bounds import FORMATS
from proofs.A46 import AUTO
from proofs.A46 import FORMATS as PROVED

STORED = {name: name if name in PROVED else "float32" for name in FORMATS}  # tf32 and bf32 are stored in float32
SUMMED = {name: "float64" if name == "float64" else "float32" for name in FORMATS}


def power_of_two(exponent):
    return arb(2) ** exponent


def rounds_to_zero(alpha, name):
    """e^-alpha is below half of the smallest subnormal, 2^(emin - p)."""
    precision, lowest = PROVED[STORED[name]]
    return bool((-ball(alpha)).exp() < power_of_two(lowest - precision))


def flushed(alpha, name):
    """Below the smallest normal number of the format in which the softmax is computed, or rounded to 0 by a cast."""
    return bool((-ball(alpha)).exp() < power_of_two(PROVED[SUMMED[name]][1])) or rounds_to_zero(alpha, name)


def spacing(alpha, name):
    return 2.0 ** (math.frexp(alpha)[1] - PROVED[STORED[name]][0])


def is_the_first(function, case):
    """The alpha is a number of the format, serves, and the number before it does not."""
    name, flush = case
    alpha, serves = function(name, flush), flushed if flush else rounds_to_zero
    with ctx.workprec(200):
        step = spacing(alpha, name)
        return alpha % step == 0 and serves(alpha, name) and not serves(alpha - step, name)


def is_automatic(function, case):
    """The power of two of claim A46, which serves with gradual underflow and with flush to zero."""
    (name,) = case
    alpha = function(name)
    with ctx.workprec(200):
        return alpha == AUTO[STORED[name]] and rounds_to_zero(alpha, name) and flushed(alpha, name)


LICENCES = {
    ("A46", "theory.bounds.one_hot_threshold"): Licence(
        is_the_first,
        examples=80,
    ),
    ("A46", "theory.bounds.auto_alpha"): Licence(
        is_automatic,
    ),
}
