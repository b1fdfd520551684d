"""The matrices of heads, kept as small as their ranks allow."""

from typing import final

import torch
from torch import Tensor

SAME_MATRIX = 1e-12
"""Largest difference of an entry of a product of factors from that of its matrix, as a share of the largest entry."""


@final
class HeadMatrices:
    """The matrices W_out W_val of heads, (heads, d_out, d_in): dense, or as a product of two factors."""

    def __init__(self, *factors: Tensor):
        self.factors = factors

    def packed(self) -> "HeadMatrices":
        """These matrices as a product of two factors, if the factors are smaller."""
        return HeadMatrices(*(factors_of(self.dense()) or self.factors))

    def dense(self) -> Tensor:
        """The matrices."""
        return self.factors[0] if len(self.factors) == 1 else self.factors[0] @ self.factors[1]

    def __len__(self) -> int:
        return len(self.factors[0])


def factors_of(matrices: Tensor) -> tuple[Tensor, Tensor] | None:
    """Factors (heads, d_out, rank) and (heads, rank, d_in) of matrices, or None if these would not be smaller.

    The products of a matrix with `rank` random vectors span its columns if its rank is at most `rank`, which is
    checked.
    """
    heads, d_out, d_in = matrices.shape
    generator, rank = torch.Generator("cpu").manual_seed(0), -(-d_in // heads)
    # The rank is unknown. It is doubled until the factors reproduce the matrices, or are no smaller (Halko, Martinsson
    # and Tropp 2011, Sec. 4.4).
    while rank * (d_out + d_in) < d_out * d_in:
        drawn = torch.randn(d_in, rank, generator=generator, dtype=matrices.dtype, device="cpu").to(matrices.device)
        left = torch.linalg.qr(matrices @ drawn).Q
        right = left.mT @ matrices
        if all(is_product(*head) for head in zip(matrices, left, right, strict=True)):
            return left, right
        rank *= 2
    return None


def is_product(matrix: Tensor, left: Tensor, right: Tensor) -> bool:
    """Whether a matrix is the product of two factors, up to their rounding."""
    return bool((matrix - left @ right).abs().max() <= SAME_MATRIX * matrix.abs().max())
