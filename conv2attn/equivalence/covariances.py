"""Heads with full covariances: which are one-hot as computed, and so are shifts."""

import math
from typing import Any

import torch

from conv2attn.attention.hardness import FORMATS
from conv2attn.basis import Basis, GeneralisedSoftmax, offsets
from conv2attn.bounds import computed_leak, smallest_eigenvalue_at_least
from conv2attn.bounds.formats import accumulator_of
from conv2attn.bounds.rounding import gamma
from conv2attn.equivalence.heads import distance_outside
from conv2attn.errors import AlphaError

LONGEST = 2.0**25  # of a displacement, since sides are below 2^24
MARGIN = 1 - 2.0**-20  # chosen: far more than the few roundings of float64 with which a gap is computed here


def not_one_hot(basis: Basis) -> str:
    """Why heads with full covariances are not known to be shifts as computed; empty if they are, or there are none."""
    heads, kind = basis.operators, FORMATS[basis.weights.stored.dtype]
    if not isinstance(heads, GeneralisedSoftmax):
        return ""
    for head, (target, center, root) in enumerate(zip(offsets(heads), *heads.values, strict=True)):
        label = f"head {head}, with a full covariance, "
        if center.tolist() != list(target):
            return f"{label}is centred between pixels"
        if any(distance_outside(basis.sites, target)):
            return f"{label}has targets off the grid, where it does not read the nearest key"
        gap = gap_of(root.double(), kind)
        if not gap > 0 or computed_leak(gap, len(target), kind) > 0:
            return f"{label}is not known to be one-hot: its sharpness is at least {gap:.3g}"
    return ""


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
