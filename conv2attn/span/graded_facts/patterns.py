"""Measures of the heads' patterns: their symmetry and shape, their overlap, and the displacements that they cover.

The pattern p of a head is its mean attention to pixels by displacement, divided by its sum. The overlap of two patterns
is `sum_d min(p(d), p'(d))`. It is 1 if they are equal, and 0 if no displacement has weight in both.
"""

from collections.abc import Callable

import numpy as np

from conv2attn.span.attention_rows import Array
from conv2attn.span.graded_facts.measures import LEVEL, Estimate, mean_of
from conv2attn.span.graded_facts.sums import Sums

REDUNDANT = 0.9
"""Two heads are redundant if the cosine of their attention is at least this chosen threshold. The best multiple of one
head then explains at least 81 % of the squares of the other."""
GROUPS = 8
"""Number of groups of images for the bias correction. In simulations, more groups cost more without better coverage."""


def of_patterns(measure: Callable[[Array], Array]) -> Callable[[Sums], Estimate]:
    """A measure of the patterns of all heads, (heads, *displacements), with the bias from few images corrected.

    The correction is a jackknife over at most `GROUPS` groups of images. So an estimate may slightly exceed the range
    of the measure. It is NaN if a head has no attention to pixels, or none when a group is left out.

    Source: Quenouille 1956; groups of unequal sizes: Busing, Meijer and van der Leeden 1999.
    """

    def statistic(sums: Sums) -> Estimate:
        # An image stays in its group if another image is left out. With new groups, the replicates would also differ by
        # the grouping, which would enlarge the error.
        group = np.arange(sums.images) % GROUPS
        sizes = np.bincount(group)
        by_group = np.stack([sums.mass[group == number].sum(0) for number in range(len(sizes))])

        def without(left_out: int | None) -> Array:
            masses, counts = by_group.copy(), sizes.copy()
            if left_out is not None:
                masses[group[left_out]] -= sums.mass[left_out]
                counts[group[left_out]] -= 1
            masses, total = masses[counts > 0], counts.sum()
            plain = measure(pattern_of(masses.sum(0)))
            # The bias is estimated from the change when a group is left out. With one group this is impossible.
            if len(masses) == 1:
                return plain
            # The minima of noisy means are too small on average, and a ratio of variances is too far from 1. This bias
            # grows when a group is left out, and the difference shows its size.
            rest = [measure(pattern_of(np.delete(masses, at, 0).sum(0))) for at in range(len(masses))]
            weights = 1 - counts[counts > 0] / total
            return np.asarray(plain + np.tensordot(weights, plain - np.array(rest), 1))

        return without

    return statistic


def pattern_of(mass: Array) -> Array:
    """Attention by displacement as shares of each head's attention to pixels; NaN for a head without any."""
    # An image is left out by subtraction. Its rounding may make a sum negative that should be 0.
    mass = np.maximum(mass, 0.0)
    whole = mass.sum(tuple(range(1, mass.ndim)), keepdims=True)
    return np.divide(mass, whole, out=np.full_like(mass, np.nan), where=whole > 0)


def horizontal(patterns: Array) -> Array:
    """The overlap of each pattern with its mirror image from left to right, along the last axis."""
    return shared(patterns, np.flip(patterns, -1))


def vertical(patterns: Array) -> Array:
    """The overlap of each pattern with its mirror image from top to bottom; NaN on a line."""
    return shared(patterns, np.flip(patterns, -2)) if patterns.ndim > 2 else np.full(len(patterns), np.nan)


def anisotropy(patterns: Array) -> Array:
    """`1 - smallest / largest` variance of a pattern along its principal axes.

    NaN on a line, and for a pattern of one displacement.
    """
    flat, axes = patterns.reshape(len(patterns), -1), patterns.ndim - 1
    places = np.stack(np.unravel_index(np.arange(flat.shape[1]), patterns.shape[1:]), -1).astype(float)
    away = places[None] - (flat @ places)[:, None]
    covariance = np.einsum("hd,hdi,hdj->hij", flat, away, away)
    # `eigvalsh` refuses NaN, and the pattern of a head without attention to pixels is NaN.
    finite = np.isfinite(covariance).all((1, 2))
    variances = np.linalg.eigvalsh(np.where(finite[:, None, None], covariance, 0.0))
    extended = finite & (variances[:, -1] > LEVEL) & (axes > 1)
    ratio = np.divide(variances[:, 0], variances[:, -1], out=np.full(len(flat), np.nan), where=extended)
    return np.asarray(1 - np.maximum(ratio, 0.0))


def overlap(patterns: Array) -> Array:
    """The largest overlap of each pattern with the pattern of another head; NaN if there is one head."""
    return largest_other(np.array([shared(patterns, own[None]) for own in patterns]))


def coverage(patterns: Array) -> Array:
    """The number of displacements that the heads use together: exp of the entropy of their mean pattern."""
    mean = patterns.mean(0)
    return np.asarray(np.exp(-(mean * np.log(np.where(mean == 0, 1.0, mean))).sum()))


def likeness(sums: Sums) -> Estimate:
    """For each head, the largest cosine of its attention with another head's, over all queries, keys and images."""
    inner = products(sums)
    total = inner.sum(0)
    return lambda left_out: largest_other(cosines(total if left_out is None else total - inner[left_out]))


def redundant_pairs(sums: Sums) -> int:
    """The number of pairs of heads whose attention has a cosine of at least `REDUNDANT`."""
    return int((np.triu(cosines(products(sums).sum(0)), 1) >= REDUNDANT).sum())


def moved(sums: Sums) -> Estimate:
    """The root mean squared distance of moved centres from their mean; NaN if content moves no centre."""

    def without(left_out: int | None) -> Array:
        if sums.centers is None:
            return np.full(sums.mass.shape[1], np.nan)
        mean = mean_of(sums.centers, left_out) / sums.queries
        # E|c|^2 - |E c|^2 cancels if centres hardly move. Below `LEVEL` of the first term it counts as rounding.
        variance = mean[:, -1] - np.square(mean[:, :-1]).sum(-1)
        return np.asarray(np.sqrt(np.where(variance < LEVEL * mean[:, -1], 0.0, variance)))

    return without


def products(sums: Sums) -> Array:
    """The inner products of the attention of every two heads in each image, (images, heads, heads)."""
    # R^T R = A^T A for the R of an image's attention.
    return np.einsum("nrh,nrg->nhg", sums.factor, sums.factor)


def cosines(inner: Array) -> Array:
    """Cosines from inner products, (heads, heads)."""
    norms = np.sqrt(np.diag(inner))
    return np.asarray(inner / np.outer(norms, norms))


def shared(patterns: Array, others: Array) -> Array:
    """The overlap of each pattern with the pattern in the same row of `others`, or with its only row, (heads)."""
    return np.asarray(np.minimum(patterns, others).reshape(len(patterns), -1).sum(-1))


def largest_other(pairs: Array) -> Array:
    """The largest entry of each row off the diagonal; NaN if there is one row."""
    if len(pairs) < 2:
        return np.full(len(pairs), np.nan)
    return np.asarray(np.where(np.eye(len(pairs), dtype=bool), -np.inf, pairs).max(-1))
