"""Heads whose centre lies between pixels, or beyond the grid: how sharp they are, as computed."""

from collections.abc import Sequence

from flint import arb, ctx

from conv2attn.bounds.directed import BALL_PRECISION, down
from conv2attn.bounds.formats import accumulator_of
from conv2attn.bounds.leak import positive_ball
from conv2attn.bounds.rounding import gamma
from conv2attn.errors import UsageError

SCORE_ROUNDINGS = 5  # centre subtracted, squared (twice that one, and its own), alpha cast and multiplied by


def sharpness_on_a_pixel(alpha: float, shifts: Sequence[float], distance: float, format_name: str) -> float:
    """A sharpness with which a head centred on a pixel leaks no less, as computed, than one that is centred apart.

    Let the nearest key be at g from the centre, |g|^2 <= G = `distance`, and the centre f_i = |`shifts[i]`| from an
    integer on each axis. A rival n pixels from that key scores -alpha (G + k) with k >= sum of n_i^2 - 2 |n_i| f_i >=
    (1 - 2 f) |n|^2, where f is the largest f_i: on the grid by expanding |n - f|^2, and beyond its border because all
    rivals are on the far side, where k >= |n|^2. Scores are computed with a relative error of at most c = gamma_m,
    m = 4 + axes and one for a cast of alpha. So the computed gap to a rival is at least
    alpha (k - c (2 G + k)) (1 - u), hence alpha' |n|^2 or more with

        alpha' = alpha (1 - u) ((1 - 2 f) (1 - c) - 2 c G).

    On the grid and on a pixel alpha itself is returned: there `computed_leak` counts what scores are off by. Where the
    score of the nearest key, -alpha G, may be infinite as computed, a softmax may be no number, and there is none.

    Args:
        alpha: sharpness, in inverse squared pixels; positive.
        shifts: how far the centre is from the nearest integer, per axis, as a number of the score's format.
        distance: at least the squared distance from the centre to the nearest key, for every query.
        format_name: format of the attention weights; scores are computed in its accumulator.
    Returns:
        alpha', rounded down; 0 where there is none, as halfway between two pixels.
    Raises:
        AlphaError: `alpha` is not positive and finite.  UsageError: a shift is above 1/2, or `distance` below theirs.
    Source: Higham 2002, Lemma 3.1, for gamma; Cordonnier et al. 2020, Eq. 9, for the score.
    """
    off = max(map(abs, shifts))
    if not (off <= 0.5 and distance >= 0):
        raise UsageError(
            "C2A007",
            f"shifts {list(shifts)} and squared distance {distance} are not those of a head",
            "Pass shifts of at most half a pixel, and a distance that they allow.",
        )
    positive_ball(alpha)
    if off == 0 and distance == 0:
        return alpha
    inner = accumulator_of(format_name)
    u = inner.unit_roundoff
    if not alpha * distance * 2 <= inner.largest:
        return 0.0
    with ctx.workprec(BALL_PRECISION):
        relative = arb(gamma(SCORE_ROUNDINGS + len(shifts), u))
        kept = (1 - 2 * arb(off)) * (1 - relative) - 2 * relative * arb(distance)
        return max(0.0, down(positive_ball(alpha) * (1 - arb(u)) * kept))
