"""From leak and rounding to the difference of two layers, per output channel."""

from fractions import Fraction

from conv2attn.errors import UsageError
from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed, claims_of
from conv2attn.theory.bounds.directed import up
from conv2attn.theory.bounds.sum_rounding import RoundingBound

EXACT_MIXING = RoundingBound(0.0, 0.0)
PARTS = ("factor", "absolute")


def mixing_effect(leak: float, input_range: float, mixing: RoundingBound = EXACT_MIXING) -> Claimed:
    """Upper bound on |what a head reads - the target's value|, for inputs (padding included) within +-input_range.

    sum_k p_k x_k - x_t = sum over k != t of p_k (x_k - x_t). That is at most leak (max x - min x), hence at most
    2 leak input_range. The rounding of weights and mean comes on top.

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
    """Upper bound on |converted - original| in one output channel, both computed, for all finite |x| <= input_range.

    Let M = S r + |b|, and e the `mixing_effect`. Three parts add up: S e for what the heads read, f1 M + a1 for the
    rounding of the original, and f2 (M + S e) + a2 for that of the converted layer, whose tokens reach r + e.

    Args:
        weight_sum: S, the sum of |w| over all weights of this output channel, not rounded down.
        bias: b of this channel; its sign does not matter.
        input_range: r.
        original, converted: `convolution_bound` of each layer as it is evaluated.
        leak, mixing: see `mixing_effect`; with several heads, the largest.
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
    # Fractions of the floats, so that only the last step rounds, and upwards.
    read = Fraction(weight_sum) * Fraction(effect)
    size = Fraction(weight_sum) * Fraction(input_range) + abs(Fraction(bias))
    rounding = Fraction(original.factor) * size + Fraction(converted.factor) * (size + read)
    difference = up(read + rounding + Fraction(original.absolute) + Fraction(converted.absolute))
    claims = claims_of(original, converted, leak, mixing)
    # SOFT (Statements.v) is about the layer as a whole. It may be named only if every part of it rests on a theorem.
    soft = ({"T1"} if WITHOUT_THEOREM in claims else {"T1", "SOFT"}) if effect else set[str]()
    return Claimed(difference, claims | {"FLOAT"} | soft)


def _non_negative(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise UsageError(
            "C2A001", f"{name}={value!r} is not a finite number of at least 0", "Pass a finite number of at least 0."
        )
