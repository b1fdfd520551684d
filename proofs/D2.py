"""Two encoding dimensions suffice in any number of axes, one does not: the enumerated encoding."""

from sympy import Rational, symbols

from .claim import Claim, refutation, step
from .core import identity, sign
from .domain import GRID, Domain, Integers, Many

alpha, t, centre = symbols("alpha t t_Delta", real=True)
a, b, m, M, W = symbols("a b m M W", integer=True)
v, r1, r2, r3, z = symbols("v r_1 r_2 r_3 z", real=True)

CLAIM = Claim(
    name="D2",
    title="Two encoding dimensions",
    words="Number the displacements of a grid by an injective integer t, on a padded grid of width W as t = M d_1 + "
    "d_2 with M >= 2 W - 1. With r = (t, t^2) and v = alpha (2 t_Delta, -1) the score is -alpha (t - t_Delta)^2 up to "
    "a constant, so every displacement is the unique peak of some v, and D_p = 2 suffices in any number of axes. D_p = "
    "1 cannot serve three keys, so 2 is the minimum.",
    formula=r"v \cdot r = -\alpha (t - t_\Delta)^2 + \alpha t_\Delta^2",
    conditions=(
        "alpha > 0; t integer and injective on the displacements of this grid, so M belongs to the run-time size",
        "D_p = 1 fails for three keys visible at one query, the score v . r being the whole score; it serves the two "
        "extreme keys of a line",
    ),
    source="this project; against Cordonnier et al. 2019 (arXiv v1), conjecture D_p >= 3, and Theorem 1, D_p >= 3",
    not_shown="The price in range: t^2 grows like the square of the number of displacements, which floats do not hold; "
    "the code computes the scores from integers.",
    licenses={
        "conv2attn.theory.basis.EnumeratedSoftmax": Domain(
            {
                "centres": Many(Many(Integers(-9, 9), 1, 3), 2, 2, "heads"),
                "alphas": Many(Integers(1, 4096, 64), 2, 2, "heads"),
            },
            beside=GRID,
        ),
    },
    formal="whole",
    errata=("E5",),
    steps=(
        step(
            "v . r = -alpha (t - t_Delta)^2 + alpha t_Delta^2.",
            identity,
            alpha * (2 * centre * t - t**2),
            -alpha * (t - centre) ** 2 + alpha * centre**2,
        ),
        step(
            "Injective, a difference a >= 1 in d_1 and |b| <= M - 1 in d_2: M a + b > 0.",
            sign,
            M * a + b,
            ((M, a - 1), (M - 1 + b,), (Rational(1),)),
            given=(a - 1, M - 1 + b),
            positive=(M,),
            strict=True,
        ),
        step(
            "Injective, a <= -1: M a + b < 0.",
            sign,
            -(M * a + b),
            ((M, -1 - a), (M - 1 - b,), (Rational(1),)),
            given=(-1 - a, M - 1 - b),
            positive=(M,),
            strict=True,
        ),
        step("a = 0 leaves b: equal t means equal d_2.", identity, M * 0 + b, b),
        step(
            "Displacements on W pixels differ by at most 2 W - 2 in an axis, which is at most M - 1 when M >= 2 W - 1.",
            sign,
            (M - 1) - (2 * W - 2),
            ((M - (2 * W - 1),),),
            given=(M - (2 * W - 1),),
        ),
        step(
            "More axes: with |a| <= m - 1 on the next axis and |b| <= M - 1 behind it, M a + b <= M m - 1 (and so for "
            "its negative): M m is the next factor, m = 2 W - 1 for a side W.",
            sign,
            (M * m - 1) - (M * a + b),
            ((M, m - 1 - a), (M - 1 - b,)),
            given=(m - 1 - a, M - 1 - b),
            positive=(M,),
        ),
        step(
            "Off the target (t - t_Delta)^2 >= 1, for an integer t - t_Delta = z with z >= 1 (or -z). Distinct "
            "integers are points of a line: L2c with n = 1 bounds the leak.",
            sign,
            z**2 - 1,
            ((z - 1, z - 1), (2, z - 1)),
            given=(z - 1,),
        ),
        step(
            "D_p = 1: were v r_2 > v r_1 and v r_2 > v r_3 for r_1 < r_2 < r_3, these positive quantities, times "
            "positive lengths, would sum to 0.",
            identity,
            (r3 - r2) * (v * r2 - v * r1) + (r2 - r1) * (v * r2 - v * r3),
            0,
        ),
        refutation(
            "Equal encodings r_1 = r_2 tie, and do not separate either key.",
            sign,
            v * r1 - v * r1,
            strict=True,
            witness={v: 1, r1: 1},
        ),
        step(
            "D_p = 1 does serve the larger of two keys, v > 0.",
            sign,
            v * r2 - v * r1,
            ((v, r2 - r1),),
            positive=(v, r2 - r1),
            strict=True,
        ),
    ),
    mutants=(
        step(
            "M = 2 W - 2 is injective: W = 2, a = 1, b = -2 collide.",
            sign,
            M * a + b,
            given=(a - 1, M - (2 * W - 2), b + (2 * W - 2)),
            positive=(M,),
            strict=True,
            witness={M: 2, W: 2, a: 1, b: -2},
        ),
        step(
            "v = alpha (t_Delta, -1).",
            identity,
            alpha * (centre * t - t**2),
            -alpha * (t - centre) ** 2 + alpha * centre**2,
        ),
        step(
            "D_p = 1 serves the middle of three keys, v = 1 and r = 0, 1, 2: v r_2 > v r_3.",
            sign,
            v * r2 - v * r3,
            given=(r2 - r1, r3 - r2),
            strict=True,
            witness={v: 1, r1: 0, r2: 1, r3: 2},
        ),
        step(
            "The sign of t^2 exchanged: a valley in place of a peak.",
            identity,
            alpha * (2 * centre * t + t**2),
            -alpha * (t - centre) ** 2 + alpha * centre**2,
        ),
        step(
            "A peak also for alpha < 0.",
            sign,
            alpha * (t - centre) ** 2,
            positive=((t - centre) ** 2,),
            strict=True,
            witness={alpha: -1, t: 1, centre: 0},
        ),
    ),
)
