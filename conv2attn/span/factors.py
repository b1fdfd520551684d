"""Orthogonal factors of the stacked rows, by a QR of chunks, and the mixings that they propose.

Nothing is decided here: what is proposed is judged by `evaluation`, with rounding counted. The Gram matrix, which
loses half the digits, is never formed.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.problem import Array, AttentionRows, Targets, selected

RIDGES = np.concatenate([[0.0], 10.0 ** np.arange(-30.0, 1.0)])
"""Factors on the largest squared singular value that are tried as regularisation: all that float64 can tell apart."""
LEAST_SQUARES = 1
"""Place of the plain one among the proposals."""
NEGLIGIBLE = 64 * np.finfo(np.float64).eps
"""Singular values below this share of the largest are taken as 0 in one of the proposals."""


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """Singular values (..., heads) of the stacked attention, and proposed mixings (..., proposals, targets, heads)."""

    singular: Array
    proposals: Array


def triangle(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Array:
    """R of the QR of `[A^T E^T]`, its rows all (image, query, key) with a chosen query: TSQR, chunk after chunk."""
    width = attention.heads + len(targets)
    factor = np.zeros((0, width))
    for _, queries, block in selected(attention, chosen):
        rows = np.concatenate([block, targets.block(queries, block.shape[2])]).reshape(width, -1).T
        factor = triangular(np.concatenate([factor, rows]))
    return factor


def triangular(rows: Array) -> Array:
    """R of the QR of matrices (..., rows, columns)."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def propose(factor: Array, heads: int, bound: float) -> Factors:
    """Least-squares mixings from R (..., rows, heads + targets): none, plain, rounded to integers, and two regularised.

    The regularised ones are the best lower bound on the distance of all mixings of norm `bound`, and the best mixing
    whose norm is within it.
    """
    left, singular, right = np.linalg.svd(factor[..., :heads], full_matrices=False)
    asked = np.swapaxes(left, -1, -2) @ factor[..., heads:]
    beyond = (factor[..., heads:] ** 2).sum(-2) - (asked**2).sum(-2)
    squares = singular[..., None] ** 2
    ridges = RIDGES.reshape(-1, *[1] * squares.ndim) * np.maximum(squares.max(-2, keepdims=True), 1e-300)
    held = squares + ridges
    shrunk = np.divide(singular[..., None] * asked, held, out=np.zeros_like(held + asked), where=held > 0)
    lost = np.divide(ridges * asked**2, held, out=np.zeros_like(held + asked), where=held > 0).sum(-2)
    lower = lost + beyond - ridges[..., 0, :] * bound**2
    fits = np.sqrt((shrunk**2).sum(-2) * heads) <= bound
    best = np.argmax(np.where(np.isfinite(lower), lower, -np.inf), 0)
    first = np.argmax(fits, 0)
    cut = np.where(singular > NEGLIGIBLE * singular[..., :1], 1.0, 0.0)[..., None]
    plain = np.divide(asked * cut, singular[..., None], out=np.zeros_like(asked), where=cut > 0)
    chosen = [plain, *(np.take_along_axis(shrunk, at[None, ..., None, :], 0)[0] for at in (best, first))]
    mixings = [np.swapaxes(np.swapaxes(right, -1, -2) @ each, -1, -2) for each in chosen]
    nothing = np.zeros_like(mixings[0])
    return Factors(singular, np.stack([nothing, mixings[0], np.round(mixings[0]), *mixings[1:]], -3))
