"""Licences of the bounds on rounding: exact rationals, rounded up and no further."""

from fractions import Fraction

from licences.cases import Licence

from conv2attn.theory.bounds import (
    FORMATS,
    RoundingBound,
    accumulator_of,
    storage_of,
)
from proofs import FLOAT

TINY = Fraction(1, 2**50)


def rounded_up(value, proved):
    """At least what is proved, and no more than that rounded up."""
    return proved <= Fraction(value) <= proved * (1 + TINY) + Fraction(2) ** -1074


def convolution(case):
    """G - 1 and G times what underflows, as claim FLOAT has them."""
    terms, name, bias, casts, in_all, truncating, flushing = case
    form, inner, stored = FORMATS[name], accumulator_of(name), storage_of(name)
    coarse = truncating or form.cuts
    cut = 2 * Fraction(form.unit_roundoff) if form.cuts else 0
    roundoff = Fraction(inner.unit_roundoff) * (2 if coarse else 1)
    cast = Fraction(stored.unit_roundoff) if stored != inner else Fraction(0)
    grown = FLOAT.growth(cut, terms + bias, roundoff, casts, cast)
    if flushing:
        loss, loss_stored = Fraction(inner.smallest_normal), Fraction(stored.smallest_normal)
        lost = FLOAT.underflow(terms, loss, terms + bias, loss, in_all, loss_stored)
    else:
        loss = Fraction(inner.smallest_subnormal) / (1 if coarse else 2)
        lost = FLOAT.underflow(terms, loss, terms + bias, 0, in_all, Fraction(stored.smallest_subnormal) / 2)
    return grown - 1, grown * lost


def bounds_a_convolution(function, case):
    terms, name, bias, casts, in_all, truncating, flushing = case
    given = {"stored": in_all} if in_all != casts else {}
    found = function(terms, name, bias=bias, casts=casts, truncating=truncating, flush_to_zero=flushing, **given)
    factor, absolute = convolution(case)
    places = Fraction(4 * (terms + casts + in_all) + 64, 2**256)  # each step of the proved program rounds up to a place
    return rounded_up(found.factor, factor) and absolute <= Fraction(found.absolute) <= absolute * (1 + TINY) + places


def bounds_a_difference(function, case):
    weights, bias, radius, first, second, leak, mixing = case
    reads = (2 * Fraction(leak) + Fraction(mixing.factor)) * Fraction(radius) + Fraction(mixing.absolute)
    size, read = Fraction(weights) * Fraction(radius) + abs(Fraction(bias)), Fraction(weights) * reads
    proved = Fraction(first.factor) * size + Fraction(second.factor) * (size + read) + read
    proved += Fraction(first.absolute) + Fraction(second.absolute)
    found = Fraction(function(*case))
    return proved <= found <= proved * (1 + Fraction(2) ** -49) + Fraction(2) ** -1000


LICENCES = {
    ("FLOAT", "theory.bounds.gamma"): Licence(
        lambda function, case: rounded_up(function(*case), FLOAT.gamma(case[0], Fraction(case[1]))),
    ),
    ("FLOAT", "theory.bounds.convolution_bound"): Licence(
        bounds_a_convolution,
        examples=200,
    ),
    ("FLOAT", "theory.bounds.difference_bound"): Licence(
        bounds_a_difference,
        examples=120,
        shape=lambda s, b, r, first, second, leak, mixing: (
            *(s, b, r, RoundingBound(*first), RoundingBound(*second)),
            *(leak, RoundingBound(*mixing)),
        ),
    ),
}
