"""What a mixing is worth, with every rounding counted: residual from above, and what no other mixing can beat.

For a mixing phi and `y = e - phi A`, any mixing psi with sum of absolute values at most B, and any attention A' within
the uncertainty dA of A, give

    sum_q |y_q|_max |e_q - psi A'_q|_1  >=  <y, e> - B max_h (|<A_h, y>| + <dA_h, |y|>)

so psi has a query whose residual is at least the right side over `sum_q |y_q|_max`: the `floor`.
"""

from dataclasses import dataclass
from math import fsum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import gamma
from conv2attn.span.problem import Array, AttentionRows, Targets, selected

UNIT = {kind: float(np.finfo(kind).eps) / 2 for kind in (np.float64, np.longdouble)}
"""Unit roundoff of the two arithmetics: float64, fast, and the longest float of the machine where that cannot tell."""
Precision = type[np.float64] | type[np.longdouble]


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
    count = len(mixings)
    exact: Any = mixings.astype(precision)
    worst, largest_row, longest = np.zeros(count), 0.0, 1
    sums: dict[str, list[Array]] = {name: [] for name in ("gain", "mass", "peak", "square", "asked", "met", "weight")}
    for _, queries, block in selected(attention, chosen):
        asked = targets.block(queries, block.shape[2])[wanted]
        left: Any = asked - np.tensordot(exact, block.astype(precision), 1)
        size = np.abs(left)
        worst = np.maximum(worst, size.sum(-1).max(-1))
        largest_row = max(largest_row, float(block.sum(-1).max()))
        flat = block.reshape(attention.heads, -1).T.astype(precision)
        longest = max(longest, len(flat))
        parts = {
            "gain": (left * asked).sum((1, 2)),
            "mass": (size * np.abs(asked)).sum((1, 2)),
            "peak": size.max(-1).sum(-1),
            "square": (left**2).sum((1, 2)),
            "asked": (asked**2).sum((1, 2)),
            "met": left.reshape(count, -1) @ flat,
            "weight": size.reshape(count, -1) @ flat,
        }
        for name, part in parts.items():
            sums[name].append(part.astype(np.float64))
    error = gamma(longest + len(targets.offsets) + 4, UNIT[precision]) + 4 * UNIT[np.float64]
    whole = {name: total(parts) for name, parts in sums.items()}
    drift = rounding_of(mixings, targets.coefficients[wanted], largest_row * (1 + 1e-9), precision)
    residual = worst.astype(np.float64) * (1 + error) + drift
    doubt = (uncertainty(attention) + 2 * error) * whole["weight"] * (1 + error)
    blocked = (np.abs(whole["met"]) + doubt).max(-1) * bound * (1 + error)
    gain = whole["gain"] - error * whole["mass"] - blocked
    peak = whole["peak"] * (1 + error)
    floor = np.divide(gain, peak, out=np.zeros(count), where=peak > 0) * (1 - 1e-15)
    share = np.divide(whole["square"], whole["asked"], out=np.zeros(count), where=whole["asked"] > 0)
    return Worth(residual, floor, np.abs(mixings).sum(-1), np.sqrt(share))


def total(parts: list[Array]) -> Array:
    """The sum of arrays, each entry rounded once."""
    stacked = np.stack(parts)
    flat = stacked.reshape(len(stacked), -1)
    return np.array([fsum(column) for column in flat.T]).reshape(stacked.shape[1:])


def improved(worth: Worth, places: NDArray[np.int64], better: Worth) -> Worth:
    """`worth` with the candidates at `places` evaluated better."""
    arrays = [np.array(getattr(worth, name)) for name in ("residual", "floor", "norm", "share")]
    for array, name in zip(arrays, ("residual", "floor", "norm", "share"), strict=True):
        array[places] = getattr(better, name)
    return Worth(*arrays)
