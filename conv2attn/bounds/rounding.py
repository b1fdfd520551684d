"""Rounding of sums of products: of a convolution, and of the channel product of an attention layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import final

from conv2attn.bounds.directed import up
from conv2attn.bounds.formats import accumulator_of, format_of, storage_of
from conv2attn.errors import UsageError


@final
@dataclass(frozen=True)
class RoundingBound:
    """|computed - exact| <= factor * M + absolute, where M is the sum of the absolute values that are added."""

    factor: float
    absolute: float

    def then(self, following: "RoundingBound") -> "RoundingBound":
        """The bound for two steps in a row, each of which keeps |exact| <= M: as rows are mixed before columns."""
        grown = 1 + Fraction(following.factor)
        return RoundingBound(
            up(Fraction(self.factor) * grown + Fraction(following.factor)),
            up(Fraction(self.absolute) * grown + Fraction(following.absolute)),
        )


def gamma(operations: int, unit_roundoff: float) -> float:
    """gamma_n = n u / (1 - n u), rounded up: n roundings in a row change a number by at most this fraction of it.

    Raises:
        UsageError: n u >= 1, where nothing can be said.
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, Lemma 3.1.
    """
    return up(_gamma(operations, Fraction(unit_roundoff)))


def dot_product_terms(channels: int, kernel_size: Sequence[int], groups: int = 1) -> int:
    """How many products one output of a convolution adds up: input channels of a group times taps.

    Raises:
        UsageError: the groups do not divide the channels.
    """
    if groups < 1 or channels % groups:
        raise UsageError(
            "C2A007", f"{groups} groups do not divide {channels} channels", "Pass groups that divide the channels."
        )
    return channels // groups * prod(kernel_size)


def operand_error(format_name: str) -> float:
    """Largest relative change of a product by the conversion of its operands: 0, but for tf32 and bf32 4 u + 4 u^2.

    They multiply float32 numbers after cutting both to 11 or 8 bits; whether by rounding or by truncation depends on
    the kernel, so each counts 2 u: 2^-10 or 2^-7.
    """
    form = format_of(format_name)
    return up((1 + 2 * Fraction(form.unit_roundoff)) ** 2 - 1) if form.cuts else 0.0


def convolution_bound(
    terms: int,
    format_name: str,
    *,
    bias: bool = True,
    casts: int = 1,
    stored: int | None = None,
    truncating: bool = False,
    flush_to_zero: bool = False,
) -> RoundingBound:
    """Bound on |computed - exact| for `sum of terms products w x, plus b`, as a factor on `|W| |X| + |b|`.

    Every product passes at most one rounding of its own and one for each of the other summands, in any order of
    summation, with or without fused multiply-add: gamma_n, n = terms (+ 1 with a bias). In the half types products are
    exact in float32 but counted alike, and each cast to storage gives a factor 1 + u of the storage; for tf32 and
    bf32 see `operand_error`. A product that underflows is off by at most half of the smallest subnormal, or the whole
    where it is truncated; a sum that does is exact (Hauser 1996). Proved as claim FLOAT of proofs/.

    Args:
        terms: products per output, see `dot_product_terms`.
        format_name: format of inputs, weights and outputs, which are its numbers; tf32, bf32 for float32 so multiplied.
        bias: whether b is added.
        casts: for the half types, how often a partial sum on the way of one product is stored.
        stored: how many partial sums are stored in all; as many as on one way where it is absent.
        truncating: the additions truncate, as those of NVIDIA tensor cores do: u becomes 2 u (so too in tf32, bf32).
        flush_to_zero: subnormal results become 0; inputs and weights are 0 or normal.
    Holds without overflow, for direct summation only: false for Winograd, FFT and Strassen. In tf32 and bf32 subnormal
    operands count in M as the smallest normal number.
    Raises:
        UsageError: `terms` is so large that gamma_n is undefined.
    Source: Higham 2002, Eq. 2.4, 2.8, 3.5 and Sec. 3.1; Fasi, Higham, Mikaitis and Pranesh 2021 for tensor cores.
    """
    form, inner, storage = format_of(format_name), accumulator_of(format_name), storage_of(format_name)
    stored = casts if stored is None else stored
    operations, coarse = terms + bias, 2 if truncating or form.cuts else 1
    u = Fraction(inner.unit_roundoff) * coarse
    cast = Fraction(storage.unit_roundoff) if storage != inner else Fraction(0)
    summed = 1 + _gamma(operations, u)
    factor = (1 + Fraction(operand_error(format_name))) * summed * (1 + cast) ** casts - 1
    if flush_to_zero:
        lost = (terms + operations) * Fraction(inner.smallest_normal) + stored * Fraction(storage.smallest_normal)
    else:
        lost = (coarse * terms * Fraction(inner.smallest_subnormal) + stored * Fraction(storage.smallest_subnormal)) / 2
    return RoundingBound(up(factor), up(lost * (1 + factor)))


def _gamma(operations: int, unit_roundoff: Fraction) -> Fraction:
    if not (operations >= 0 and unit_roundoff > 0 and operations * unit_roundoff < 1):
        raise UsageError(
            "C2A001",
            f"gamma of {operations} operations at unit roundoff {float(unit_roundoff)}",
            "Pass fewer operations, or a format with a smaller roundoff.",
        )
    return operations * unit_roundoff / (1 - operations * unit_roundoff)
