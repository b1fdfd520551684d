"""Lemma 2, the limit: the softmax of the quadratic head tends to one-hot, uniformly over all grids."""

from sympy import Rational, exp, symbols

from .claim import Claim, refutation, step
from .core import identity, less, sign
from .domain import Domain, Floats, Integers

n = symbols("n", nonnegative=True, integer=True)
x, C, E, eps, share, other = symbols("x C E epsilon share other", positive=True)

CLAIM = Claim(
    name="L2b",
    title="Lemma 2: the limit is one-hot",
    words="As alpha grows the softmax of the quadratic head tends to one-hot at the target, uniformly over all finite "
    "grids that contain the target: for every eps > 0, alpha >= log(1 + 2 n / eps) leaves at most eps off the target, "
    "whatever the size of the grid.",
    formula=r"\alpha \ge \log\left(1 + \frac{2n}{\varepsilon}\right) \implies "
    r"1 - \operatorname{softmax}(A_q)_{q+\Delta} \le \varepsilon",
    conditions=(
        "alpha > 0; integer centre; the target is a key (or, in a box, its clamp: PAD)",
        "a masked key set without the target can tie, and then the limit is not one-hot",
        "false for real centres: 1/2 gives 1/2 for every alpha",
    ),
    source="Cordonnier et al. 2020, Lemma 2; uniformity is this project's",
    not_shown="Monotonicity of exp and log, which turn alpha >= log(...) into e^alpha >= ..., are used as such.",
    licenses={
        "conv2attn.theory.bounds.leaked_mass": Domain({"eps": Floats(2.0**-50, 0.999), "dimensions": Integers(1, 4)}),
    },
    formal="whole",
    steps=(
        step("Bernoulli, (1 - n x)(1 + x)^n <= 1 for x > 0: start n = 0.", identity, (1 - 0 * x) * 1, 1),
        step(
            "The step from n to n + 1, with C = (1 + x)^n.",
            sign,
            1 - (1 - (n + 1) * x) * (1 + x) * C,
            ((1 - (1 - n * x) * C,), (C, x, x, n + 1)),
            given=(1 - (1 - n * x) * C,),
            positive=(C, x, n + 1),
        ),
        step(
            "With L2c, x = 2/(E - 1), share >= 1/C, C = (1 + x)^n: what is off the target is at most n x.",
            sign,
            n * x - (1 - share),
            ((share - 1 / C,), (1 - (1 - n * x) * C, 1 / C)),
            given=(share - 1 / C, 1 - (1 - n * x) * C),
            positive=(C,),
        ),
        step(
            "n x <= eps when e^alpha = E >= 1 + 2 n/eps.",
            sign,
            eps - n * 2 / (E - 1),
            ((eps, E - 1 - 2 * n / eps, 1 / (E - 1)),),
            given=(E - 1 - 2 * n / eps,),
            positive=(E - 1, eps),
        ),
        step(
            "Every other weight is at most what is off the target, as the weights are >= 0 and sum to 1.",
            sign,
            (1 - share) - other,
            ((1 - share - other,),),
            given=(1 - share - other,),
        ),
        step(
            "Centre 1/2: the keys 0 and 1 have the same score for every alpha ...",
            identity,
            -x * (0 - Rational(1, 2)) ** 2,
            -x * (1 - Rational(1, 2)) ** 2,
        ),
        step("... so each has the share 1/2.", identity, E / (E + E), Rational(1, 2)),
        refutation(
            "A masked set without the target ties: keys -1 and 1 of centre 0 share equally, none has 1.",
            identity,
            E / (E + E),
            1,
        ),
    ),
    mutants=(
        step(
            "The rate without n: off-target mass <= 2/(e^alpha - 1) on a 3 x 3 grid at alpha = 3.",
            less,
            ((1 + 2 * exp(-3)) ** 2 - 1) * (exp(3) - 1),
            2 * (1 + 2 * exp(-3)) ** 2,
        ),
        step("At centre 1/2 the share of key 0 is 1.", identity, E / (E + E), 1),
        step(
            "alpha >= log(1 + n/eps) is enough.",
            sign,
            eps - n * 2 / (E - 1),
            given=(E - 1 - n / eps,),
            positive=(E - 1, eps),
            witness={n: 1, eps: 1, E: 2},
        ),
        step(
            "One alpha serves every eps.",
            sign,
            eps - n * 2 / (E - 1),
            positive=(E - 1, eps),
            witness={n: 1, eps: Rational(1, 10), E: 2},
        ),
        step(
            "What is off the target is at most x, n forgotten.",
            sign,
            x - (1 - share),
            given=(share - 1 / C, 1 - (1 - n * x) * C),
            positive=(C,),
            witness={n: 2, x: Rational(1, 2), C: Rational(9, 4), share: Rational(4, 9)},
        ),
    ),
)
