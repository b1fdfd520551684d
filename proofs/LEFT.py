"""Keys that are left out: they only take from what leaks, and a bound on a row holds as it stands."""

from itertools import product

from sympy import Rational, symbols

from .claim import Claim, step
from .core import finite, sign

e, kept, total, leak, mass, radius, score, depth = symbols("e Z' Z l m R s L", real=True)
SIDE, DEPTH = 5, 1000
PLACES = range(SIDE)


def lowered(first, last, target):
    """Scores -m^2 of an axis, m places from the target, by place; those beyond the interval are lower by `DEPTH`."""
    return [-((j - target) ** 2) - (0 if first <= j < last else DEPTH) for j in PLACES]


def falls(case):
    """Whether the lowered scores fall on both sides of the target."""
    target, scores = case[2], lowered(*case)
    before, behind = scores[target::-1], scores[target:]
    return scores[target] == 0 and all(sorted(side, reverse=True) == side for side in (before, behind))


INTERVALS = [
    (first, last, target)
    for first, last, target in product(PLACES, range(SIDE + 1), PLACES)
    if first <= target < last
]  # fmt: skip


CLAIM = Claim(
    name="LEFT",
    title="Keys that are left out",
    words="Leaving out any set of keys but the target's only takes from what leaks: the share of the target in the "
    "softmax of the others is no smaller, so the mean of the others, as computed, is as near to the target's number "
    "as the mean of all, whatever the keys weigh that are left out. And the bound of ROW holds as it stands where "
    "the keys beyond an interval of each axis, which holds the target, have the exponential 0: over all keys at "
    "once, and axis after axis. For ROW is of any scores that fall on both sides of the target, so also of scores "
    "that are lower beyond the interval, by as much as makes an exponential less than what the row lets one lose.",
    formula=r"|\hat m - x_t| \le 2\,\mathrm{leak}\,R + \epsilon,\quad \mathrm{leak} = 1 - \frac{e^{s_t}}{\sum_k "
    r"e^{s_k}},\quad \hat m \approx \sum_{k\ \mathrm{kept}} \frac{e^{s_k}}{\sum_{j\ \mathrm{kept}} e^{s_j}} x_k",
    conditions=(
        "the target is kept; the premises of SOFT, or of ROW, on the keys that are kept",
        "in rows: an exponential may lose something, however little",
    ),
    source="this project",
    not_shown="That an engine leaves out what lies beyond an interval: its scores fall as computed, since rounding "
    "keeps the order of numbers.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "The sum Z' over the keys that are kept is at most the sum Z over all, so a share e/Z' is at least e/Z.",
            sign,
            e / kept - e / total,
            ((e, total - kept, 1 / kept, 1 / total),),
            given=(e, total - kept),
            positive=(kept, total),
        ),
        step(
            "Weights m off the target move the mean by at most 2 m R, and m is at most the leak.",
            sign,
            2 * leak * radius - 2 * mass * radius,
            ((2, leak - mass, radius),),
            given=(leak - mass, radius),
        ),
        step(
            "Scores of at most 0 that are lower by L are at most -L.",
            sign,
            -depth - (score - depth),
            ((-score,),),
            given=(-score,),
        ),
        step(
            "Scores that fall on both sides of a target still do if those beyond an interval are lower: on 5 places, "
            "for all intervals that hold the target.",
            finite,
            INTERVALS,
            falls,
            count=35,
        ),
    ),
    mutants=(
        step(
            "A share of the keys that are kept is smaller.",
            sign,
            e / total - e / kept,
            given=(e, total - kept),
            positive=(kept, total),
            witness={e: 1, kept: 1, total: 2},
        ),
        step(
            "The target may be left out: a share of 0 is at least e/Z.",
            sign,
            -e / total,
            given=(e,),
            positive=(total,),
            witness={e: 1, total: 1},
        ),
        step(
            "The mean moves by m R.",
            sign,
            leak * radius - 2 * mass * radius,
            given=(leak - mass, radius),
            witness={leak: 1, mass: 1, radius: 1},
        ),
        step(
            "Scores of at most 1 that are lower by L are at most -L.",
            sign,
            -depth - (score - depth),
            given=(1 - score, depth),
            witness={score: Rational(1, 2), depth: 1},
        ),
        step(
            "Whether or not the interval holds the target.",
            finite,
            [(0, 2, 3)],
            falls,
            count=1,
        ),
    ),
)
