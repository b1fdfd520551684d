"""The parts of a licence beside its domain: the comparison with what is proved."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from flint import arb
from sympy import lambdify

from conv2attn.theory.basis import AttentionGrid, Sites


@dataclass(frozen=True)
class Licence:
    """A function that rests on a claim, whose `licenses` have its domain.

    Args:
        agrees: whether a function gives, for a case, what is proved.
        examples: how many cases are drawn.
        shape: from the parts of the domain to the case that `agrees` takes.
    """

    agrees: Callable[[Any, Any], bool]
    examples: int = 40
    shape: Callable[..., Any] = lambda *parts: parts


@lru_cache
def compiled(expr, names):
    return lambdify(names, expr)


def exact(expr, **values):
    """`expr` of a proof at exact values: sizes and scalars are numbers, tensors are sequences, counted from 1."""
    counted = {k: (None, *map(Fraction, v)) if isinstance(v, list | tuple) else v for k, v in values.items()}
    found = compiled(expr, tuple(values))(**counted)
    assert isinstance(found, int | Fraction)  # no float on the way
    return found


def ball(number):
    """An exact ball."""
    number = Fraction(number)
    return arb(number.numerator) / number.denominator


def sides_of(kernel, dilation, spare):
    """Sides of a grid that has so many keys beyond those of one kernel."""
    return tuple(d * (k - 1) + 1 + e for k, d, e in zip(kernel, dilation, spare, strict=True))


def sites_of(kernel, stride, dilation):
    """The query sites, by the formula and not by the function under test."""
    before = tuple(d * ((k - 1) // 2) for k, d in zip(kernel, dilation, strict=True))
    return Sites(stride, before, tuple(d * (k - 1) - b for k, d, b in zip(kernel, dilation, before, strict=True)))


def grid_of(kernel, stride, dilation, spare):
    """The grid with these sites."""
    return AttentionGrid(sides_of(kernel, dilation, spare), sites_of(kernel, stride, dilation))
