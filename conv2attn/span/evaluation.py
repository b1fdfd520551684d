"""What a mixing is worth, with every rounding counted: residual from above, and what no other mixing can beat.

For a mixing phi and `y = e - phi A`, any mixing psi with sum of absolute values at most B, and any attention A' within
the uncertainty dA of A, give

    sum_q |y_q|_max |e_q - psi A'_q|_1  >=  <y, e> - B max_h (|<A_h, y>| + <dA_h, |y|>)

so psi has a query whose residual is at least the right side over `sum_q |y_q|_max`: the `floor`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import gamma
from conv2attn.span.portions import Portion, shared
from conv2attn.span.problem import Array, AttentionRows, Targets

UNIT = {kind: float(np.finfo(kind).eps) / 2 for kind in (np.float64, np.longdouble)}
"""Unit roundoff of the two arithmetics: float64, fast, and the longest float of the machine where that cannot tell."""
PARTS = 64
"""Parts of a sum that are held before they are summed up."""
SUMS = ("gain", "mass", "peak", "square", "asked", "met", "weight")
CANDIDATES = 16
"""Mixings a head that are looked at together: what they leave is the largest array that there is."""
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


def parts_of(portion: Portion, coefficients: Array, mixings: Array, precision: Precision) -> dict[str, Any]:
    """The largest residual of each candidate in a portion, and what the portion adds to each of the sums."""
    if not mixings.any():
        return parts_of_nothing(portion, coefficients, precision)
    left, asked, at_keys = residuals(portion, coefficients, mixings, precision)
    flat = portion.attention.reshape(len(portion.attention), -1).T.astype(precision, copy=False)
    times = portion.times.astype(precision)
    weighted = left if (times == 1).all() else left * times[:, None]
    parts = {
        "gain": (at_keys * asked).sum(1) @ times,
        "mass": np.abs(at_keys * asked).sum(1) @ times,
        "square": np.einsum("cqk,cqk->cq", left, left) @ times,
        "asked": (asked**2).sum(1) @ times,
        "met": weighted.reshape(len(mixings), -1) @ flat,
    }
    size = np.abs(left, out=left)
    weighted = size if weighted is left else np.abs(weighted, out=weighted)
    weight = weighted.reshape(len(mixings), -1) @ flat
    return {**parts, "weight": weight, "peak": size.max(-1) @ times, "residual": size.sum(-1).max(-1)}


def parts_of_nothing(portion: Portion, coefficients: Array, precision: Precision) -> dict[str, Any]:
    """The same of mixings that are zero: all that is asked for is left, at few keys."""
    there, times = portion.places >= 0, portion.times.astype(precision)
    asked: Any = np.where(there, coefficients[:, :, None], 0).astype(precision)
    read = np.where(there, portion.attention[:, np.arange(there.shape[1]), portion.places], 0)
    flat: Any = read.reshape(len(read), -1).T.astype(precision)
    size, squares = np.abs(asked), (asked**2).sum(1) @ times
    met, weight = ((each * times).reshape(len(asked), -1) @ flat for each in (asked, size))
    sums = {"gain": squares, "mass": squares, "square": squares, "asked": squares, "met": met, "weight": weight}
    return {**sums, "peak": size.max(1) @ times, "residual": size.sum(1).max(-1)}


def residuals(portion: Portion, coefficients: Array, mixings: Array, precision: Precision) -> tuple[Any, Array, Any]:
    """`e - phi A` (candidates, queries, keys), and where something is asked for, (candidates, taps, queries): what,
    and what is left there; both 0 beyond the grid."""
    heads, queries, keys = portion.attention.shape
    product = (-mixings).astype(precision) @ portion.attention.reshape(heads, -1).astype(precision, copy=False)
    left: Any = product.reshape(len(mixings), queries, keys)
    asked, at_keys = np.zeros((len(mixings), len(portion.places), queries)), []
    for tap, places in enumerate(portion.places):
        there = np.flatnonzero(places >= 0)
        asked[:, tap, there] = coefficients[:, tap, None]
        left[:, there, places[there]] += coefficients[:, tap, None]
    for places in portion.places:
        at_keys.append(np.where(places >= 0, left[:, np.arange(queries), places], 0))
    return left, asked, np.stack(at_keys, 1)


@final
class Sums:
    """Named sums of arrays over many parts, each rounded once for every `PARTS` of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.parts: dict[str, list[Array]] = {name: [] for name in names}
        self.folds = 0

    def add(self, parts: Mapping[str, Any]) -> None:
        """One more of each."""
        for name, part in parts.items():
            self.parts[name].append(part.astype(np.float64))
        if len(next(iter(self.parts.values()))) > PARTS:
            self.parts = {name: [total(held)] for name, held in self.parts.items()}
            self.folds += 1

    def held(self) -> tuple[dict[str, list[Array]], int]:
        """What was added, summed up as far as it is, and how often its sums were rounded."""
        return self.parts, self.folds

    @staticmethod
    def together(held: Sequence[tuple[Mapping[str, list[Array]], int]]) -> tuple[dict[str, Array], int]:
        """The sums of all processes, and how often they were rounded."""
        whole = {name: total([part for parts, _ in held for part in parts[name]]) for name in held[0][0]}
        return whole, max(folds for _, folds in held)


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
