"""The abstract domain: a bound on a tensor, and on its difference between two networks; rounding adds to both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import format_of, gamma
from conv2attn.errors import UsageError

SLACK = 1 + 2.0**-30  # pays for the float64 sums here: fewer than 2^22 terms, each rounded once


class Stop(Exception):
    """The bound cannot be carried through something."""

    def __init__(self, where: str):
        super().__init__(where)
        self.where = where


@final
@dataclass(frozen=True, eq=False)
class Carried:
    """In float64: the largest magnitude in the first network, and the largest difference from it in the second.

    Both broadcast to the tensor that they speak of: an axis of length 1 stands for one along which they are the same.
    """

    size: Tensor
    error: Tensor

    @property
    def reach(self) -> float:
        """The largest magnitude in either network."""
        return (self.size + self.error).max().item() * SLACK

    @staticmethod
    def of_constant(tensor: Tensor) -> "Carried":
        """The bounds of a tensor that is the same in both networks."""
        size = tensor.detach().cpu().double().abs()
        return Carried(size, torch.zeros((1,) * size.ndim, dtype=torch.float64))

    def along(self, function: Callable[[Tensor], Tensor]) -> "Carried":
        """`function` of both."""
        return Carried(function(self.size), function(self.error))

    def largest_over(self, axes: Sequence[int]) -> "Carried":
        """The largest along `axes`, which keep length 1."""
        return self.along(lambda each: each.amax(tuple(axes), keepdim=True) if axes else each)

    def with_axes(self, count: int) -> "Carried":
        """These bounds with axes of length 1 in front, so that there are `count`."""
        return self.along(lambda each: each.reshape((1,) * (count - each.ndim) + tuple(each.shape)))

    def expanded(self, shape: Sequence[int]) -> "Carried":
        """These bounds for each number of a tensor of this shape."""
        return self.along(lambda each: each.expand(tuple(shape)).contiguous())

    def rounded(self, operations: int, dtype: torch.dtype, of: Tensor | None = None) -> "Carried":
        """These bounds after each side rounded its exact numbers by gamma_operations of `of`, by default of themselves.

        `of` bounds, for both sides, the sum of the absolute values of all that was added up. Below the normal numbers
        each operation loses less than the smallest of these.
        """
        if operations == 0:
            return self
        if dtype not in FORMATS:
            raise Stop(f"numbers of {dtype}")
        form = format_of(FORMATS[dtype])
        try:
            relative = gamma(operations, form.unit_roundoff)
        except UsageError:
            raise Stop(f"{operations} roundings in a row in {form.name}") from None
        summed = self.size + self.error if of is None else of
        one_side = relative * summed + operations * form.smallest_normal
        return Carried((self.size + one_side) * SLACK, (self.error + 2 * one_side) * SLACK)

    def below_overflow(self, factor: float, dtype: torch.dtype) -> "Carried":
        """These bounds, of numbers from which others up to `factor` times as large are computed on the way.

        Half types compute in float32.
        """
        form = format_of(format_of(FORMATS[dtype]).accumulator) if dtype in FORMATS else None
        if form is None or not self.reach * factor <= form.largest:
            raise Stop(f"numbers of up to {self.reach * factor:.3g} on the way in {dtype}")
        return self

    def at_most(self, size: float, error: float) -> "Carried":
        """These bounds, of numbers known to be no larger, nor further apart."""
        return Carried(self.size.clamp(max=size), self.error.clamp(max=error))


LayerRule = Callable[[Carried], Carried]


def affine(blocks: Tensor, bias: Tensor | None, given: Carried, factor: float, absolute: float) -> Carried:
    """`|W|` applied to both bounds of vectors, and each side's rounding: factor |W| reach + absolute.

    Args:
        blocks: the diagonal blocks of |W|, (groups, outputs, inputs) of a group.
        given: of one vector, or of one after another, as for the images of a batch: the largest of each number counts.
    """

    def applied(vectors: Tensor) -> Tensor:
        worst = vectors.reshape(-1, len(blocks), blocks.shape[2], 1).amax(0)
        return (blocks @ worst).flatten()

    size, error = applied(given.size), applied(given.error)
    if bias is not None:
        size = size + bias.detach().cpu().double().abs()
    one_side = factor * (size + error) + absolute
    return Carried((size + one_side) * SLACK, (error + 2 * one_side) * SLACK)
