"""Least squares by a QR over chunks of rows: mixings of heads, ranks, distances, and residuals rounded up.

A mixing has one coefficient per head. With A for the attention of the heads and E for the targets, least squares finds
the mixings phi with the smallest `|e - phi A|`. No verdict is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import ROUNDOFF, Array, Whole
from conv2attn.span.equations import Portion, Targets
from conv2attn.theory.bounds import gamma

NEGLIGIBLE = 64 * np.finfo(np.float64).eps
"""Singular values below this share of the largest count as 0."""
WELL = 1e-6
"""If the least eigenvalue of a Gram matrix is above this share of the largest, its Cholesky factor has ten digits."""
RIDGES = np.concatenate([[0.0], 10.0 ** np.arange(-30.0, 2.0)])
"""Regularisations to try, as multiples of the largest squared singular value: the range that float64 resolves."""


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """Ranks, directions and least squares from the factor R of `[A^T E^T]`.

    Args:
        singular: singular values of the attention, (heads).
        directions: singular directions of the attention, one per row, (heads, heads).
        plain: mixings of least squares, (targets, heads).
        bounded: mixings of regularised least squares, whose norm is within the limit, (targets, heads).
        distance: distance of a target from the span of the heads, divided by the target's length, (targets).
        explained: share of the attention, in squares, that the best combination of targets for each head explains.
    """

    singular: Array
    directions: Array
    plain: Array
    bounded: Array
    distance: Array
    explained: float = 0.0

    @property
    def threshold(self) -> float:
        """The singular value up to which a direction counts as rounding."""
        return float(NEGLIGIBLE * self.singular[0])

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which directions do not count as rounding."""
        return np.asarray(self.singular > self.threshold)


def factors_of(portions: Iterable[Portion], coefficients: Array, bound: float) -> Factors:
    """The factors of all rows of these portions; `bound` is the limit on the norm of mixings."""
    factor = triangle(portions, coefficients)
    heads = factor.shape[1] - len(coefficients)
    attention_part, target_part = factor[:, :heads], factor[:, heads:]
    # For `explained`, the heads are projected on the span of the targets. R may replace the stacked rows here too,
    # since an orthogonal factor changes no inner product.
    basis, singular, _ = np.linalg.svd(target_part, full_matrices=False)
    along = basis[:, singular > NEGLIGIBLE * singular[:1]].T @ attention_part
    explained = float((along**2).sum() / (attention_part**2).sum())
    return replace(factored(factor, heads, bound), explained=explained)


def factored(triangular_factor: Array, heads: int, bound: float) -> Factors:
    """The factors from R (..., rows, heads + targets), of one group of rows or of several."""
    # R has the singular values of the whole system, but only as many rows as columns. So the whole attention is never
    # in memory.
    left, singular, right = np.linalg.svd(triangular_factor[..., :heads], full_matrices=False)
    components = np.swapaxes(left, -1, -2) @ triangular_factor[..., heads:]
    squares = (triangular_factor[..., heads:] ** 2).sum(-2)
    kept = singular > NEGLIGIBLE * singular[..., :1]
    # Directions that float64 cannot distinguish from 0 get no weight: 1 / singular would be noise times 1e16.
    cut = np.divide(1.0, singular, out=np.zeros_like(singular), where=kept)[..., None]
    # The remainder is formed and then squared. The difference of two sums of squares would cancel to half the digits.
    beyond = ((triangular_factor[..., heads:] - left @ (components * kept[..., None])) ** 2).sum(-2)
    distance = np.sqrt(np.divide(beyond, squares, out=np.zeros_like(squares), where=squares > 0))
    plain = mixings_along(right, components * cut)
    best = np.zeros_like(plain)
    norms = np.abs(plain).sum(-1, keepdims=True)
    # Tikhonov's damping shrinks a mixing until its norm is within the bound, and less damping leaves a smaller
    # residual. The damping decreases in this loop, so the last mixing within the bound is the best one for its target.
    for ridge in RIDGES[::-1] if (norms > bound).any() else ():
        damped = singular / (singular**2 + ridge * singular[..., :1] ** 2 + (ridge == 0) * ~kept)
        shrunk = mixings_along(right, components * damped[..., None])
        best = np.where(np.abs(shrunk).sum(-1, keepdims=True) <= bound, shrunk, best)
    return Factors(singular, right, plain, np.where(norms <= bound, plain, best), distance)


def mixings_along(right: Array, along: Array) -> Array:
    """Mixings (..., targets, heads) from their components along the right singular vectors (..., heads, targets)."""
    return np.swapaxes(np.swapaxes(right, -1, -2) @ along, -1, -2)


def triangle(portions: Iterable[Portion], coefficients: Array) -> Array:
    """R of the QR of `[A^T E^T]`, a matrix with one row per (row, key) of all portions."""
    # TSQR (Demmel, Grigori, Hoemmen and Langou 2012): the R of a matrix that stacks the R so far on the next rows is
    # the R of all rows.
    factor: Array | None = None
    for portion in portions:
        heads = len(portion.attention)
        before = np.zeros((0, heads + len(coefficients))) if factor is None else factor
        # Few keys have a target. At all other keys the rows of `[A^T E^T]` end in zeros, so the factor of the heads is
        # enough.
        rest, target_columns = split(portion, coefficients)
        # A row that represents n equal rows counts n times in a sum of squares, hence sqrt(n) in the factor.
        roots = np.sqrt(portion.times)[:, None]
        columns = (rest if (roots == 1).all() else rest * roots).reshape(1, heads, -1)
        target_columns = (target_columns * roots[..., None]).reshape(-1, heads + len(coefficients))
        rest_factor = widened(triangles(columns)[0], len(coefficients))
        factor = triangular(np.concatenate([before, rest_factor, target_columns]))
    assert factor is not None
    return factor


