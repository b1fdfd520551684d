"""Heads whose centre moves with the query's content: deformable convolution as attention."""

from sympy import E, IndexedBase, Rational, Sum, symbols

from .claim import Claim, step
from .core import identity, index_sums, less, sign

n, C = symbols("n C", integer=True)
i, c = symbols("i c", integer=True)
delta, Delta, m, q, W = map(IndexedBase, ["delta", "Delta", "m", "q", "W"])
alpha, x, u, s, share, cn = symbols("alpha x u s share c_n", real=True)

moved = -alpha * Sum((delta[i] - Delta[i]) ** 2, (i, 1, n)) + 2 * alpha * Sum(m[i] * delta[i], (i, 1, n))
centred = -alpha * Sum((delta[i] - Delta[i] - m[i]) ** 2, (i, 1, n))
constant = alpha * Sum(m[i] ** 2 + 2 * m[i] * Delta[i], (i, 1, n))

CLAIM = Claim(
    name="DEFORM",
    title="Heads whose centre moves with the content",
    words="The score -alpha |delta - Delta|^2 + q.(W delta), the quadratic encoding with the content-position term of "
    "Eq. (8), is -alpha |delta - c(q)|^2 up to a constant of the query: a quadratic head with the centre c(q) = "
    "Delta + W'q / (2 alpha), an affine function of the query's channels. Where the moved centre is a key, at most the "
    "leak of L2c is lost. So as alpha grows, and W with it, the head reads that pixel: a deformable convolution whose "
    "offsets are a 1 x 1 convolution, sampled at whole pixels. Between pixels it is a Gaussian mean, not bilinear.",
    formula=r"-\alpha|\delta-\Delta|^2 + q^\top W\delta = -\alpha\,\Bigl|\delta-\Delta-\tfrac{W^\top q}{2\alpha}"
    r"\Bigr|^2 + q^\top W\Delta + \tfrac{|W^\top q|^2}{4\alpha}",
    conditions=(
        "alpha > 0; no content-content term, which does not depend on the displacement alone",
        "for the leak: the moved centre is a whole pixel; beyond a box of keys the key nearest to it is read",
    ),
    source="this project; Cordonnier et al. 2020, Eq. (8) and Sec. 6; Dai et al. 2017, deformable convolutions",
    not_shown="Offsets that a wider layer computes; the rounding of moved centres, which floats do not hold exactly.",
    licenses={},
    formal="part: that the leak tends to 0 as alpha grows, which is L2b",
    steps=(
        step(
            "For n axes, with m = W'q / (2 alpha): completing the square leaves a constant of the query.",
            index_sums,
            moved,
            centred + constant,
        ),
        step(
            "The content term is 2 alpha m: its coefficient of delta_i is sum_c q_c W[c, i].",
            index_sums,
            Sum(q[c] * Sum(W[c, i] * delta[i], (i, 1, n)), (c, 1, C)),
            Sum(Sum(q[c] * W[c, i], (c, 1, C)) * delta[i], (i, 1, n)),
        ),
        step(
            "One axis, s = (W'q)_i: the centre moves by s / (2 alpha), and what is left is s Delta + s^2 / (4 alpha).",
            identity,
            -alpha * (x - u) ** 2 + s * x,
            -alpha * (x - u - s / (2 * alpha)) ** 2 + s * u + s**2 / (4 * alpha),
        ),
        step(
            "A moved centre that is a key has the share of L2c, so the mass off it is at most 1 - 1/c^n.",
            sign,
            (1 - 1 / cn) - (1 - share),
            ((share - 1 / cn,),),
            given=(share - 1 / cn,),
        ),
        step(
            "Not bilinear: a quarter between two keys, alpha = 2, their weights are as e to 1, and bilinear as 3 to 1.",
            less,
            E,
            3,
        ),
    ),
    mutants=(
        step(
            "The centre moves by s / alpha.",
            identity,
            -alpha * (x - u) ** 2 + s * x,
            -alpha * (x - u - s / alpha) ** 2 + s * u + s**2 / (4 * alpha),
        ),
        step(
            "The centre moves the other way.",
            identity,
            -alpha * (x - u) ** 2 + s * x,
            -alpha * (x - u + s / (2 * alpha)) ** 2 + s * u + s**2 / (4 * alpha),
        ),
        step(
            "The scores are equal without the constant of the query.",
            index_sums,
            moved,
            centred,
            instance={n: 1},
        ),
        step(
            "The centre halfway between two keys leaves one of them the share of L2c.",
            sign,
            share - 1 / cn,
            given=(share, 1 - share),
            positive=(cn,),
            witness={share: Rational(1, 2), cn: Rational(3, 2)},
        ),
        step("A quarter between two keys the weights, as e to 1, are at least bilinear, as 3 to 1.", less, 3, E),
    ),
)
