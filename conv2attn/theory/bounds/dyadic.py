"""Floats as exact numbers: integers over a power of two."""

import flint
import numpy as np
from numpy.typing import NDArray

MANTISSA = 53
"""Bits of the significand of a float64, the hidden one included."""

Floats = NDArray[np.float64]


def dyadic(rows: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Mantissas, lifts and `bits` such that each finite float is exactly `mantissa 2^(lift - bits)`, with lift >= 0."""
    # One common power of two turns a product of float matrices into a product of integer matrices, which is exact.
    mantissas, exponents = np.frexp(rows)
    least = int(exponents.min(initial=0, where=rows != 0)) - MANTISSA
    lifts = np.where(rows != 0, exponents - MANTISSA - least, 0)
    return np.ldexp(mantissas, MANTISSA).astype(np.int64), lifts, -least


def over_power_of_two(rows: Floats) -> tuple[int, list[list[int]]]:
    """A power of two, and the floats times this power, which are exact integers."""
    integers, bits = scaled_integers(rows)
    return 1 << bits, integers.tolist()


def scaled_integers(rows: Floats) -> tuple[NDArray[np.object_], int]:
    """Python integers in the shape of `rows`, and `bits`, such that the floats are the integers divided by `2^bits`."""
    mantissas, lifts, bits = dyadic(rows)
    # Python integers, since a lift may be two thousand bits, and int64 would overflow silently.
    return np.left_shift(mantissas.astype(object), lifts.astype(object)), bits


def integer_matrix(rows: Floats) -> tuple[flint.fmpz_mat, int]:
    """A matrix of integers, and `bits`, such that the floats are the integers divided by `2^bits`."""
    mantissas, lifts, bits = dyadic(rows)
    numbers = zip(mantissas.ravel().tolist(), lifts.ravel().tolist(), strict=True)
    return flint.fmpz_mat(len(rows), rows.shape[1], [flint.fmpz(mantissa) << lift for mantissa, lift in numbers]), bits


def pivots(matrix: flint.fmpz_mat | flint.fmpq_mat) -> list[int]:
    """The columns of an integer or rational matrix that are linearly independent of the columns before them."""
    # For integers FLINT also returns the denominator of the reduced matrix, which does not affect the pivots.
    reduced, *_, rank = matrix.rref()
    columns: list[int] = []
    for row in range(rank):
        start = columns[-1] + 1 if columns else 0
        columns.append(next(c for c in range(start, matrix.ncols()) if reduced[row, c] != 0))
    return columns
