"""Which keys one-hot heads read, known from their offsets without any attention being computed."""

import numpy as np
import torch
from numpy.typing import NDArray

from conv2attn.attention import QuadraticEncoding, hard_offsets
from conv2attn.attention.encodings import Encoding
from conv2attn.attention.hardness import first_stray
from conv2attn.basis import AttentionGrid, Offset


def keys_read(encoding: Encoding, grid: AttentionGrid, dtype: torch.dtype) -> NDArray[np.int64] | None:
    """The key that each head reads at each query, (heads, queries), or None where only its softmax tells.

    Hard heads whose targets are all on the grid are bitwise one-hot on them. Beyond the grid those of the quadratic
    encoding read the nearest key of the box, one axis at a time (E8 of docs/errata.md): another key is farther by an
    integer in squared pixels, and where alpha is a power of two and its product with the largest square a number of the
    format, no score is rounded, so that its weight vanishes as that of a neighbour of a target does.
    """
    offsets = hard_offsets(encoding.operators(), dtype)
    if isinstance(offsets, str):
        return None
    if first_stray(grid, offsets) is not None and not scores_are_exact(encoding, grid, offsets, dtype):
        return None
    read = np.zeros((len(offsets), 1), dtype=np.int64)
    for axis, side in enumerate(grid.keys):
        along = np.array([offset[axis] for offset in offsets])[:, None] + grid.site(axis).numpy()
        read = (read[:, :, None] * side + np.clip(along, 0, side - 1)[:, None]).reshape(len(offsets), -1)
    return read


def scores_are_exact(encoding: Encoding, grid: AttentionGrid, offsets: tuple[Offset, ...], dtype: torch.dtype) -> bool:
    """Whether no score of a quadratic encoding is rounded on this grid."""
    if not isinstance(encoding, QuadraticEncoding) or not bool((torch.frexp(encoding.alpha)[0] == 0.5).all()):
        return False
    farthest = sum(max(side + abs(offset[a]) for offset in offsets) ** 2 for a, side in enumerate(grid.keys))
    return farthest < (2**53 if dtype == torch.float64 else 2**24)
