"""The leak of a quadratic head with a full covariance."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from conv2attn.bounds.directed import BALL_PRECISION, down, up
from conv2attn.bounds.leak import leaked_mass
from conv2attn.errors import AlphaError, UsageError


def leaked_mass_covariance(precision: Sequence[Sequence[float]], shift: Sequence[float] | None = None) -> float:
    """Upper bound on the off-target weight for scores `-(displacement - centre)^T A (displacement - centre)`.

    The target is the integer vector that is `shift` = s away from the centre. A key n pixels from it scores less by
    n^T A n - 2 n^T A s >= (lambda - 2 |A s|) |n|^2, as A >= lambda I and |n| <= |n|^2, so the bound is `leaked_mass` of
    lambda - 2 |A s|. It holds when the target is a key. It is silent about targets outside the grid: there a full
    covariance does not pick the nearest key (E8 in the errata).

    Args:
        precision: A, the inverse covariance, in inverse squared pixels; only its symmetric part matters.
        shift: s, in pixels; zero when absent.
    Returns:
        The bound, rounded up; 1 where another key may weigh as much.
    Raises:
        AlphaError: no positive lower bound on the eigenvalues of A could be certified.
        UsageError: the shift is not one finite number for each axis.
    Source: Cordonnier et al. 2020, App. E.
    """
    least, axes = Fraction(smallest_eigenvalue_at_least(precision)), len(precision)
    if shift is not None:
        if len(shift) != axes or not all(map(math.isfinite, shift)):
            raise UsageError(
                "C2A007",
                f"shift {list(shift)} is not one finite number for each of {axes} axes",
                "Pass one finite number for each axis.",
            )
        least -= 2 * Fraction(_length_at_most(precision, shift))
    return leaked_mass(down(least), axes) if down(least) > 0 else 1.0


def _length_at_most(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> float:
    """|A s| for the symmetric part A of `matrix`, rounded up."""
    axes = range(len(vector))
    entries = [
        sum((Fraction(matrix[i][j]) + Fraction(matrix[j][i])) / 2 * Fraction(vector[j]) for j in axes) for i in axes
    ]
    square = sum(entry * entry for entry in entries)
    with ctx.workprec(BALL_PRECISION):
        return up((arb(square.numerator) / arb(square.denominator)).sqrt()) if square else 0.0


def smallest_eigenvalue_at_least(matrix: Sequence[Sequence[float]]) -> float:
    """A certified lower bound on the smallest eigenvalue of the symmetric part of `matrix`.

    A floating-point guess is lowered until `matrix - guess I` has positive pivots in rational arithmetic (Sylvester).

    Raises:
        AlphaError: `matrix` is not square, finite and positive definite, or too nearly singular to tell.
    """
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size or not np.isfinite(array).all():
        raise AlphaError(
            "C2A130",
            f"the inverse covariance {array.tolist()} is not a finite square matrix",
            "Pass a square matrix of finite numbers.",
        )
    guess = float(np.linalg.eigvalsh((array + array.T) / 2)[0])
    margin = float(abs(array).max()) * 2.0**-50
    while (lowered := guess - margin) > 0:
        if is_positive_definite(array, lowered):
            return lowered
        margin *= 2
    raise AlphaError(
        "C2A130",
        f"the inverse covariance {array.tolist()} is not certified positive definite",
        "Pass a symmetric matrix whose eigenvalues are positive.",
    )


def is_positive_definite(array: NDArray[np.float64], shift: float = 0.0) -> bool:
    """Whether the symmetric part of `array`, less shift I, has only positive pivots: exact elimination."""
    size = len(array)
    rows = [[(Fraction(array[i, j]) + Fraction(array[j, i])) / 2 for j in range(size)] for i in range(size)]
    for i in range(size):
        rows[i][i] -= Fraction(shift)
    for pivot in range(size):
        if rows[pivot][pivot] <= 0:
            return False
        for i in range(pivot + 1, size):
            ratio = rows[i][pivot] / rows[pivot][pivot]
            rows[i] = [below - ratio * above for below, above in zip(rows[i], rows[pivot], strict=True)]
    return True
