"""Numbers as residues modulo several primes at once, and what is known of them as real numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

POSITIVE, NOT_NEGATIVE, ANY_SIGN = 2, 1, 0
MINUS_INFINITY, UNUSABLE = 1, 2


@final
@dataclass(frozen=True, eq=False)
class Residues:
    """Numbers modulo k primes, and what is known of the real numbers that they stand for.

    Args:
        values: (k, *shape), int64.
        mark: int8 (*shape), where a number is -inf (1) or must not be used (2); None where all may be.
        finite: whether all others are finite as real formulas, for every finite input.
        sign: 2 where all are positive, 1 where none is negative, 0 where nothing is known.
        degree, up, down, odd: as a polynomial of the oracles before: degree, and a coefficient of at most `2^up` over
            a denominator `odd * 2^down`. They bound the chance of a wrong answer.
    """

    values: Tensor
    mark: Tensor | None = None
    finite: bool = True
    sign: int = ANY_SIGN
    degree: int = 1
    up: float = 0.0
    down: float = 0.0
    odd: int = 1

    def __post_init__(self) -> None:
        if self.mark is not None and self.sign:
            object.__setattr__(self, "sign", ANY_SIGN)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return tuple(self.values.shape[1:])

    def but(self, **changes: Any) -> "Residues":
        """The same numbers with other fields."""
        return replace(self, **changes)

    def with_axes(self, count: int) -> "Residues":
        """With axes of one number in front, so that there are `count`."""
        if len(self.shape) == count:
            return self
        return self.but(values=self.values.reshape(len(self.values), *[1] * (count - len(self.shape)), *self.shape))

    def laid(self, shape: Sequence[int]) -> "Residues":
        """In another shape."""
        mark = None if self.mark is None else self.mark.reshape(shape)
        return self.but(values=self.values.reshape(len(self.values), *shape), mark=mark)


def knowledge(*operands: Residues) -> dict[str, Any]:
    """What is known of numbers that come from any of these."""
    return {
        "finite": all(each.finite for each in operands),
        "sign": min(each.sign for each in operands),
        "degree": max(each.degree for each in operands),
        "up": max(each.up for each in operands),
        "down": max(each.down for each in operands),
        "odd": math.lcm(*(each.odd for each in operands)),
    }


def unusable(shape: Sequence[int], *operands: Residues) -> Tensor | None:
    """Where a function of these must not be used."""
    marks = [each.mark.expand(shape) for each in operands if each.mark is not None]
    return torch.stack(marks).amax(0).clamp(max=1) * UNUSABLE if marks else None
