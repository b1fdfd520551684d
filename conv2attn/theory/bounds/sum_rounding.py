"""Rounding errors of a convolution, of the attention layer that replaces it, and of scores from absolute features."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

from flint import arb, ctx

from conv2attn.errors import UsageError
from conv2attn.theory.bounds.claimed import BALL_PRECISION, WITHOUT_THEOREM, Claimed, claims_of, up
from conv2attn.theory.bounds.formats import accumulator_of, format_of
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
    """gamma_n = n u / (1 - n u), rounded up: n roundings change a number by at most this fraction of its size.

    Raises:
        UsageError: n u >= 1, where gamma_n is not defined (C2A001).
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, Lemma 3.1.
    """
    # Fractions, since in floats 1 - n u may round to 1, and the quotient would be below gamma.
    exact = operations * Fraction(unit_roundoff)
    if not (operations >= 0 and unit_roundoff > 0 and exact < 1):
        raise UsageError(
            "C2A001",
            f"gamma is not defined for {operations} operations at unit roundoff {float(unit_roundoff)}",
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
    products are exact in float32, but count as if they were rounded. Each cast gives a factor 1 + u of the storage.
    tf32 and bf32 cut float32 numbers to 11 or 8 bits, by rounding or by truncation, so each operand counts 2 u: 2^-10
    or 2^-7. A product that underflows errs by at most half of the smallest subnormal, or by all of it if it is
    truncated. A sum that underflows is exact (Hauser 1996). The bound is proved as claim FLOAT of proofs/, and computed
    by the program of claim ROW, in which every number is a multiple of 2^-256.

    Args:
        terms: products per output: input channels of a group times taps.
        format_name: format of inputs, weights and outputs; tf32 or bf32 for float32 with operands cut to that format.
        bias: whether b is added.
        casts: for the half types, how many partial sums are stored between one product and the result.
        stored: how many partial sums are stored in all; equal to `casts` if absent.
        truncating: whether additions truncate, as on NVIDIA tensor cores; u becomes 2 u, as always in tf32 and bf32.
        flush_to_zero: whether subnormal results become 0; inputs and weights must then be 0 or normal.
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
        # The number of casts has its own limits, which do not depend on the number of terms.
        many_casts = setting.casts > LONGEST_LOOP or setting.cast * setting.casts > MOST_CAST
        reason = f"gamma is not defined for {setting.terms} operations at unit roundoff {setting.roundoff / ONE:g}"
        reason = f"no bound covers casts={casts} in {format_name}" if many_casts else reason
        raise UsageError("C2A001", reason, "Pass fewer operations or casts, or a format with a smaller roundoff.")
    # The integers of the proved program give the bound. A second formula in floats would have to be kept equal to them.
    factor, lost = setting.cost(setting.terms), setting.lost
    return RoundingBound(up(Fraction(factor, ONE)), up(Fraction(lost, ONE)), frozenset({"FLOAT"}))


EXACT_MIXING = RoundingBound(0.0, 0.0)
PARTS = ("factor", "absolute")


def mixing_effect(leak: float, input_range: float, mixing: RoundingBound = EXACT_MIXING) -> Claimed:
    """Upper bound on |what a head reads - the target's value|, for inputs (padding included) within +-input_range.

    With weights p_k and target t, sum_k p_k x_k - x_t = sum over k != t of p_k (x_k - x_t). That is at most
    leak (max x - min x), hence at most 2 leak input_range. The rounding of weights and mean is added to it.

    Args:
        leak: off-target weight in real arithmetic, as from `leaked_mass`. Pass 0 beside `hard_mixing_bound`, which
            includes it.
        mixing: rounding of the head's weighted mean: `hard_mixing_bound` or `soft_mixing_bound`.
    Source: proof of Cordonnier et al. 2020, Theorem 1, with Lemma 2's limit replaced by the leak.
    """
    for name, value in (
        ("leak", leak),
        ("input_range", input_range),
        *((part, getattr(mixing, part)) for part in PARTS),
    ):
        _non_negative(name, value)
    # Fractions hold the floats exactly, so the only rounding is the last one, and it goes up.
    radius = Fraction(input_range)
    effect = up(radius * (2 * Fraction(leak) + Fraction(mixing.factor)) + Fraction(mixing.absolute))
    return Claimed(effect, claims_of(leak, mixing) | {"T1"})


def difference_bound(
    weight_sum: float,
    bias: float,
    input_range: float,
    original: RoundingBound,
    converted: RoundingBound,
    leak: float = 0.0,
    mixing: RoundingBound = EXACT_MIXING,
) -> Claimed:
    """Upper bound on |converted - original| in one output channel, both as computed, for all finite |x| <= input_range.

    Let M = S r + |b|, let e be the `mixing_effect`, and let f1, a1 and f2, a2 be the factor and the absolute part of
    `original` and `converted`. The bound is the sum of three parts: S e for what the heads read, f1 M + a1 for the
    rounding of the original, and f2 (M + S e) + a2 for the rounding of the converted layer, whose tokens are at most
    r + e.

    Args:
        weight_sum: S, the sum of |w| over all weights of this output channel, not rounded down.
        bias: b of this channel; its sign does not matter.
        input_range: r.
        original, converted: `convolution_bound` of each layer as it is evaluated.
        leak, mixing: as in `mixing_effect`; the largest over all heads.
    Returns:
        The bound, rounded up.
    Raises:
        UsageError: an argument is negative or not finite.
    """
    _non_negative("weight_sum", weight_sum)
    _non_negative("|bias|", abs(bias))
    for bound in (original, converted):
        for part in PARTS:
            _non_negative(part, getattr(bound, part))
    effect = mixing_effect(leak, input_range, mixing)
    # Fractions of the floats are exact, so only the last step rounds, and it rounds up.
    read = Fraction(weight_sum) * Fraction(effect)
    size = Fraction(weight_sum) * Fraction(input_range) + abs(Fraction(bias))
    rounding = Fraction(original.factor) * size + Fraction(converted.factor) * (size + read)
    difference = up(read + rounding + Fraction(original.absolute) + Fraction(converted.absolute))
    claims = claims_of(original, converted, leak, mixing)
    # SOFT (Statements.v) is about the whole layer. It may be named only if every part of the layer rests on a theorem.
    soft = ({"T1"} if WITHOUT_THEOREM in claims else {"T1", "SOFT"}) if effect else set[str]()
    return Claimed(difference, claims | {"FLOAT"} | soft)


def _non_negative(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise UsageError(
            "C2A001", f"{name}={value!r} is not a finite number of at least 0", "Pass a finite number of at least 0."
        )


def exact_absolute_features(alpha: float, largest_coordinate: int, dimensions: int, format_name: str) -> bool:
    """Whether every feature and every score is computed without any rounding, in any order of summation.

    Let alpha be a power of two, n = `dimensions` and L = `largest_coordinate`. Features are alpha times integers up to
    2 L, and integers up to n L^2. Partial sums of a score are alpha times integers up to 2 n L^2 + n L^2. An integer up
    to 2^p fits a significand of p bits. So the features must fit the significand of the format, and the sums that of
    the accumulator. Alpha must neither overflow nor underflow.

    Returns:
        True is a proof. False claims nothing; it is returned for every alpha that is not a power of two.
    """
    form, inner = format_of(format_name), accumulator_of(format_name)
    if math.frexp(alpha)[0] != 0.5 or largest_coordinate < 0:
        return False
    squares = dimensions * largest_coordinate**2
    # 2 L needs no check of its own. It exceeds n L^2 only for n = L = 1, and 2 fits every significand.
    return (
        squares <= 1 << form.precision
        # Every partial sum is then an integer times a power of two that the accumulator holds, whatever the order.
        and 3 * squares <= 1 << inner.precision
        and form.smallest_normal <= alpha <= form.largest / max(1, 2 * largest_coordinate)
        and alpha <= inner.largest / max(1, 3 * squares)
    )


def absolute_score_error(alpha: float, largest_coordinate: float, dimensions: int, format_name: str) -> Claimed:
    """Upper bound on |computed score - score| for any alpha of the format and any real centre with |c_i| <= L.

    With n = `dimensions` and L = `largest_coordinate`, a score is an inner product of n + 1 terms, whose absolute
    values add up to at most 3 n alpha L^2. The two features of a term pass at most four roundings together: the centre
    is added, alpha is multiplied, and both features are cast; for the last term |k|^2 is rounded instead. In tf32 and
    bf32 they pass two truncations, which count twice, and two much smaller roundings.

    Returns:
        The bound, rounded up. Two scores differ by at most twice this from their true difference.
    Holds without overflow or underflow. Source: Higham 2002, Lemma 3.1 and Eq. 3.5.
    """
    with ctx.workprec(BALL_PRECISION):
        # Gamma of 5 instead of 4: the fifth covers the two float32 roundings in addition to the truncations of tf32,
        # bf32.
        features = 1 + arb(gamma(5, format_of(format_name).unit_roundoff))
        # The error is relative to the sum of absolute values, not to the score: the terms cancel near the target.
        relative = features * (1 + arb(gamma(dimensions + 1, accumulator_of(format_name).unit_roundoff))) - 1
        error = up(3 * dimensions * relative * arb(alpha) * arb(largest_coordinate) ** 2)
        return Claimed(error, {WITHOUT_THEOREM})