def split(portion: Portion, coefficients: Array) -> tuple[Array, Array]:
    """Splits `[A^T E^T]` by keys: without a target, as attention alone; and with a target, as attention and targets.

    The first part is (heads, rows, keys), with zeros at keys that have a target. The second part is (rows, taps,
    heads + targets). Most keys have no target, and the factor of the first part is narrower.
    """
    heads, rows, _ = portion.attention.shape
    rest, queries = portion.attention.copy(), np.arange(rows)
    target_columns = np.zeros((rows, len(portion.places), heads + len(coefficients)))
    for tap, places in enumerate(portion.places):
        inside = queries[places >= 0]
        target_columns[inside, tap, :heads] = portion.attention[:, inside, places[inside]].T
        target_columns[inside, tap, heads:] = coefficients[:, tap]
        rest[:, inside, places[inside]] = 0
    return rest, target_columns


def widened(factor: Array, targets: int) -> Array:
    """A triangular factor of the attention, with columns of zeros for the targets."""
    return np.concatenate([factor, np.zeros((*factor.shape[:-1], targets))], -1)


def triangular(rows: Array) -> Array:
    """R of the QR of matrices (..., rows, columns)."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def triangles(columns: Array) -> Array:
    """R of the QR of columns (groups, heads, entries), from their Gram matrix if that is accurate enough."""
    products = columns @ columns.swapaxes(1, 2)
    # A Gram matrix squares the condition number. Its Cholesky factor is cheaper than a QR, and accurate to ten digits
    # if the eigenvalues are this close together. Nearly dependent columns need the QR.
    values = np.linalg.eigvalsh(products)
    if (values[:, 0] > WELL * values[:, -1]).all():
        return np.asarray(np.linalg.cholesky(products)).swapaxes(1, 2)
    # LAPACK returns min(entries, heads) rows of R. Rows of zeros make it square, as the Cholesky factor is.
    short = max(0, columns.shape[1] - columns.shape[2])
    return triangular(np.pad(columns, ((0, 0), (0, 0), (0, short))).swapaxes(1, 2))


CANDIDATES = 4
"""Mixings that are tried at once, per head: their remainders take this many times the memory of the attention."""


def rounded_up(
    residuals: Array, mixings: Array, coefficients: Array, largest: Array, row_sum: float, width: int
) -> Array:
    """Residuals as computed in float64, plus a bound on all rounding of `sum_k |e - phi A|`.

    It requires that no two taps of a row have the same key.

    Args:
        largest: for each target, its largest 1-norm at a row.
        row_sum: a bound on the sum of a row of attention.
        width: number of keys.
    """
    steps = mixings.shape[-1] + 4
    # Each entry of `e - phi A` is an inner product of heads + 1 terms. Its error is at most gamma times the sum of
    # their absolute values (Higham 2002, eq. 3.5), which over the keys is at most |e|_1 + |phi|_1 row_sum.
    reach = largest + np.abs(mixings).sum(-1) * row_sum
    # A mixing whose only non-zero entry is a power of two has exact products. The subtraction from a target rounds
    # relative to its result, which the last factor covers. Without this case, a one-hot head that equals the shift
    # would not have a residual of exactly 0.
    powers = ((np.frexp(np.abs(mixings))[0] == 0.5) | (mixings == 0)).all(-1)
    selects = ((mixings != 0).sum(-1) <= 1) & powers & ((coefficients != 0).sum(-1) <= 1)
    drift = np.where(selects, 0.0, gamma(steps, ROUNDOFF["float64"]) * reach)
    # The sum over keys rounds relative to itself, since its terms are not negative.
    return np.asarray((residuals + drift) * (1 + 2 * gamma(width + 4, ROUNDOFF["float64"])))


def remainders_of(portion: Portion, coefficients: Array, mixings: Array) -> Array:
    """`e - phi A` of each mixing phi and its target e, (candidates, rows, keys)."""
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
    """The residual of mixing c of (candidates, heads) for target `wanted[c]` at its worst row, rounded up.

    The second result is, for every mixing, at most `most` rows with the largest residuals, worst first. `width` is the
    number of keys.
    """
    worst, row_sum = np.zeros(len(mixings)), 0.0
    sizes_kept: Array = np.zeros((len(mixings), 0))
    rows_kept: Whole = np.zeros((len(mixings), 0), dtype=np.int64)
    for portion in portions if len(mixings) else ():
        # Rows of attention sum to 1 only up to rounding, so the largest sum is used.
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
            # Only the worst rows so far are kept, which takes less memory than the sizes of all rows.
            order = np.argsort(-sizes_kept, axis=1, kind="stable")[:, :most]
            sizes_kept = np.take_along_axis(sizes_kept, order, 1)
            rows_kept = np.take_along_axis(rows_kept, order, 1)
    coefficients, largest = targets.coefficients[wanted], targets.largest[wanted]
    return rounded_up(worst, mixings, coefficients, largest, row_sum * (1 + 1e-9), width), list(rows_kept)
