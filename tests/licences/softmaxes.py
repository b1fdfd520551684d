"""Licences of claim SOFT: computed softmaxes and means, against its formulas in balls of 400 bits."""

import math
from dataclasses import replace
from fractions import Fraction

from flint import arb, ctx
from licences.cases import Licence, ball
from licences.leaks import rivals
from licences.thresholds import rounds_to_zero

from conv2attn.theory.bounds import (
    FORMATS,
    Arithmetic,
    Head,
    RoundingBound,
    accumulator_of,
    soft_mixing_bound,
    storage_of,
    target_rounds_to_one_threshold,
)
from proofs import FLOAT, SOFT
from proofs.domain import FLAG, ULPS, Domain, Floats, Integers, Many
from proofs.domain import FORMATS as ALL_FORMATS

TIGHT = 1 + arb(2) ** -40


def just_above(found, proved):
    """At least what is proved, and no more than that rounded up."""
    return bool(ball(found) >= proved) and bool(ball(found) <= proved * TIGHT + arb(2) ** -1070)


def numbers(name):
    """The format that computes and the format that stores."""
    return accumulator_of(name), storage_of(name)


def lasting(alpha, n, smallest):
    """How many displacements are in the box around those with weights of `smallest` and above."""
    reach = math.isqrt(int((-smallest.log() / alpha).floor().unique_fmpz()))
    return (2 * reach + 1) ** n - 1


def exponentials(alpha, n, name, ulps):
    """The sharpness of the computed scores, what all exponentials but the target's weigh, and exp's two errors."""
    inner, _ = numbers(name)
    lower = ball(alpha) * (1 - 3 * arb(inner.unit_roundoff))
    rest = (n * rivals(Fraction(alpha) * (1 - 3 * Fraction(inner.unit_roundoff))).log1p()).expm1()
    return lower, rest, 2 * arb(ulps) * inner.unit_roundoff, arb(ulps) * inner.smallest_subnormal


def off_target(alpha, n, name, ulps):
    """What the weights that last are in all, and their number."""
    inner, stored = numbers(name)
    lower, rest, d, eta = exponentials(alpha, n, name, ulps)
    count = lasting(lower, n, arb(stored.smallest_subnormal) / (2 if inner == stored else 4))
    cast, loss = arb(stored.unit_roundoff), arb(stored.smallest_subnormal) / 2
    return SOFT.leaked(count, rest, d, eta, cast, loss), count


def is_the_computed_leak(function, case):
    alpha, n, name, ulps = case
    found = function(alpha, n, name, ulps)
    with ctx.workprec(400):
        if found == 0 or rounds_to_zero(alpha * 0.98, name):
            return found == 0 and rounds_to_zero(alpha, name)
        return just_above(found, off_target(alpha, n, name, ulps)[0])


def is_where_the_target_is_one(function, case):
    """There it is, and 2^-20 or one number of the format below it is not."""
    name, n, ulps = case
    inner, stored = numbers(name)
    alpha = function(name, n, ulps)
    u, cast = arb(inner.unit_roundoff), arb(stored.unit_roundoff)

    def proved(alpha):
        lower, rest, d, eta = exponentials(alpha, n, name, ulps)
        count = lasting(lower, n, arb(inner.smallest_subnormal) / 2)
        return bool(SOFT.is_one(count, (1 + d) * rest + count * eta, u, cast))

    with ctx.workprec(400):
        return proved(alpha) and not proved(alpha * (1 - 2.0**-20 - 4 * stored.unit_roundoff))


def bounds_a_hard_mean(function, case):
    beyond, n, name, ulps = case
    inner, stored = numbers(name)
    alpha = target_rounds_to_one_threshold(name, n, ulps) * beyond
    found = function(alpha, n, name, ulps)
    with ctx.workprec(400):
        cuts = FORMATS[name].cuts
        if not cuts and (found == RoundingBound(0.0, 0.0) or rounds_to_zero(alpha * 0.98, name)):
            return found == RoundingBound(0.0, 0.0) and rounds_to_zero(alpha, name)
        mass, others = (arb(0), 0) if rounds_to_zero(alpha, name) else off_target(alpha, n, name, ulps)
        grown, tiny = mean(others + 1, name), arb(inner.smallest_normal)
        lost = FLOAT.underflow(others + 1, tiny, others + 1, tiny, inner != stored, tiny + stored.smallest_subnormal)
        proved = SOFT.hard_mixing(grown, mass, lost, int(inner != stored))
        if cuts:
            proved = mass + (grown - 1) * (1 + mass), grown * lost
        return just_above(found.factor, proved[0]) and just_above(found.absolute, proved[1])


def mean(terms, name):
    """G of a mean of so many weights that is stored once."""
    inner, stored = numbers(name)
    cut = 2 * arb(FORMATS[name].unit_roundoff) if FORMATS[name].cuts else arb(0)
    roundoff = Fraction(inner.unit_roundoff) * (2 if FORMATS[name].cuts else 1)
    cast = arb(stored.unit_roundoff) if inner != stored else arb(0)
    return FLOAT.growth(cut, terms, ball(roundoff), 1, cast)


