"""The ideal softmax of quadratic heads where it is rational: at alpha a multiple of ln 2, from the parameters alone."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.basis import AttentionGrid


def rational_rows(layer: MultiHeadSelfAttention, grid: AttentionGrid) -> Callable[[int, int], list[Fraction]] | None:
    """The ideal row of (head, query), its weights powers of two over their sum; None where they are not.

    `exp(-m ln 2 |delta - c|^2)` is `2^(-m (|delta|^2 - 2 delta c))` times what is the same for all keys. Along an axis
    that exponent is an integer for every delta if `2 m` and `m (1 - 2 c)` are: for integer m and centres on pixels or
    half way between them, say. alpha is taken to be `m ln 2` where it is the float
    of its dtype that is nearest to it.
    """
    if not isinstance(layer.encoding, QuadraticEncoding):
        return None
    alphas, centers = layer.encoding.alpha.detach(), layer.encoding.center.detach().double()
    twice = (2 * alphas.double() / math.log(2)).round()
    if not (torch.equal((twice / 2 * math.log(2)).to(alphas.dtype), alphas) and bool((twice > 0).all())):
        return None
    powers = [Fraction(int(x), 2) for x in twice]
    middles = [[Fraction(x) for x in center] for center in centers.tolist()]
    if any((m * (1 - 2 * c)).denominator > 1 for m, center in zip(powers, middles, strict=True) for c in center):
        return None

    @lru_cache(maxsize=4096)
    def row(head: int, query: int) -> list[Fraction]:
        at = [int(i) for i in np.unravel_index(query, grid.queries)]
        exponents = np.zeros(1, dtype=object)
        for axis, place in enumerate(at):
            away = grid.displacement(axis)[place].tolist()
            along = [int(powers[head] * d * (d - 2 * middles[head][axis])) for d in away]
            exponents = (exponents[:, None] + np.array(along, dtype=object)[None, :]).reshape(-1)
        most = max(exponents)
        weights = [1 << int(most - x) for x in exponents]
        whole = sum(weights)
        return [Fraction(weight, whole) for weight in weights]

    return row
