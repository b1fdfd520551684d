"""The table of docs/certificates.md: which claims each kind of bound names, asked of the bounds themselves."""

from collections.abc import Callable
from dataclasses import replace

from conv2attn.theory.bounds import (
    WITHOUT_THEOREM,
    Arithmetic,
    Claimed,
    Head,
    Missing,
    RoundingBound,
    claims_of,
    computed_leak,
    convolution_bound,
    difference_bound,
    hard_mixing_bound,
    leaked_mass,
    mixing_effect,
    soft_mixing_bound,
    soft_reading,
)

FLOAT32 = Arithmetic("float32")
ON_A_KEY = Head(3.0, (0.0, 0.0))
KEYS = (9, 9)
SUM = convolution_bound(9, "float32")


def soft(head: Head = ON_A_KEY, arithmetic: Arithmetic = FLOAT32) -> RoundingBound:
    """The rounding of the mean of a soft head."""
    return soft_mixing_bound(head, KEYS, arithmetic, 2.0**-20 if arithmetic.fused else 0.0)


def layer(alpha: float) -> Claimed:
    """The difference of a convolution and a layer of such heads."""
    if alpha > 100:
        return difference_bound(1.0, 0.0, 1.0, SUM, SUM, 0.0, hard_mixing_bound(alpha, 2, "float32", FLOAT32.exp_ulps))
    leak, mixing = soft_reading(Head(alpha, (0.0, 0.0)), KEYS, FLOAT32, 0.0)
    return difference_bound(1.0, 0.0, 1.0, SUM, SUM, leak, mixing)


BOUNDS: dict[str, Callable[[], Claimed | RoundingBound]] = {
    "a sum of products (`convolution_bound`)": lambda: SUM,
    "the leak of a head (`leaked_mass`)": lambda: leaked_mass(3.0),
    "the leak as computed (`computed_leak`)": lambda: computed_leak(20.0, 2, "float32", FLOAT32.exp_ulps),
    "the same where heads are one-hot": lambda: computed_leak(110.0, 2, "float32", FLOAT32.exp_ulps),
    "the mean of a head whose target weighs 1 (`hard_mixing_bound`)": lambda: hard_mixing_bound(
        20.0, 2, "float32", FLOAT32.exp_ulps
    ),
    "the mean of a soft head on a key (`soft_mixing_bound`)": soft,
    "the same, its centre beyond the grid": lambda: soft(Head(3.0, (0.0, 0.0), 4.0, True)),
    "the same, enumerated": lambda: soft(Head(3.0, (0.0,), box=False)),
    "the same, means stored at each step": lambda: soft(arithmetic=replace(FLOAT32, stores_means=True)),
    "the same, sums that truncate": lambda: soft(arithmetic=replace(FLOAT32, truncates=True)),
    "the same, fused": lambda: soft(arithmetic=replace(FLOAT32, fused=True)),
    "the same, frozen and axis after axis": lambda: soft(arithmetic=replace(FLOAT32, by_axis=True, leaves_out=True)),
    "the same, subnormal numbers flushed": lambda: soft(arithmetic=replace(FLOAT32, flushes=True)),
    "what a head reads (`mixing_effect`)": lambda: mixing_effect(leaked_mass(3.0), 1.0, soft()),
    "a layer of one-hot heads (`difference_bound`)": lambda: layer(110.0),
    "a layer of soft heads": lambda: layer(3.0),
}
"""One call for each kind of bound that a certificate prints."""


def table() -> str:
    """A row for each kind of bound: the claims that it names, and the premises by which a step of it has no theorem."""
    rows = ["| bound | claims | steps without a theorem: the premise that does not hold |", "| --- | --- | --- |"]
    for words, bound in BOUNDS.items():
        claims = claims_of(bound())
        missing = sorted(each for each in claims if isinstance(each, Missing))
        named = ", ".join(sorted(claims - {WITHOUT_THEOREM, *missing})) or "-"
        steps = ("; ".join(missing) or "some") if WITHOUT_THEOREM in claims else "none"
        rows.append(f"| {words} | {named} | {steps} |")
    return "\n".join(rows)
