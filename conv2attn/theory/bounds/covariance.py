"""A certified lower bound on the eigenvalues of the inverse covariance of a head."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conv2attn.errors import AlphaError


def smallest_eigenvalue_at_least(matrix: Sequence[Sequence[float]]) -> float:
    """A certified lower bound on the smallest eigenvalue of the symmetric part of `matrix`.

    A floating-point guess is lowered until `matrix - guess I` has positive pivots in rational arithmetic (Sylvester).
    Take a head with scores `-(displacement - centre)^T A (displacement - centre)` whose centre is a key. It leaks no
    more than an isotropic head whose alpha is this eigenvalue of A.

    Source: proved as claim GQ of proofs/; Cordonnier et al. 2020, App. E.
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
    # LAPACK's eigenvalue errs in either direction, by a few units in the last place of the norm: it is only a guess.
    guess = float(np.linalg.eigvalsh((array + array.T) / 2)[0])
    # Exact elimination is slow, so the margin doubles: few guesses are tried.
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
    """Whether the symmetric part of `array`, minus shift I, has only positive pivots, by exact elimination."""
    size = len(array)
    # Fractions, because a float pivot near zero may have either sign. Rows are never exchanged: a symmetric matrix is
    # positive definite exactly if elimination in the given order meets positive pivots alone (Sylvester).
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