def sharper(head):
    """The sharpness by which the scores fall at least, of a centre beside a key too."""
    return ball(head.alpha) * (1 - 2 * ball(max(head.shifts)))


def score_errors(head, axes, arithmetic, score_error):
    """c and c0 of claim SOFT: what a score, less the largest, is off by, of it and besides."""
    u = arb(numbers(arithmetic.format)[0].unit_roundoff)
    added = 1 + FLOAT.gamma(axes, u)
    if arithmetic.fused:
        return u, (1 + u) * 2 * ball(score_error)
    if not any(head.shifts) and not head.distance:
        return (1 + u) ** 2 * added - 1, arb(0)
    score = (1 + u) ** 5 * added - 1
    return (1 + u) * (1 + score) - 1, (1 + u) * 2 * score * ball(head.alpha) * ball(head.distance)


def theta_sums(alpha, c, reach):
    """Over m != 0, with q = e^-(1 - c) alpha: of q^(m^2), of what an error c of scores moves, and beyond the reach."""
    last = reach + 3 + math.isqrt(int(300 / float(alpha)))
    size = [alpha * (m * m) for m in range(1, last)]
    power = [(-(1 - c) * x).exp() for x in size]
    peak = ball(Fraction(3, 8)) / (1 - c)
    moved = [x * p if (1 - c) * x >= 1 else peak for x, p in zip(size, power, strict=True)]
    return 2 * sum(power, arb(0)), 2 * sum(moved, arb(0)), 2 * sum(power[reach:], arb(0))


