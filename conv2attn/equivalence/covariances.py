"""Heads with full covariances that are one-hot as computed, and so are shifts."""

import math
from typing import Any

import torch

from conv2attn.attention.hardness import FORMATS
from conv2attn.attention.recipe import score_dtype
from conv2attn.basis import GeneralisedSoftmax, Shift, Sites
from conv2attn.basis.operators.offsets import pixels
from conv2attn.bounds import computed_leak, smallest_eigenvalue_at_least
from conv2attn.bounds.formats import accumulator_of
from conv2attn.bounds.rounding import gamma
from conv2attn.equivalence.heads import distance_outside
from conv2attn.errors import AlphaError, UnsupportedError

LONGEST = 2.0**25  # of a displacement, since sides are below 2^24
MARGIN = 1 - 2.0**-20  # chosen: far more than the few roundings of float64 with which a gap is computed here


def shifts_of(operators: GeneralisedSoftmax, sites: Sites, dtype: torch.dtype, name: str) -> Shift:
    """The shifts that generalised quadratic heads are, as computed for weights of `dtype`.

    Raises:
        UnsupportedError: a head is not known to be one-hot, because it is centred between pixels, off the grid or too
            soft (C2A101), or its numbers are not finite (C2A408).
    """
    center, root = (value.detach().to(score_dtype(dtype)).double() for value in operators.values)
    if not bool(center.isfinite().all() and root.isfinite().all()):
        raise UnsupportedError("C2A408", f"{name}: a centre or a covariance is not finite")
    targets = pixels(center)
    for head, target in enumerate(targets):
        told = f"{name}: head {head}, with a full covariance, "
        if center[head].tolist() != list(target):
            raise UnsupportedError("C2A101", f"{told}is centred between pixels")
        if any(distance_outside(sites, target)):
            raise UnsupportedError("C2A101", f"{told}has targets off the grid, where it does not read the nearest key")
        gap = gap_of(root[head], FORMATS[dtype])
        if not gap > 0 or computed_leak(gap, len(target), FORMATS[dtype]) > 0:
            raise UnsupportedError("C2A101", f"{told}is not known to be one-hot: its sharpness is at least {gap:.3g}")
    return Shift(targets)


def gap_of(root: torch.Tensor, format_name: str) -> float:
    """A number g such that keys n pixels from a target on a pixel score at most `-g |n|^2`, as computed; 0 if none.

    The score of the target is 0. That of another key is `-1/2 |root n|^2`, with a root and an n that are exact. Each
    entry of `root n` is off by at most `gamma_axes |row| |n|`, so that the vector is at least as long as
    `(s - gamma_axes |root|_F) |n|`, with s the smallest singular value; the squares, their sum and the half are off by
    a relative `gamma_(axes + 2)`. No entry overflows.

    Source: Higham 2002, Lemma 3.1 and Eq. 3.12.
    """
    axes, inner = len(root), accumulator_of(format_name)
    unit, largest = inner.unit_roundoff, root.square().sum().item()
    if not largest * LONGEST**2 <= inner.largest:
        return 0.0
    gram: Any = (root.mT @ root).tolist()
    try:
        least = smallest_eigenvalue_at_least(gram) - axes * 2.0**-50 * largest
    except AlphaError:
        return 0.0
    length = math.sqrt(max(0.0, least)) - gamma(axes, unit) * math.sqrt(largest)
    return max(0.0, length) ** 2 / 2 * (1 - gamma(axes + 2, unit)) * MARGIN
