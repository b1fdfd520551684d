"""Licences of the bounds on rounding: exact rationals, rounded up and no further."""

from dataclasses import replace
from fractions import Fraction

from licences.cases import Licence

from conv2attn.theory.bounds import (
    FORMATS,
    RoundingBound,
    accumulator_of,
    convolution_bound,
    difference_bound,
    gamma,
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


def changed(part, factor):
    """`convolution_bound` with one part multiplied."""

    def wrong(terms, name, **given):
        found = convolution_bound(terms, name, **given)
        return replace(found, **{part: getattr(found, part) * factor})

    return wrong


def without(**forced):
    """`convolution_bound` that ignores an argument."""
    return lambda terms, name, **given: convolution_bound(terms, name, **given | forced)


NONE = RoundingBound(0.0, 0.0)
LICENCES = {
    ("FLOAT", "theory.bounds.gamma"): Licence(
        lambda function, case: rounded_up(function(*case), FLOAT.gamma(case[0], Fraction(case[1]))),
        {
            "n u": lambda n, u: n * u,
            "one rounding less": lambda n, u: gamma(max(n - 1, 0), u),
            "one more": lambda n, u: gamma(n + 1, u),
            "half of u": lambda n, u: gamma(n, u / 2),
        },
    ),
    ("FLOAT", "theory.bounds.convolution_bound"): Licence(
        bounds_a_convolution,
        {
            "no bias": without(bias=False),
            "always a bias": without(bias=True),
            "casts not counted": without(casts=0),
            "one cast": without(casts=1),
            "casts above 4": lambda terms, name, **given: convolution_bound(
                terms, name, **given | {"casts": min(given["casts"], 4)}
            ),
            "no more stored in all than on one way": without(stored=None),
            "never truncating": without(truncating=False),
            "always truncating": without(truncating=True),
            "gradual underflow": without(flush_to_zero=False),
            "flushing": without(flush_to_zero=True),
            "float32 for all": lambda terms, name, **given: convolution_bound(terms, "float32", **given),
            "a smaller factor": changed("factor", 0.999),
            "a larger factor": changed("factor", 1.001),
            "nothing lost": changed("absolute", 0),
        },
        examples=200,
    ),
    ("FLOAT", "theory.bounds.difference_bound"): Licence(
        bounds_a_difference,
        {
            "no bias": lambda s, b, *others: difference_bound(s, 0.0, *others),
            "a signed bias": lambda s, b, *others: difference_bound(s, max(b, 0.0), *others),
            "no leak": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, f, g, 0.0, mixing),
            "half of the leak": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, f, g, leak / 2, mixing),
            "exact mixing": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, f, g, leak),
            "one side": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, f, NONE, leak, mixing),
            "the other side": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, NONE, g, leak, mixing),
            "sides swapped": lambda s, b, r, f, g, leak, mixing: difference_bound(s, b, r, g, f, leak, mixing),
        },
        examples=120,
        shape=lambda s, b, r, first, second, leak, mixing: (
            *(s, b, r, RoundingBound(*first), RoundingBound(*second)),
            *(leak, RoundingBound(*mixing)),
        ),
    ),
}
