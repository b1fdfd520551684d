"""Rounding of sums of products: of a convolution, and of the channel product of an attention layer."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

from conv2attn.errors import UsageError
from conv2attn.theory.bounds.claimed import Claimed
from conv2attn.theory.bounds.directed import up
from conv2attn.theory.bounds.row import LONGEST_LOOP, MOST_CAST, ONE, Setting


@final
@dataclass(frozen=True)
class RoundingBound:
    """|computed - exact| <= factor * M + absolute, where M is the sum of the absolute values that are added.

    `claims` are the statements of proofs/ on which the bound rests.
    """

    factor: float
    absolute: float
    claims: frozenset[str] = field(default=frozenset(), compare=False)


def gamma(operations: int, unit_roundoff: float) -> Claimed:
    """gamma_n = n u / (1 - n u), rounded up: n roundings in a row change a number by at most this fraction of it.

    Raises:
        UsageError: n u >= 1, where gamma_n is not defined (C2A001).
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, Lemma 3.1.
    """
    # In fractions: in floats 1 - n u may round to 1, and the quotient would be below gamma.
    exact = operations * Fraction(unit_roundoff)
    if not (operations >= 0 and unit_roundoff > 0 and exact < 1):
        raise UsageError(
            "C2A001",
            f"gamma of {operations} operations at unit roundoff {float(unit_roundoff)}",
            "Pass fewer operations, or a format with a smaller roundoff.",
        )
    return Claimed(up(exact / (1 - exact)), {"FLOAT"})


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

    A product passes at most one rounding of its own and one for each of the other summands, in any order of summation,
    with or without fused multiply-add. That is gamma_n with n = terms, or terms + 1 with a bias. In the half types
    products are exact in float32, but are counted alike, and each cast to storage gives a factor 1 + u of the storage.
    tf32 and bf32 cut float32 numbers to 11 or 8 bits, by rounding or by truncation, so each operand counts 2 u: 2^-10
    or 2^-7. A product that underflows errs by at most half of the smallest subnormal, or by all of it if it is
    truncated. A sum that underflows is exact (Hauser 1996). The bound is proved as claim FLOAT of proofs/, and computed
    by the program of claim ROW, in which every number is a multiple of 2^-256.

    Args:
        terms: products per output: input channels of a group times taps.
        format_name: format of inputs, weights and outputs; tf32 or bf32 for float32 whose products are so cut.
        bias: whether b is added.
        casts: for the half types, how many partial sums are stored between one product and the result.
        stored: how many partial sums are stored in all; equal to `casts` if absent.
        truncating: the additions truncate, as those of NVIDIA tensor cores do: u becomes 2 u (always in tf32, bf32).
        flush_to_zero: subnormal results become 0; inputs and weights are 0 or normal.
    Holds without overflow, for direct summation only: it is false for Winograd, FFT and Strassen. In tf32 and bf32 a
    subnormal operand counts in M as the smallest normal number.
    Raises:
        UsageError: `terms` is so large that gamma_n is undefined, or `casts` is above 2^16 (C2A001).
    Source: Higham 2002, Eq. 2.4, 2.8, 3.5 and Sec. 3.1; Fasi, Higham, Mikaitis and Pranesh 2021 for tensor cores.
    """
    setting = Setting.of(
        terms,
        format_name,
        bias=bias,
        casts=casts,
        stored=stored,
        truncating=truncating,
        flush_to_zero=flush_to_zero,
    )
    if not setting.fits:
        # Casts have limits of their own, whatever the number of terms is.
        many_casts = setting.casts > LONGEST_LOOP or setting.cast * setting.casts > MOST_CAST
        reason = f"gamma of {setting.terms} operations at unit roundoff {setting.roundoff / ONE:g}"
        reason = f"casts={casts} in {format_name} are more than a bound counts" if many_casts else reason
        raise UsageError("C2A001", reason, "Pass fewer operations or casts, or a format with a smaller roundoff.")
    # The proved program computes the bound, and not a second formula in floats: two would have to be kept equal.
    factor, lost = setting.cost(setting.terms), setting.lost
    return RoundingBound(up(Fraction(factor, ONE)), up(Fraction(lost, ONE)), frozenset({"FLOAT"}))
