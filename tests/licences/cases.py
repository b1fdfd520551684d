"""The parts of a licence: its domain as a strategy, the comparison with what is proved, and wrong functions."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

from flint import arb
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from licences.domains import cases, domain_of
from sympy import Indexed, Integer, Rational, sympify

from conv2attn.basis import Sites
from proofs.domain import Domain
from proofs.points import terms


@dataclass(frozen=True)
class Licence:
    """A function that rests on a claim.

    Args:
        cases: what the claim and the licence name as its domain.
        agrees: whether a function gives, for a case, what is proved.
        mutants: wrong functions, at least one for each branch; each must disagree on some case.
        examples: how many cases are drawn, and six times as many at most to show a mutant wrong.
        domain: the domain as data, where it is; `cases` are then drawn from it, and plants generated.
        shape: from the arguments of the function to the case that `agrees` takes.
    """

    cases: SearchStrategy[Any]
    agrees: Callable[[Any, Any], bool]
    mutants: dict[str, Any]
    examples: int = 40
    domain: Domain | None = None
    shape: Callable[..., Any] = lambda *arguments: arguments

    @staticmethod
    def over(claim, name, agrees, mutants, examples=40, shape=lambda *arguments: arguments):
        """The licence of a function whose domain is data."""
        domain = domain_of(claim, name)
        return Licence(cases(domain).map(lambda case: shape(*case)), agrees, mutants, examples, domain, shape)


def exact(expr, **values):
    """`expr` of a proof at exact values: sizes and scalars are numbers, tensors are sequences."""
    scalars = {name: sympify(v) for name, v in values.items() if not isinstance(v, (list, tuple))}
    total = Integer(0)
    for bound, monomial in terms(expr):
        for place in product(*(range(1, 1 + int(scalars[size.name])) for size in bound.values())):
            value = monomial.xreplace({k: Integer(v) for k, v in zip(bound, place, strict=True)})
            value = value.replace(lambda e: isinstance(e, Indexed), lambda e: entry(values[e.base.name], e.indices))
            total += value.xreplace({symbol: scalars[symbol.name] for symbol in value.free_symbols})
    return total


def entry(tensor, indices):
    return Rational(reduce(lambda inner, index: inner[int(index) - 1], indices, tensor))


def ball(number):
    """An exact ball."""
    number = Fraction(number)
    return arb(number.numerator) / number.denominator


DYADIC = st.integers(-12, 12).map(lambda n: n / 4)
SHARPNESS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0])


@st.composite
def grids(draw, axes=3, longest=4, spare=3):
    """Sides of a grid, and sites on it, of a kernel with stride and dilation."""
    kernel, stride, dilation, extra = zip(
        *draw(
            st.lists(
                st.tuples(st.integers(1, longest), st.integers(1, 3), st.integers(1, 3), st.integers(1, 1 + spare)),
                min_size=1,
                max_size=axes,
            )
        ),
        strict=True,
    )
    sides = tuple(d * (k - 1) + e for k, d, e in zip(kernel, dilation, extra, strict=True))
    return sides, kernel, stride, dilation


def sites_of(kernel, stride, dilation):
    """The query sites, by the formula and not by the function under test."""
    before = tuple(d * ((k - 1) // 2) for k, d in zip(kernel, dilation, strict=True))
    return Sites(stride, before, tuple(d * (k - 1) - b for k, d, b in zip(kernel, dilation, before, strict=True)))
