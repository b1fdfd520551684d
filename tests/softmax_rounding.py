"""An oracle: the error of a softmax computed in floating point over the keys of a row, by the formula of claim SOFT."""

import math

from flint import arb, ctx

from conv2attn.theory.bounds import EXP_ULPS, accumulator_of, storage_of, up
from proofs import FLOAT, SOFT


def softmax_error(keys, name, score=0.0, ulps=EXP_ULPS["softmax"]):
    """Upper bound on the sum of |computed weight - softmax weight|, for scores off by `score`; infinite without one."""
    inner, stored = accumulator_of(name), storage_of(name)
    with ctx.workprec(400):
        u, tiny, cast = arb(inner.unit_roundoff), arb(inner.smallest_normal), arb(stored.unit_roundoff)
        d = arb(score).exp() * (1 + 2 * arb(ulps) * u) - 1
        # Scores that `cut_softmax` cuts weigh at most 2^24 times the smallest normal number.
        eta = (arb(ulps) + 1) * tiny + tiny * 2**24 * (2 * arb(score)).exp()
        g = FLOAT.gamma(keys, u)
        lost, v = (1 + g) * FLOAT.underflow(keys, tiny, keys, tiny, 0, 0), (1 + u) ** 2 * (1 + cast) - 1
        if not (d + keys * eta <= 1 and 0 <= g <= 1 and (1 - g) * (1 - d - keys * eta) > lost):
            return math.inf
        mu = (1 + cast) * (3 + 2 * u) * tiny + tiny + stored.smallest_subnormal
        return up(SOFT.softmax(keys, d, eta, g, lost, v, mu))
