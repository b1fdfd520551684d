"""Numbers as residues modulo several primes at once, with proved facts about the real numbers.

An example, with two small primes: modulo 7 and 11, the constant 1.5 = 3 / 2 has the residues 3 * 4 = 5 and 3 * 6 = 7,
since 1 / 2 is 4 and 6 there. The facts: it is positive, of degree 0, at most 2^1 in size, and an integer after one
doubling (`halvings`). Times the input it has degree 1; times 1 / 3, it is an integer only after tripling too
(`odd_divisor`), since nothing is cancelled. Its `exp` is an oracle: a hash of "exp", 5 and 7, known only to be positive
and finite. An attention mask (0, -inf) has the residues 0 and 0, and its `mark` (0, 1) says that the second is -inf.

>>> from conv2attn.equality.fingerprint.field import Field
>>> field = Field(2)
>>> number = field.encode(torch.tensor([1.5]))
>>> number.sign == POSITIVE, number.degree, number.size_bits
(True, 0, 1)
>>> field.rational(3, 2).halvings, field.rational(1, 6).odd_divisor
(1, 3)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.ring import Undecided

MOST_TERMS = 1 << 28
"""Most terms of one sum: this many residues below 2^31 add up below 2^63.

Products are summed in float64, at least 120 before a remainder is taken (see `ring.pieces`): fewer than 2^22 remainders
near 2^31 add up below 2^53, exactly.
"""
POSITIVE, NOT_NEGATIVE, ANY_SIGN = 2, 1, 0
MINUS_INFINITY, UNUSABLE = 1, 2


@final
@dataclass(frozen=True, eq=False)
class Residues:
    """Numbers modulo k primes, with proved facts about the real numbers they represent.

    Args:
        values: (k, *shape), int32; hashes that an oracle reads are int64.
        mark: int8 (*shape), 1 for -inf, 2 for a number that must not be used; None if all may be used.
        finite: whether all unmarked numbers are finite as real formulas, for every finite input.
        sign: 2 if all are positive, 1 if none is negative, 0 if unknown.
        degree: degree as a polynomial of the input and of the oracles.
        size_bits, halvings, odd_divisor: each coefficient of that polynomial is at most `2^size_bits` in size, and an
            integer after multiplication by `odd_divisor * 2^halvings`. With `degree` they bound the error probability.
    """

    values: Tensor
    mark: Tensor | None = None
    finite: bool = True
    sign: int = ANY_SIGN
    degree: int = 1
    size_bits: float = 0.0
    halvings: float = 0.0
    odd_divisor: int = 1

    def __post_init__(self) -> None:
        # -inf is negative, so if a number may be marked the sign of all is unknown.
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
        """With leading axes of length one, up to `count` axes."""
        if len(self.shape) == count:
            return self
        return self.but(values=self.values.reshape(len(self.values), *[1] * (count - len(self.shape)), *self.shape))

    def laid(self, shape: Sequence[int]) -> "Residues":
        """The same numbers in another shape."""
        mark = None if self.mark is None else self.mark.reshape(shape)
        return self.but(values=self.values.reshape(len(self.values), *shape), mark=mark)


@final
@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of products, whose residues are computed for one prime at a time.

    Args:
        shape: shape of the numbers.
        known: the proved facts; the residues in it are not read.
        part: function that returns the residues of `2^halvings` times the numbers modulo the prime at an index, in
            float64 and centred at 0, for some `columns` of the last axis and `rows` of the one before.
    """

    shape: tuple[int, ...]
    known: Residues
    part: Callable[..., Tensor]
    halvings: int = 0

    @property
    def turned(self) -> "Factor":
        """The matrices transposed."""
        *rest, rows, columns = self.shape
        part = self.part
        return replace(
            self,
            shape=(*rest, columns, rows),
            part=lambda place, columns, rows: part(place, columns=rows, rows=columns).mT,
        )


def knowledge(*operands: Residues) -> dict[str, Any]:
    """The facts that hold for numbers from any of these."""
    return {
        "finite": all(each.finite for each in operands),
        "sign": min(each.sign for each in operands),
        "degree": max(each.degree for each in operands),
        "size_bits": max(each.size_bits for each in operands),
        "halvings": max(each.halvings for each in operands),
        "odd_divisor": math.lcm(*(each.odd_divisor for each in operands)),
    }


def bits_of_sum(terms: int) -> float:
    """The number of bits by which a sum of `terms` numbers may exceed the largest of them.

    Raises:
        Undecided: the sum has too many terms to be exact.
    """
    if terms > MOST_TERMS:
        raise Undecided("a sum of too many numbers")
    return math.log2(max(1, terms))


def unusable(shape: Sequence[int], *operands: Residues) -> Tensor | None:
    """The marks of a function's results that must not be used."""
    marks = [each.mark.expand(shape) for each in operands if each.mark is not None]
    return torch.stack(marks).amax(0).clamp(max=1) * UNUSABLE if marks else None
