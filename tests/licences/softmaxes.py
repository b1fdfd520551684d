"""Licences of claim SOFT: computed softmaxes and means, against its formulas in balls of 400 bits."""

import math
from dataclasses import replace
from fractions import Fraction

from flint import arb, ctx
from hypothesis import strategies as st
from licences.cases import Licence, ball
from licences.leaks import rivals
from licences.thresholds import rounds_to_zero

from conv2attn.bounds import (
    FORMATS,
    RoundingBound,
    computed_leak,
    hard_mixing_bound,
    soft_mixing_bound,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.bounds.formats import accumulator_of, storage_of
from proofs import FLOAT, SOFT

NAMES = st.sampled_from(list(FORMATS))
ULPS = st.sampled_from([1.0, 2.0, 20.0, 1024.0])
AXES = st.integers(1, 3)
TIGHT = 1 + arb(2) ** -40


def just_above(found, least, largest=None):
    """At least what is proved, and no more than that rounded up; `largest` where a count is rounded too."""
    return bool(ball(found) >= least) and bool(ball(found) <= (largest or least) * TIGHT + arb(2) ** -1070)


def numbers(name):
    """The format that computes and the format that stores."""
    return accumulator_of(name), storage_of(name)


def lasting(alpha, n, smallest):
    """At least and at most as many displacements as have weights of `smallest` and above, in a box."""
    squared = -smallest.log() / alpha
    low, high = (math.isqrt(int(part.floor().unique_fmpz())) for part in (squared, squared + 1))
    return (2 * low + 1) ** n - 1, (2 * high + 1) ** n - 1


def exponentials(alpha, n, name, ulps):
    """The sharpness of the computed scores, what all exponentials but the target's weigh, and exp's two errors."""
    inner, _ = numbers(name)
    lower = ball(alpha) * (1 - 3 * arb(inner.unit_roundoff))
    rest = (n * rivals(Fraction(alpha) * (1 - 3 * Fraction(inner.unit_roundoff))).log1p()).expm1()
    return lower, rest, 2 * arb(ulps) * inner.unit_roundoff, arb(ulps) * inner.smallest_subnormal


def off_target(alpha, n, name, ulps):
    """For either count of weights that last, what they are in all, and their number."""
    inner, stored = numbers(name)
    lower, rest, d, eta = exponentials(alpha, n, name, ulps)
    counts = lasting(lower, n, arb(stored.smallest_subnormal) / (2 if inner == stored else 4))
    cast, loss = arb(stored.unit_roundoff), arb(stored.smallest_subnormal) / 2
    return [(SOFT.leaked(count, rest, d, eta, cast, loss), count) for count in counts]


def is_the_computed_leak(function, case):
    alpha, n, name, ulps = case
    found = function(alpha, n, name, ulps)
    with ctx.workprec(400):
        if found == 0 or rounds_to_zero(alpha * 0.98, name):
            return found == 0 and rounds_to_zero(alpha, name)
        (least, _), (most, _) = off_target(alpha, n, name, ulps)
        return just_above(found, least, most)


def is_where_the_target_is_one(function, case):
    """There it is, and 2^-20 or one number of the format below it is not."""
    name, n, ulps = case
    inner, stored = numbers(name)
    alpha = function(name, n, ulps)
    u, cast = arb(inner.unit_roundoff), arb(stored.unit_roundoff)

    def proved(alpha, which):
        lower, rest, d, eta = exponentials(alpha, n, name, ulps)
        count = lasting(lower, n, arb(inner.smallest_subnormal) / 2)[which]
        return bool(SOFT.is_one(count, (1 + d) * rest + count * eta, u, cast))

    with ctx.workprec(400):
        return proved(alpha, 1) and not proved(alpha * (1 - 2.0**-20 - 4 * stored.unit_roundoff), 0)


def bounds_a_hard_mean(function, case):
    beyond, n, name, ulps = case
    inner, stored = numbers(name)
    alpha = target_rounds_to_one_threshold(name, n, ulps) * beyond
    found = function(alpha, n, name, ulps)
    with ctx.workprec(400):
        cuts = FORMATS[name].cuts
        if not cuts and (found == RoundingBound(0.0, 0.0) or rounds_to_zero(alpha * 0.98, name)):
            return found == RoundingBound(0.0, 0.0) and rounds_to_zero(alpha, name)
        ends = []
        for mass, others in [(arb(0), 0)] * 2 if rounds_to_zero(alpha, name) else off_target(alpha, n, name, ulps):
            grown = mean(others + 1, name)
            tiny = arb(inner.smallest_normal)
            lost = FLOAT.underflow(
                others + 1, tiny, others + 1, tiny, inner != stored, tiny + stored.smallest_subnormal
            )
            hard = SOFT.hard_mixing(grown, mass, lost, int(inner != stored))
            ends.append((mass + (grown - 1) * (1 + mass), grown * lost) if cuts else hard)
        return all(
            just_above(f, *end) for f, end in zip((found.factor, found.absolute), zip(*ends, strict=True), strict=True)
        )


def mean(terms, name):
    """G of a mean of so many weights that is stored once."""
    inner, stored = numbers(name)
    cut = 2 * arb(FORMATS[name].unit_roundoff) if FORMATS[name].cuts else arb(0)
    roundoff = Fraction(inner.unit_roundoff) * (2 if FORMATS[name].cuts else 1)
    cast = arb(stored.unit_roundoff) if inner != stored else arb(0)
    return FLOAT.growth(cut, terms, ball(roundoff), 1, cast)


def weights_off(keys, name, score, ulps):
    """The value of SOFT's formula; None where its conditions fail."""
    inner, stored = numbers(name)
    u, tiny, cast = arb(inner.unit_roundoff), arb(inner.smallest_normal), arb(stored.unit_roundoff)
    d = ball(score).exp() * (1 + 2 * ball(ulps) * u) - 1
    eta = (ball(ulps) + 1) * tiny + tiny * 2**24 * (2 * ball(score)).exp()
    g = FLOAT.gamma(keys, u)
    lost, v = (1 + g) * FLOAT.underflow(keys, tiny, keys, tiny, 0, 0), (1 + u) ** 2 * (1 + cast) - 1
    if not (d + keys * eta <= 1 and g <= 1 and (1 - g) * (1 - d - keys * eta) > lost):
        return None
    return SOFT.softmax(keys, d, eta, g, lost, v, (1 + cast) * (3 + 2 * u) * tiny + tiny + stored.smallest_subnormal)


def bounds_a_softmax(function, case):
    with ctx.workprec(400):
        found, proved = function(*case), weights_off(*case)
        return found == math.inf if proved is None else just_above(found, proved)


def bounds_a_soft_mean(function, case):
    keys, name, _, _ = case
    inner, stored = numbers(name)
    found = function(*case)
    with ctx.workprec(400):
        off, tiny, grown = weights_off(*case), arb(inner.smallest_normal), mean(keys, name)
        if off is None:
            return found.factor == math.inf
        lost = FLOAT.underflow(keys, tiny, keys, tiny, 1, tiny + stored.smallest_subnormal)
        factor, absolute = SOFT.soft_mixing(grown, off, lost)
        return just_above(found.factor, factor) and just_above(found.absolute, absolute)


def scaled(function, part, by):
    """A bound with one part multiplied."""

    def wrong(*case):
        found = function(*case)
        return replace(found, **{part: getattr(found, part) * by})

    return wrong


def in_one_format(function, place):
    """A function that takes float32 for every format, named at this place of its arguments."""
    return lambda *case: function(*case[:place], "float32", *case[place + 1 :])


SOFT_CASES = st.tuples(
    st.floats(0, math.log(1e5)).map(math.exp).map(round), NAMES, st.floats(0, 1, allow_subnormal=False), ULPS
)
HARD_CASES = st.tuples(st.floats(1, 3), AXES, NAMES, ULPS)
LICENCES = {
    ("SOFT", "bounds.softmax_error"): Licence(
        SOFT_CASES,
        bounds_a_softmax,
        {
            "scores taken for exact": lambda k, f, s, e: softmax_error(k, f, 0.0, e),
            "exp as documented": lambda k, f, s, e: softmax_error(k, f, s, 2.0),
            "a key less": lambda k, f, s, e: softmax_error(max(1, k - 1), f, s, e),
            "float32 for all": in_one_format(softmax_error, 1),
            "finite where nothing is known": lambda *case: min(2.0, softmax_error(*case)),
            "smaller": lambda *case: softmax_error(*case) * 0.999,
            "larger": lambda *case: softmax_error(*case) * 1.001,
        },
        examples=100,
    ),
    ("SOFT", "bounds.soft_mixing_bound"): Licence(
        SOFT_CASES,
        bounds_a_soft_mean,
        {
            "float32 for all": in_one_format(soft_mixing_bound, 1),
            "scores taken for exact": lambda k, f, s, e: soft_mixing_bound(k, f, 0.0, e),
            "the weights alone": lambda *case: RoundingBound(softmax_error(*case), soft_mixing_bound(*case).absolute),
            "nothing lost": scaled(soft_mixing_bound, "absolute", 0.0),
            "underflow that does not grow": scaled(soft_mixing_bound, "absolute", 0.999),
            "a smaller factor": scaled(soft_mixing_bound, "factor", 0.999),
        },
        examples=100,
    ),
    ("SOFT", "bounds.computed_leak"): Licence(
        st.tuples(st.floats(-3, math.log(1100)).map(math.exp), AXES, NAMES, ULPS),
        is_the_computed_leak,
        {
            "scores taken for exact": lambda a, n, f, e: computed_leak(a / (1 - 2.0**-22), n, f, e),
            "exp as documented": lambda a, n, f, e: computed_leak(a, n, f, 2.0),
            "an axis less": lambda a, n, f, e: computed_leak(a, max(1, n - 1), f, e),
            "float32 for all": in_one_format(computed_leak, 2),
            "never 0": lambda *case: max(2.0**-1074, computed_leak(*case)),
            "a little smaller": lambda *case: computed_leak(*case) * 0.999,
            "a little larger": lambda *case: computed_leak(*case) * 1.5,
        },
        examples=150,
    ),
    ("SOFT", "bounds.target_rounds_to_one_threshold"): Licence(
        st.tuples(NAMES, AXES, ULPS),
        is_where_the_target_is_one,
        {
            "two axes for all": lambda f, n, e: target_rounds_to_one_threshold(f, 2, e),
            "exp as documented": lambda f, n, e: target_rounds_to_one_threshold(f, n, 2.0),
            "float32 for all": in_one_format(target_rounds_to_one_threshold, 0),
            "a little less": lambda *case: target_rounds_to_one_threshold(*case) - 2.0**-4,
            "a little more": lambda *case: target_rounds_to_one_threshold(*case) + 2.0**-2,
        },
        examples=72,
    ),
    ("SOFT", "bounds.hard_mixing_bound"): Licence(
        HARD_CASES,
        bounds_a_hard_mean,
        {
            "float32 for all": lambda a, n, f, e: hard_mixing_bound(max(a, 20.0), n, "float32", e),
            "what leaks alone": lambda *case: RoundingBound(computed_leak(*case), hard_mixing_bound(*case).absolute),
            "half": scaled(hard_mixing_bound, "factor", 0.5),
            "twice": scaled(hard_mixing_bound, "factor", 2.0),
            "nothing lost": scaled(hard_mixing_bound, "absolute", 0.0),
            "half of it lost": scaled(hard_mixing_bound, "absolute", 0.5),
            "nothing from 60 on": lambda a, n, f, e: (
                RoundingBound(0.0, 0.0) if a > 60 else hard_mixing_bound(a, n, f, e)
            ),
        },
        examples=150,
    ),
}
