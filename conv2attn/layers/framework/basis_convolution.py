"""A trainable convolution whose structure is given with each input (Andreoli 2019, Proposition 2)."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.theory.basis import Basis, Combination, Weights, basis_of, evaluate, terms


@final
class BasisConvolution(nn.Module):
    """`y = sum_k P_k x M_k^T + b` with trained `M_k`; the `P_k` are an argument of each call.

    The same parameters run on every graph, grid and sequence with this number of terms.

    Args:
        d_in, d_out: channels.
        terms: number of `P_k`.
        mixtures: H of a separable convolution, whose `M_k = sum_h coefficients[h, k] taps[h]` (Eq. 9); None for free
            `M_k`.
        rank: `M_k` is a product through this many channels (Eq. 13); None for no such constraint.
        groups: diagonal blocks of each `M_k`, as in torch.nn.Conv2d.
    Raises:
        UsageError: groups that do not divide the channels or the rank (C2A007).
    Source: Andreoli 2019, Eqs. (8), (9), (13).
    Examples:
        >>> import conv2attn, torch
        >>> from conv2attn.theory.basis import Shift
        >>> layer = conv2attn.BasisConvolution(d_in=3, d_out=4, terms=2)
        >>> left_and_right = Shift(((0, -1), (0, 1)))
        >>> layer(torch.ones(1, 3, 5, 6), left_and_right).shape
        torch.Size([1, 4, 5, 6])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        terms: int,
        *,
        mixtures: int | None = None,
        rank: int | None = None,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        if min(d_in, d_out, terms, mixtures or 0, rank or 0) < 0 or groups < 1:
            raise UsageError(
                "C2A001",
                f"sizes {d_in}, {d_out}, {terms}, {mixtures}, {rank}, {groups} are too small",
                "Pass positive whole numbers.",
            )
        if d_in % groups or d_out % groups or (rank or 0) % groups:
            raise UsageError(
                "C2A007",
                f"groups={groups} divides not all of d_in={d_in}, d_out={d_out}, rank={rank}",
                "Pass groups that divide all three.",
            )
        self.terms, self.groups = terms, groups
        matrices = terms if mixtures is None else mixtures
        self.coefficients = None if mixtures is None else uniform((mixtures, terms), terms)
        self.value = None if rank is None else uniform((matrices, rank, d_in // groups), d_in // groups)
        self.output = uniform((matrices, d_out, (d_in if rank is None else rank) // groups), matrices * d_in // groups)
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def basis(self, structure: Any, dimensions: int = 1) -> Basis:
        """The layer on one structure, a family of operators on grids of so many dimensions.

        Raises:
            UsageError: the structure has another number of terms (C2A122).
        """
        if terms(structure) != self.terms:
            raise UsageError(
                "C2A122",
                f"a structure of {terms(structure)} terms, where the layer has {self.terms}",
                "Pass a structure of that many terms.",
            )
        family = structure if self.coefficients is None else Combination(self.coefficients, structure)
        return basis_of(family, Weights(self.value, self.output, self.bias, self.groups), dimensions)

    def forward(self, image: Tensor, structure: Any) -> Tensor:
        """`image` (batch, d_in, *sides) mixed by `structure`: (batch, d_out, *queries)."""
        return evaluate(self.basis(structure, image.ndim - 2), image)


def uniform(shape: tuple[int, ...], fan: int) -> nn.Parameter:
    """A parameter with variance 1 / (3 fan), as torch.nn.Linear and convolutions start from."""
    bound = 1 / math.sqrt(max(fan, 1))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
