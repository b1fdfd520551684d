"""What a mixing is worth, with every rounding counted: residual from above, and what no other mixing can beat.

For a mixing phi and `y = e - phi A`, any mixing psi with sum of absolute values at most B, and any attention A' within
the uncertainty dA of A, give

    sum_q |y_q|_max |e_q - psi A'_q|_1  >=  <y, e> - B max_h (|<A_h, y>| + <dA_h, |y|>)

so psi has a query whose residual is at least the right side over `sum_q |y_q|_max`: the `floor`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import gamma
from conv2attn.span.conditions.portions import shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.mixings.residuals import SUMS, Precision, parts_of
from conv2attn.span.mixings.sums import Sums

UNIT = {kind: float(np.finfo(kind).eps) / 2 for kind in (np.float64, np.longdouble)}
"""Unit roundoff of the two arithmetics: float64, fast, and the longest float of the machine where that cannot tell."""
CANDIDATES = 16
"""Mixings a head that are looked at together: what they leave is the largest array that there is."""


@final
@dataclass(frozen=True, eq=False)
class Worth:
    """For each mixing: its `residual`, max over queries of sum over keys, rounded up; its `floor`, rounded down; the
    sum of its absolute values; and its Frobenius residual over that of the target."""

    residual: Array
    floor: Array
    norm: Array
    share: Array


def exact_products(mixings: Array) -> NDArray[np.bool_]:
    """Mixings with at most one non-zero, a power of two: the product with attention is exact."""
    powers = np.frexp(np.abs(mixings))[0] == 0.5
    return ((mixings != 0).sum(-1) <= 1) & ((mixings == 0) | powers).all(-1)


def rounding_of(mixings: Array, coefficients: Array, row_sum: Array | float, precision: Precision) -> Array:
    """Bound on the rounding in a row of `e - phi A`, summed over keys; 0 where all but the last step is exact."""
    steps = mixings.shape[-1] + coefficients.shape[-1] + 3
    reach = np.abs(coefficients).sum(-1) + np.abs(mixings).sum(-1) * row_sum
    selects = exact_products(mixings) & ((coefficients != 0).sum(-1) <= 1)
    return np.where(selects, 0.0, gamma(steps, UNIT[precision]) * reach)


def uncertainty(attention: AttentionRows) -> float:
    """Largest relative change of an entry of the attention within its floats' uncertainty."""
    return attention.ulps * attention.roundoff


def evaluate(
    attention: AttentionRows,
    targets: Targets,
    chosen: NDArray[np.bool_],
    mixings: Array,
    wanted: NDArray[np.int64],
    bound: float,
    precision: Precision = np.float64,
) -> Worth:
    """The worth of `mixings` (candidates, heads), candidate c for target `wanted[c]`, over the chosen queries."""
    given = np.concatenate([wanted[:, None], mixings], 1)
    once, back = np.unique(given, axis=0, return_inverse=True)
    order = np.argsort(once[:, 1:].any(1), kind="stable")
    once, back = once[order], np.argsort(order)[back.reshape(-1)]
    mixings, wanted = once[:, 1:], once[:, 0].astype(np.int64)
    count, sums, none = len(mixings), Sums(SUMS), int((~mixings.any(1)).sum())
    step = CANDIDATES * attention.heads
    starts = [*([0] if none else []), *range(none, count, step)]
    groups = [slice(*ends) for ends in pairwise([*starts, count])]
    worst, largest_row, longest = np.zeros(count), 0.0, 1
    for portion in shared(attention, targets, chosen):
        largest_row = max(largest_row, float(portion.attention.sum(-1).max()))
        longest = max(longest, portion.attention[0].size + len(portion.queries))
        parts = [parts_of(portion, targets.coefficients[wanted[g]], mixings[g], precision) for g in groups]
        worst = np.maximum(worst, np.concatenate([part.pop("residual") for part in parts]))
        sums.add({name: np.concatenate([part[name] for part in parts]) for name in SUMS})
    parts_of_all = attention.crew.gathered((worst, largest_row, longest, sums.held()))
    worst = np.max([part[0] for part in parts_of_all], axis=0)
    largest_row, longest = max(part[1] for part in parts_of_all), max(part[2] for part in parts_of_all)
    whole, folds = Sums.together([part[3] for part in parts_of_all])
    error = gamma(longest + len(targets.offsets) + 6, UNIT[precision]) + (4 + folds) * UNIT[np.float64]
    drift = rounding_of(mixings, targets.coefficients[wanted], largest_row * (1 + 1e-9), precision)
    residual = worst.astype(np.float64) * (1 + error) + drift
    doubt = (uncertainty(attention) + 2 * error) * whole["weight"] * (1 + error)
    blocked = (np.abs(whole["met"]) + doubt).max(-1) * bound * (1 + error)
    gain = whole["gain"] - error * whole["mass"] - blocked
    peak = whole["peak"] * (1 + error)
    floor = np.divide(gain, peak, out=np.zeros(count), where=peak > 0) * (1 - 1e-15)
    share = np.divide(whole["square"], whole["asked"], out=np.zeros(count), where=whole["asked"] > 0)
    found = (residual, floor, np.abs(mixings).sum(-1), np.sqrt(share))
    return Worth(*(each[back] for each in found))


def improved(worth: Worth, places: NDArray[np.int64], better: Worth) -> Worth:
    """`worth` with the candidates at `places` evaluated better."""
    arrays = [np.array(getattr(worth, name)) for name in ("residual", "floor", "norm", "share")]
    for array, name in zip(arrays, ("residual", "floor", "norm", "share"), strict=True):
        array[places] = getattr(better, name)
    return Worth(*arrays)
