"""Orthogonal factors of the stacked rows, by a QR of chunks, and the mixings that they propose.

Nothing is decided here: what is proposed is judged by `evaluation`, with rounding counted. The Gram matrix, which
loses half the digits, is never formed.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.portions import Portion, shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets

RIDGES = np.concatenate([[0.0], 10.0 ** np.arange(-30.0, 1.0)])
"""Factors on the largest squared singular value that are tried as regularisation: all that float64 can tell apart."""
LEAST_SQUARES = 1
"""Place of the plain one among the proposals."""
NEGLIGIBLE = 64 * np.finfo(np.float64).eps
"""Singular values below this share of the largest are taken as 0 in one of the proposals."""

HALF = 0.5 + 2.0**-30
NEAR = 0.25
"""Distance from the integers within which a mixing may be meant to be one of them, and told which."""


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """Singular values (..., heads) of the stacked attention, and proposed mixings (..., proposals, targets, heads)."""

    singular: Array
    proposals: Array


def triangle(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Array:
    """R of the QR of `[A^T E^T]`, its rows all (image, query, key) with a chosen query: TSQR, portion after portion.

    With several processes R is that of the R of all of them. Each QR is backward stable, so that however the rows were
    grouped the singular values differ by no more than that: some n u times the largest, with n rows in a portion.
    """
    factor = np.zeros((0, attention.heads + len(targets)))
    for portion in shared(attention, targets, chosen):
        rest, asked = split(portion, targets.coefficients)
        roots = np.sqrt(portion.times)[:, None]
        rows = flat(rest if (roots == 1).all() else rest * roots)
        asked = (asked * roots[..., None]).reshape(-1, factor.shape[1])
        factor = triangular(np.concatenate([factor, widened(triangular(rows), len(targets)), asked]))
    return triangular(np.concatenate(attention.crew.gathered(factor)))


def split(portion: Portion, coefficients: Array) -> tuple[Array, Array]:
    """The keys that nobody asks for, (heads, queries, keys) with zeros at the others; and those that somebody does,
    with what is asked, (queries, taps, heads + targets). Most have nothing asked, and cost less on their own."""
    heads, queries, _ = portion.attention.shape
    rest, everyone = portion.attention.copy(), np.arange(queries)
    asked = np.zeros((queries, len(portion.places), heads + len(coefficients)))
    for tap, places in enumerate(portion.places):
        there = everyone[places >= 0]
        asked[there, tap, :heads] = portion.attention[:, there, places[there]].T
        asked[there, tap, heads:] = coefficients[:, tap]
        rest[:, there, places[there]] = 0
    return rest, asked


def flat(rows: Array) -> Array:
    """(heads, queries, keys) as a row a (query, key)."""
    return rows.reshape(len(rows), -1).T


def widened(factor: Array, targets: int) -> Array:
    """A triangle of attention alone, nothing being asked for."""
    return np.concatenate([factor, np.zeros((*factor.shape[:-1], targets))], -1)


def triangular(rows: Array) -> Array:
    """R of the QR of matrices (..., rows, columns)."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def propose(factor: Array, heads: int, bound: float) -> Factors:
    """Least-squares mixings from R (..., rows, heads + targets): none, plain, rounded to integers, and two regularised.

    The regularised ones are the best lower bound on the distance of all mixings of norm `bound`, and the best mixing
    whose norm is within it. What proposes nothing new is the plain one again, bit for bit, and costs nothing more:
    integers far from it, and regularisation by nothing.
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
    plain = np.where((cut > 0).all(-2, keepdims=True), shrunk[0], plain)
    chosen = [plain, *(np.take_along_axis(shrunk, at[None, ..., None, :], 0)[0] for at in (best, first))]
    mixings = [np.swapaxes(np.swapaxes(right, -1, -2) @ each, -1, -2) for each in chosen]
    nothing = np.zeros_like(mixings[0])
    return Factors(singular, np.stack([nothing, mixings[0], integers(mixings[0]), *mixings[1:]], -3))


def integers(mixings: Array) -> Array:
    """The nearest integers, rows (..., heads) that are not near any as they are; a half goes away from zero, however
    it was rounded."""
    whole = np.copysign(np.floor(np.abs(mixings) + HALF), mixings)
    near = (np.abs(whole - mixings) <= NEAR).all(-1, keepdims=True)
    return np.where(near, whole, mixings)
