"""The robust Lemma 3: all layers with given heads stay far from a convolution, or some of them come near to it.

`left_t` is the residual of tap t at a query: the sum over keys of |shift of t - heads mixed by the coefficients of t|.

- L3_far: let the coefficients of a layer with one channel have a residual above `far` for the shift of a tap at some
    query. Then the layer differs from this shift there by more than `far`, at an image of ones and minus ones.
- L3_near: for every convolution, some layer differs from it by at most `max|X| sum_t left_t sum_c |w_tco|` at every
    query.
- TAPS_far: with fewer heads than taps, the residual is at least 1 for the shift of some tap, as for a layer of zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, final

import numpy as np

from conv2attn.layers.theorem import Convolution, tap_matrix
from conv2attn.span.attention_rows import Array, AttentionRows, limits_for
from conv2attn.span.equations import Targets, weights_on
from conv2attn.span.grids import PooledGrid
from conv2attn.span.span_report import Condition, Ends
from conv2attn.theory.bounds import WITHOUT_THEOREM, Claimed, claims_under, up

ONE_MIXING = ("joint", "interior")
"""The conditions in which all queries share one Phi, as they do in a layer."""


def ends_of(
    condition: Condition, attention: AttentionRows, targets: Targets, convolution: Convolution | None
) -> Ends | None:
    """The bounds `far` and `near` for a condition on the shifts of a kernel with one Phi; None for other conditions.

    `near` is for the given convolution if all its non-zero taps are among the targets; otherwise it is for every
    convolution whose weights into an output have absolute values that sum to 1.
    """
    if condition.name not in ONE_MIXING or not condition.targets or not targets.plain:
        return None
    # Attention that depends on the input differs for other inputs, and there the layer may be the shift (E12 of
    # docs/errata.md).
    if attention.sampled:
        return None
    # The shift that is hardest to reach decides, since a convolution may be that shift alone.
    worst = max(condition.targets, key=lambda target: target.floor)
    far, theorem = worst.floor, "L3_far" if worst.floor > 0 else None
    if condition.counting is not None and far < condition.counting.least_residual:
        far, theorem = condition.counting.least_residual, condition.counting.theorem
    left = [left_with_uncertainty(attention, target.residual, target.weights) for target in condition.targets]
    weights = None if convolution is None else weights_of(convolution, targets)
    near = Claimed(up(max(left)), {"L3"}) if weights is None else near_bound(left, weights)
    far_claims = {"TAPS"} if theorem == "TAPS_far" else {"L3"}
    claims = claims_under([LayerPremises.of(attention)], *sorted(far_claims | near.claims))
    tap = worst.label if theorem == "L3_far" else None
    return Ends(far, theorem, tap, near, weights is not None, tuple(sorted(map(str, claims))))


@final
@dataclass(frozen=True)
class LayerPremises:
    """What the claims L3 and TAPS require of the attention of a layer.

    Args:
        attention_does_not_follow_the_input: it is by position alone, or an array that is the same for all images.
        keys_are_pixels: there are no class tokens or registers.
        one_key_for_each_pixel: there are no pooled keys.
    """

    attention_does_not_follow_the_input: bool
    keys_are_pixels: bool
    one_key_for_each_pixel: bool

    @classmethod
    def of(cls, attention: AttentionRows) -> Self:
        """The premises, as far as this attention satisfies them."""
        return cls(not attention.sampled, not attention.extra, not isinstance(attention.grid, PooledGrid))


def left_with_uncertainty(attention: AttentionRows, residual: float, weights: Sequence[float | str]) -> Fraction:
    """Bound on the residual for the exact attention, from which the numbers in memory may differ by some ulps."""
    # The theorem is about the exact attention. A relative change c u of every entry adds at most c u |phi|_1.
    norm = sum((abs(Fraction(w)) for w in weights), Fraction(0))
    return Fraction(residual) + Fraction(limits_for(attention, None, None).per_norm) * norm


def weights_of(convolution: Convolution, targets: Targets) -> Array | None:
    """The sum of |w_tco| over c, (targets, outputs), rounded up; None if a non-zero tap is not among the targets."""
    matrix = np.abs(tap_matrix(convolution))
    places = {offset: t for t, offset in enumerate(convolution.offsets)}
    wanted = [places.get(offset) for offset in targets.offsets]
    # The residual of a tap that is not a target was not bounded.
    if np.delete(matrix, [t for t in wanted if t is not None], axis=0).any():
        return None
    sums = sum_up(matrix.reshape(len(matrix), convolution.d_out, -1), -1)
    return np.stack([np.zeros(convolution.d_out) if t is None else sums[t] for t in wanted])


def near_bound(left: Sequence[Fraction], weights: Array) -> Claimed:
    """L3_near for images within +-1: `sum_t left_t sum_c |w_tco|` of the worst output channel, rounded up."""
    shares = np.array([up(residual) for residual in left])[:, None] * weights
    return Claimed(float(sum_up(shares, 0).max(initial=0.0)), {"L3"})


def bound_of_layer(
    convolution: Convolution,
    attention: AttentionRows,
    targets: Targets,
    mixing: Array,
    residuals: Array,
    taps: Array,
) -> Claimed:
    """Bound on |layer - convolution| for images within +-1, in real arithmetic, if `mixing` has these `residuals`.

    By L3_near a layer with exact weights differs by at most `sum_t left_t sum_c |w_tco|`. The rounding of the stored
    weights adds its absolute value, since attention sums to 1. No theorem covers this rounding, nor targets that are
    combinations of shifts.

    Args:
        taps: the products `W_val W_out` as they are stored, (heads, d_out, d_in / groups).
    """
    used, parts = weights_on(convolution, targets)
    rows = zip(residuals.tolist(), mixing.tolist(), strict=True)
    left = [left_with_uncertainty(attention, residual, row) for residual, row in rows]

    def by_output(rows: Array) -> Array:
        return sum_up(np.abs(rows).reshape(len(rows), convolution.d_out, rows.shape[1] // convolution.d_out), -1)

    # In L3_near the residual of a target is multiplied by the convolution's absolute weights on that target.
    near = near_bound(left, by_output(parts))
    # A computed row of attention sums to 1 up to its uncertainty and the rounding of the sum.
    row_sum = 1 + (attention.ulps + attention.width) * max(attention.roundoff, 2.0**-53)
    # The stored weights differ from the product of mixing and kernel by the rounding to their dtype.
    stored = by_output(apart(taps.reshape(len(taps), -1), mixing.T, parts))
    changed = sum_up(stored, 0) * row_sum + sum_up(by_output(apart(used, targets.coefficients.T, parts)), 0)
    claims = claims_under([LayerPremises.of(attention)], "L3")
    if not targets.plain or changed.any():
        claims |= {WITHOUT_THEOREM}
    total = (float(near) + float(changed.max(initial=0.0))) * (1 + 2.0**-50)
    return Claimed(total, claims)


def apart(product: Array, left: Array, right: Array) -> Array:
    """`|product - left @ right|`, rounded up entry by entry. If `left` selects rows, `left @ right` is exact."""
    distance: Array = np.abs(product - left @ right)
    # Selecting a row multiplies by 1 and adds zeros, neither of which rounds.
    if np.isin(left, (-1, 0, 1)).all() and (np.count_nonzero(left, axis=1) <= 1).all():
        return distance * (1 + 2.0**-52)
    # An inner product of n terms loses at most gamma_n times the sum of their absolute values (Higham 2002, eq. 3.5).
    lost: Array = (len(right) + 3) * 2.0**-52 * (np.abs(left) @ np.abs(right))
    return distance * (1 + 2.0**-52) + lost


def sum_up(terms: Array, axis: int) -> Array:
    """The sum of n non-negative terms, each a product of two numbers, rounded up. A sum of zeros stays 0."""
    # A computed sum may be below the true sum. As no term is negative, a relative allowance covers the n + 1 roundings.
    # The underflow of a product loses less than the smallest normal number.
    count, sums = terms.shape[axis], terms.sum(axis)
    lost = sums * ((count + 4) * 2.0**-52) + count * np.finfo(np.float64).tiny
    return np.asarray(np.where((terms != 0).any(axis), sums + lost, 0.0))


def sentence_of_ends(ends: Ends, largest: float) -> str:
    """The bounds `far` and `near` in words; `largest` is the largest norm that coefficients may have."""
    near = "the convolution" if ends.of_convolution else "a convolution whose |weights| into an output sum to 1"
    near = f"some layer of these heads is within {ends.near:.2g} max|X| of {near} (L3_near)"
    if lacking := [claim for claim in ends.licensed_by if ": " in claim]:
        near += f"; {WITHOUT_THEOREM}, since these premises fail: {' and '.join(x.partition(': ')[2] for x in lacking)}"
    if ends.theorem == "TAPS_far":
        far = "every layer of these heads misses the shift of some tap by max|X|, as a layer of zeros does (TAPS_far)"
        return f"{far}; {near}"
    if ends.theorem == "L3_far":
        far = f"every layer of these heads with |Phi| <= {largest:g} misses the shift {ends.tap}"
        return f"{far} by {ends.far:.2g} max|X| (L3_far); {near}"
    return near
