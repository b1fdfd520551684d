"""Residuals of mixings, rounded up, and the rows where they are largest."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import ROUNDOFF, Array, Whole
from conv2attn.span.equations import Portion, Targets
from conv2attn.theory.bounds import gamma

CANDIDATES = 4
"""Mixings per head whose residuals are computed at once: their remainders are this many times the attention."""


def rounded_up(
    residuals: Array, mixings: Array, coefficients: Array, largest: Array, row_sum: float, width: int
) -> Array:
    """Residuals as computed in float64, plus a bound on all rounding of `sum_k |e - phi A|`.

    No two taps of one row have the same key; `largest` is the largest 1-norm of a target at one row. `row_sum` bounds
    the sum of a row of attention.
    """
    steps = mixings.shape[-1] + 4
    # Each entry of `e - phi A` is an inner product of heads + 1 terms. Its error is at most gamma times the sum of
    # their absolute values (Higham 2002, eq. 3.5), which over the keys is at most |e|_1 + |phi|_1 row_sum.
    reach = largest + np.abs(mixings).sum(-1) * row_sum
    # A mixing with one non-zero, a power of two, has exact products. The one subtraction from a target rounds relative
    # to its result, which the last factor covers. Without this, a one-hot head that is the shift would not be exactly
    # 0.
    powers = ((np.frexp(np.abs(mixings))[0] == 0.5) | (mixings == 0)).all(-1)
    selects = ((mixings != 0).sum(-1) <= 1) & powers & ((coefficients != 0).sum(-1) <= 1)
    drift = np.where(selects, 0.0, gamma(steps, ROUNDOFF["float64"]) * reach)
    # The sum over keys rounds relative to itself, since its terms are not negative.
    return np.asarray((residuals + drift) * (1 + 2 * gamma(width + 4, ROUNDOFF["float64"])))


def remainders_of(portion: Portion, coefficients: Array, mixings: Array) -> Array:
    """`e - phi A` of each candidate, (candidates, rows, keys)."""
    heads, rows, keys = portion.attention.shape
    remainders = (-mixings @ portion.attention.reshape(heads, -1)).reshape(len(mixings), rows, keys)
    add_targets(remainders, portion, coefficients)
    return remainders


def add_targets(rows: Array, portion: Portion, coefficients: Array) -> None:
    """Adds the target of each candidate to its rows, (candidates, rows, keys)."""
    for tap, places in enumerate(portion.places):
        queries = np.flatnonzero(places >= 0)
        rows[:, queries, places[queries]] += coefficients[:, tap, None]


def residuals_of(
    portions: Iterable[Portion], targets: Targets, width: int, mixings: Array, wanted: NDArray[np.int64], most: int
) -> tuple[Array, list[Whole]]:
    """The residual of each mixing (candidates, heads) for target `wanted[c]` at its worst row, rounded up.

    Beside it are the `most` rows (or fewer) with the largest residuals, worst first. `width` is the number of keys.
    """
    worst, row_sum = np.zeros(len(mixings)), 0.0
    sizes_kept: Array = np.zeros((len(mixings), 0))
    rows_kept: Whole = np.zeros((len(mixings), 0), dtype=np.int64)
    for portion in portions if len(mixings) else ():
        # Rows of attention sum to 1 only up to rounding, so the largest sum bounds what a mixing moves.
        row_sum, width = max(row_sum, float(portion.attention.sum(-1).max())), max(width, portion.attention.shape[2])
        step = CANDIDATES * mixings.shape[-1]
        parts = [slice(start, start + step) for start in range(0, len(mixings), step)]
        sizes = np.concatenate([
            np.abs(remainders_of(portion, targets.coefficients[wanted[part]], mixings[part])).sum(-1) for part in parts
        ])  # fmt: skip
        worst = np.maximum(worst, sizes.max(-1))
        if most:
            sizes_kept = np.concatenate([sizes_kept, sizes], 1)
            rows_kept = np.concatenate([rows_kept, np.broadcast_to(portion.rows, sizes.shape)], 1)
            # The worst rows of all portions so far: sorting few beside few is cheaper than keeping all sizes.
            order = np.argsort(-sizes_kept, axis=1, kind="stable")[:, :most]
            sizes_kept = np.take_along_axis(sizes_kept, order, 1)
            rows_kept = np.take_along_axis(rows_kept, order, 1)
    coefficients, largest = targets.coefficients[wanted], targets.largest[wanted]
    return rounded_up(worst, mixings, coefficients, largest, row_sum * (1 + 1e-9), width), list(rows_kept)
