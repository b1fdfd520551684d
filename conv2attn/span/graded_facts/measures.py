"""Shares of heads and of layers, estimated over images without bias, with standard errors.

The square of a mean over n images is estimated by products of different images, `sum_{i != j} <x_i, x_j> / n(n - 1)`,
whose expectation is the square of the expectation. Standard errors come from the jackknife: a replicate is an estimate
that leaves out one image or, if there are two images, one block of queries. An array of estimates has a leading axis,
with the value from all data first and the replicates after it.

Source of the estimator: Hoeffding 1948 (U-statistics); of the errors: Efron and Stein 1981 (the jackknife).
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from conv2attn.span.attention_rows import Array
from conv2attn.span.graded_facts.sums import Sums
from conv2attn.span.least_squares import NEGLIGIBLE
from conv2attn.theory.basis import Offset

KERNELS = (1, 3, 5, 7)
DILATIONS = (1, 2, 3)
LEVEL = 1e-12
"""If the energy about the row means is below this share of the whole energy, the head counts as attending evenly."""

Estimate = Callable[[int | None], Array]
"""A statistic as a function of the number of an image that is left out, or of None for all images."""


def estimated(parts: Sequence[Sums], statistic: Callable[[Sums], Estimate]) -> Array:
    """A statistic of a layer, then its jackknife replicates, (1 + replicates, ...). One image gives no replicates."""
    total = reduce(Sums.__add__, parts)
    without = statistic(total)
    values = [without(None)]
    if len(parts) > 1:
        rest = (reduce(Sums.__add__, [*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
        values += [statistic(sums)(None) for sums in rest]
    # If one of two images is left out, no products of different images remain.
    elif total.images > 2:
        values += [without(image) for image in range(total.images)]
    return np.array(values)


def error_of(replicates: Array) -> Array | None:
    """The standard error of an estimate from its jackknife replicates; None if there are none.

    With few replicates it is enlarged, so that three errors cover 99 % of Student's distribution. docs/heads.md has the
    coverage that was measured.
    """
    from scipy.special import stdtrit

    count = len(replicates) - 1
    if not count:
        return None
    without = replicates[1:]
    spread = (count - 1) / count * ((without - without.mean(0)) ** 2).sum(0)
    # Three errors cover 99.7 % of a normal distribution. With few replicates the error itself is uncertain, hence
    # Student's distribution.
    return np.asarray(np.sqrt(spread) * max(1.0, stdtrit(count - 1, 0.995) / 3))


def crossed(own: Array, along: Array, total: Array, left_out: int | None) -> Array:
    """The mean of `<x_i, x_j>` over pairs of different images, from `|x_i|^2`, `<x_i, sum x>` and `|sum x|^2`."""
    n = len(own)
    if left_out is None:
        return np.asarray((total - own.sum(0)) / (n * (n - 1)))
    # With S the sum of all x_i, and x the one that is left out: |S - x|^2 - (sum of |x_i|^2 - |x|^2), where
    # |S - x|^2 = |S|^2 - 2 <x, S> + |x|^2.
    rest = total - 2 * along[left_out] + 2 * own[left_out] - own.sum(0)
    return np.asarray(rest / ((n - 1) * (n - 2)))


def mean_of(values: Array, left_out: int | None) -> Array:
    """The mean over images (axis 0): all of them, or all but `left_out`."""
    return np.asarray((values if left_out is None else np.delete(values, left_out, 0)).mean(0))


def shares(sums: Sums, by_position: bool) -> Estimate:
    """The shares of relative position, of other position and of content, (3, heads); NaN if there is no estimate.

    If there is one image, and attention may depend on it, only the share of relative position is estimated, from
    products of different queries at the same displacement. Attention `by_position` alone has no noise, so all shares
    are estimated.
    """
    axes = tuple(range(1, sums.pairs.ndim + 1))
    by_offset = np.divide(sums.deviation**2, sums.pairs, out=np.zeros_like(sums.deviation), where=sums.pairs > 0)
    same_image = by_offset.sum(tuple(a + 1 for a in axes))
    if sums.images > 1:
        every = sums.deviation.sum(0)
        against = np.divide(every, sums.pairs, out=np.zeros_like(every), where=sums.pairs > 0)
        along, total = (sums.deviation * against).sum(tuple(a + 1 for a in axes)), (every * against).sum(axes)
    elif not by_position:
        assert sums.scatter is not None
        # (sum D)^2 - sum of D^2 is a sum over all pairs of different queries: pairs (pairs - 1) per displacement.
        several = sums.pairs > 1
        parts = np.divide(sums.deviation[0] ** 2 - sums.scatter, sums.pairs - 1, where=several, out=0 * sums.scatter)
        same_image = parts.sum(axes)[None]

    def without(left_out: int | None) -> Array:
        energy = mean_of(sums.squares, left_out)
        position, relative = sums.squares[0] if by_position else np.full_like(energy, np.nan), same_image[0]
        if sums.images > 1:
            position = crossed(sums.squares, sums.along, sums.total, left_out)
            relative = crossed(same_image, along, total, left_out)
        even = energy <= LEVEL * mean_of(sums.energy, left_out)
        parts = np.stack([relative, position - relative, energy - position]) / np.where(even, 1.0, energy)
        # A difference of equal energies is rounding, which would be printed with a sign, so it is set to 0.
        return np.where(even, np.nan, np.where(np.abs(parts) < LEVEL, 0.0, parts))

    return without


def spanned(sums: Sums, kernels: Sequence[tuple[Offset, ...]]) -> Estimate:
    """R^2 of the heads' span for each offset of some kernels: 1 - |shift - span|^2 / |shift|^2.

    It is computed from the triangular factor of the heads. If heads nearly depend on each other, only directions above
    rounding count.
    """
    mass, count = sums.at(tuple(offset for offsets in kernels for offset in offsets))

    def without(left_out: int | None) -> Array:
        kept = [image for image in range(sums.images) if image != left_out]
        factor = np.linalg.qr(sums.factor[kept].reshape(-1, mass.shape[1]), mode="r") / np.sqrt(len(kept))
        _, singular, right = np.linalg.svd(factor, full_matrices=False)
        real = singular > NEGLIGIBLE * singular[0]
        # The inner product of a shift with head h is the head's mass at the offset. In an orthonormal basis of the
        # span, the squares of the shift's inner products sum to the squared length of its projection.
        reached = (right[real] / singular[real, None]) @ mass[kept]
        squares = (reached.sum(0) ** 2).sum(0)
        if len(kept) > 1:
            # Only products of different images are used, since the square of an image's noise would add to R^2.
            squares = (squares - (reached**2).sum((0, 1))) / (len(kept) * (len(kept) - 1))
        return np.asarray(np.divide(squares, count, out=np.zeros_like(squares), where=count > 0))

    return without


def explained_of_uniform(sums: Sums, offsets: tuple[Offset, ...]) -> Array | None:
    """The share of uniform attention that one tap at each offset explains: the chance level on this grid.

    Uniform attention is 1 / w at each of the w keys that a query may read. The offset is on the grid for `having`
    queries, of which `pairs` may read its key. The nearest tap is the mean attention over the `having` queries,
    `pairs / (having w)`, so it explains `having (pairs / (having w))^2` of the energy `queries / w`. This is also R^2
    of the span of uniform heads for the shift. None if queries may read different numbers of keys.
    """
    readable = sums.readers.sum() / sums.images
    # The arithmetic and the geometric mean of w over queries are equal if and only if all w are equal.
    if not np.isclose(readable / sums.queries, np.exp(sums.room / sums.queries), rtol=1e-9):
        return None
    pairs, having = (sums.numbers_at(counts, offsets) for counts in (sums.pairs, sums.having))
    explained: Array = np.divide(pairs**2, having, out=np.zeros_like(pairs), where=having > 0) / readable
    return explained


def number(value: Array | None) -> float | None:
    """A single number as a Python float; None for None, NaN and infinity."""
    return None if value is None or not np.isfinite(value) else float(value)