def proved_mean(head, keys, n, arithmetic, score_error, reach):
    """Factor and constant of claim ROW for n axes at once, the keys within `reach` counted; None where it is silent."""
    form, (inner, stored), alpha = FORMATS[arithmetic.format], numbers(arithmetic.format), sharper(head)
    u, tiny, cast = arb(inner.unit_roundoff), arb(inner.smallest_normal), arb(stored.unit_roundoff)
    c, c0 = score_errors(head, n, arithmetic, score_error)
    d = 2 * ball(arithmetic.exp_ulps) * u
    if arithmetic.fused:
        d = (1 + d) ** (1 + -(-keys // 32)) * (1 + u) ** -(-keys // 32) - 1
    others, spread, tail = theta_sums(alpha, c, reach)
    count, grown = (2 * reach + 1) ** n, 1 / (1 - c0)
    if not (
        alpha * (reach + 1) ** 2 * (1 - c) >= 1
        and max(count, keys) * u < 1
        and 4 * (-(2 * reach + 3) * alpha).exp() < 1
    ):
        return None
    leak, beyond = 1 - (1 + others) ** -n, n * tail * (1 + others) ** (n - 1)
    off = ((1 + d) * (grown * (1 + c * spread) ** n - 1) + d * leak) * (1 + beyond)
    g, far = FLOAT.gamma(count, u), (1 + d) * grown * beyond
    lost = (1 + g) * 2 * (1 + FLOAT.gamma(keys, u)) * far
    if not g + off + lost < 1:
        return None
    mu = (1 + cast) * (3 + 2 * u) * tiny + tiny + stored.smallest_subnormal
    quotients = (1 + u) ** 2 * (1 + cast) - 1 + g
    weights = (quotients * (1 + off) + 2 * off + lost) / (1 - g - off - lost) + count * mu + 2 * far + 2 * beyond
    far, coarse, terms = 2 * far, u * (2 if form.cuts or arithmetic.truncates else 1), max(keys, count)
    cut, once, moves, stores = 2 * arb(form.unit_roundoff) if form.cuts else arb(0), int(inner != stored), 2, 1
    if arithmetic.stores_means:
        moves, stores = 4, terms
        if once:
            coarse, once = (1 + coarse) * (1 + cast) - 1, 0
    if not terms * coarse < 1:
        return None
    counted, every = ((1 + cut) ** 2 * (1 + FLOAT.gamma(m, coarse)) * (1 + cast) ** once for m in (count, terms))
    if inner == stored:
        stores = 0
    lost = every * (2 * terms * tiny + stores * (tiny + stored.smallest_subnormal))
    return weights + far + (counted - 1) * (1 + weights) + counted * moves * every * far, counted * moves * lost


def last_weight(head, keys, n, arithmetic, score_error):
    """How far from the nearest key a weight may be that is not 0, in the box; at least two standard deviations."""
    inner, stored = numbers(arithmetic.format)
    c, c0 = score_errors(head, n, arithmetic, score_error)
    d = 2 * ball(arithmetic.exp_ulps) * arb(inner.unit_roundoff)
    if arithmetic.fused:
        blocks = -(-math.prod(keys) // 32)
        d = (1 + d) ** (1 + blocks) * (1 + arb(inner.unit_roundoff)) ** blocks - 1
    smallest = arb(stored.smallest_subnormal) / (2 if inner == stored else 4)
    squared = (c0 + ((1 + d) / smallest).log()) / ((1 - c) * sharper(head))
    reach = math.isqrt(int(float(squared)))
    return max(int(2 / math.sqrt(float(sharper(head)))), min(reach, max(keys) - 1) if head.box else reach)


def proved_reads(head, keys, arithmetic, score_error):
    """The least bound of claim ROW over all reaches, all axes at once or one after the other; None if it is silent.

    Where sums truncate all weights count that are not 0.
    """
    apart = arithmetic.by_axis and head.box
    longest, n, times = (max(keys), 1, len(keys)) if apart else (math.prod(keys), len(head.shifts), 1)
    last = math.ceil(math.sqrt(42 / max(1e-9, float(sharper(head))))) + 1 if float(sharper(head)) > 1e-5 else 0
    tried = range(last + 1) if last else []
    if last and (arithmetic.truncates or FORMATS[arithmetic.format].cuts):
        tried = [last_weight(head, keys, n, arithmetic, score_error)]
    means = [proved_mean(head, longest, n, arithmetic, score_error, reach) for reach in tried]
    means = [each for each in means if each is not None]
    if not means:
        return None
    factor, constant = min(means, key=lambda each: float(each[0].mid()))
    return (1 + factor) ** times - 1, constant * sum((1 + factor) ** k for k in range(times))


def bounds_a_soft_mean(function, case):
    head, keys, arithmetic, score_error = case
    found = function(head, keys, arithmetic, score_error)
    with ctx.workprec(400):
        proved = proved_reads(head, keys, arithmetic, score_error)
        if proved is None:
            return found.factor == math.inf
        factor, constant = proved
        tiny = math.prod(keys) * (
            ball(numbers(arithmetic.format)[0].smallest_normal) * 2**30 + ball(2) ** -220
        )  # places of a row
        slack = 1 + ball(2) ** -12 if sharper(head) >= 1 else ball(1.05)
        return bool(
            factor <= ball(found.factor)
            and ball(found.factor) <= (factor + constant + tiny) * slack
            and constant * (1 - TIGHT * ball(2) ** -30) <= ball(found.absolute)
            and ball(found.absolute) <= constant * slack * 2 + tiny
        )


def plain_head(alpha, shifts, keys, name, ulps, by_axis):
    """A head, its keys, an arithmetic of which claim ROW speaks, and no error of fused scores."""
    return soft_head(alpha, shifts, keys, 0, False, name, ulps, False, False, by_axis, False, 0.0)


def soft_head(alpha, shifts, keys, beyond, enumerated, name, ulps, truncates, stores, by_axis, fused, error):
    """A head, its keys, an arithmetic, and an error of its scores where it is fused."""
    distance = sum(shift**2 for shift in shifts) * (1 + 2**-40) + beyond
    head = Head(alpha, shifts, distance, beyond > 0, not enumerated)
    arithmetic = Arithmetic(name, exp_ulps=ulps, truncates=truncates, stores_means=stores, by_axis=by_axis, fused=fused)
    return head, keys, arithmetic, error if fused else 0.0


BEYOND = Domain(
    {
        "alpha": Floats(0.05, 40.0),
        "shifts": Many(Floats(2.0**-20, 0.5, zero=True), 1, 3),
        "keys": Many(Integers(1, 150), 1, 3),
        "squares beyond the grid": Integers(0, 40),
        "enumerated": FLAG,
        "format": ALL_FORMATS,
        "exp_ulps": ULPS,
        "truncates": FLAG,
        "stores_means": FLAG,
        "by_axis": FLAG,
        "fused": FLAG,
        "score_error": Floats(2.0**-40, 2.0**-10, zero=True),
    },
    (
        "an enumeration of one axis, on a pixel of the grid; fused over all axes at once",
        lambda alpha, shifts, keys, beyond, enumerated, name, ulps, truncates, stores, by_axis, fused, error: (
            (not enumerated or (shifts == (0,) and not beyond)) and not (fused and by_axis)
        ),
    ),
)
"""All arithmetics of `soft_mixing_bound`, those beyond claim ROW too: there the formula is a step without a theorem."""

WRONG_BEYOND = {
    "never fused": lambda h, k, a, e: soft_mixing_bound(h, k, replace(a, fused=False), e),
    "never truncated": lambda h, k, a, e: soft_mixing_bound(h, k, replace(a, truncates=False), e),
    "sums stored once": lambda h, k, a, e: soft_mixing_bound(h, k, replace(a, stores_means=False), e),
    "distances above 9": lambda h, k, a, e: soft_mixing_bound(replace(h, distance=min(h.distance, 9.0)), k, a, e),
}


LICENCES = {
    ("ROW", "theory.bounds.soft_mixing_bound"): Licence(
        bounds_a_soft_mean,
        examples=150,
        shape=plain_head,
    ),
    ("SOFT", "theory.bounds.computed_leak"): Licence(
        is_the_computed_leak,
        examples=150,
    ),
    ("SOFT", "theory.bounds.target_rounds_to_one_threshold"): Licence(
        is_where_the_target_is_one,
        examples=72,
    ),
    ("SOFT", "theory.bounds.hard_mixing_bound"): Licence(
        bounds_a_hard_mean,
        examples=150,
    ),
}
