"""Patch tokens: how many heads a convolution needs on tokens that are patches, and that fewer do not do."""

from math import ceil

from sympy import IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, step
from .core import finite, index_sums, sign

H, T = symbols("H T", integer=True)
h, t, u, q, k = symbols("h t u q k", integer=True)
E, P, Phi = map(IndexedBase, ["E", "P", "Phi"])
p, r, c, a, d, token = symbols("p r c a d tau", integer=True)  # patch, reach, ceil(r / p), pixel, tap, token

CASES = [(kernel, patch) for kernel in range(1, 16, 2) for patch in range(1, 9)]


def tokens(case, reach_before=0):
    """The token displacements that some pixel of a patch reads through some tap."""
    kernel, patch = case
    before = kernel // 2 - reach_before
    return {(pixel + tap - before) // patch for pixel in range(patch) for tap in range(kernel)}


CLAIM = Claim(
    name="PATCH",
    title="Convolutions on patch tokens",
    words="On tokens that are patches of P^n pixels a convolution with an odd kernel of side K, stride 1 and padding "
    "(K - 1) / 2 is one hard head per token displacement within ceil((K - 1) / 2P) along each axis: "
    "(2 ceil((K - 1) / 2P) + 1)^n heads, 3^n while 1 < K <= 2 P + 1. Position-only attention that expresses every such "
    "convolution has at least as many.",
    formula=r"N_h = \left(2 \lceil (K-1)/2P \rceil + 1\right)^n",
    conditions=(
        "every token displacement is seen by some token of the image, as in TAPS",
        "the sides of the image are whole patches",
    ),
    source="Li et al. 2021, arXiv 2111.01353, for sufficiency; necessity is this project's",
    not_shown="How many heads one given convolution needs.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "Pixel a of a patch reads, through a tap d <= r = (K - 1) / 2, the token tau with tau P <= a + d. As "
            "r <= c P for c = ceil(r / P): tau P <= c P + P - 1, so tau <= c.",
            sign,
            c * p + p - 1 - token * p,
            ((c * p - r,), (p - 1 - a,), (r - d,), (a + d - token * p,)),
            given=(c * p - r, p - 1 - a, r - d, a + d - token * p),
        ),
        step(
            "It reads a token with a + d <= tau P + P - 1, through a tap d >= -r, so tau >= -c.",
            sign,
            token * p + c * p + p - 1,
            ((token * p + p - 1 - a - d,), (a,), (d + r,), (c * p - r,)),
            given=(token * p + p - 1 - a - d, a, d + r, c * p - r),
        ),
        step(
            "Each tau from 1 to c is read: its first pixel, by the last pixel of the patch, through the tap "
            "d = (tau - 1) P + 1, which is at most r as r > (c - 1) P. Negative ones are the mirror image, and 0 is "
            "read through the tap 0.",
            sign,
            r - (token - 1) * p - 1,
            ((r - (c - 1) * p - 1,), (c - token, p)),
            given=(r - (c - 1) * p - 1, c - token),
            positive=(p,),
        ),
        step(
            "Fewer do not do: of the convolution with that one tap, the entry of the channel matrices from that source "
            "pixel to that target pixel is the shift of tokens E^u alone. So E = Phi P, and by TAPS H >= T.",
            index_sums,
            E[u, q, k],
            Sum(Phi[u, h] * P[h, q, k], (h, 1, H)),
            sizes={u: T},
            given=(Sum(E[t, q, k] * KroneckerDelta(t, u), (t, 1, T)) - Sum(Phi[u, h] * P[h, q, k], (h, 1, H)),),
        ),
        step(
            "The count, listed for kernels up to 15 and patches up to 8.",
            finite,
            CASES,
            lambda case: len(tokens(case)) == 2 * ceil((case[0] - 1) / (2 * case[1])) + 1,
            count=64,
        ),
    ),
    mutants=(
        step(
            "No token farther than c - 1 is read.",
            sign,
            (c - 1) * p + p - 1 - token * p,
            given=(c * p - r, p - 1 - a, r - d, a + d - token * p),
            witness={c: 1, p: 1, r: 1, a: 0, d: 1, token: 1},
        ),
        step(
            "The token c + 1 is read.",
            sign,
            r - (token - 1) * p - 1,
            given=(r - (c - 1) * p - 1, c + 1 - token),
            positive=(p,),
            witness={r: 0, p: 1, c: 0, token: 1},
        ),
        step(
            "ceil((K - 1) / P) + 1 heads along an axis.",
            finite,
            CASES,
            lambda case: len(tokens(case)) == ceil((case[0] - 1) / case[1]) + 1,
            count=64,
        ),
        step(
            "The same count for a kernel that reads forward only.",
            finite,
            CASES,
            lambda case: len(tokens(case, case[0] // 2)) == 2 * ceil((case[0] - 1) / (2 * case[1])) + 1,
            count=64,
        ),
        step(
            "An entry that all taps share is one shift of tokens.",
            index_sums,
            Sum(E[t, q, k], (t, 1, T)),
            E[u, q, k],
            instance={T: 2, u: 1, q: 1, k: 1},
        ),
    ),
)
