"""Lemma 2 at finite alpha: the target's share of the attention, on every grid that contains it."""

from sympy import IndexedBase, Rational, Sum, exp, symbols

from .claim import Claim, refutation, step
from .core import identity, index_sums, less, sign
from .domain import Domain, Floats, Integers, Many

n, A, B = symbols("n A B", integer=True)
i, x, y = symbols("i x y", integer=True)
m, j, N = symbols("m j N", integer=True)
q, qN, E, Z, R, theta, c, prefix, power, factor = symbols("q q^N E Z R theta c prefix power factor", positive=True)
alpha, far, near, gap = symbols("alpha far near gap", real=True)
delta, centre, F, G, w = map(IndexedBase, ["delta", "Delta", "F", "G", "w"])
one = Rational(1)


def lattice_sum(alpha, radius):
    """The sum of exp(-alpha m^2) over |m| <= radius: a lower bound of theta."""
    return 1 + 2 * sum(exp(-alpha * m * m) for m in range(1, radius + 1))


CLAIM = Claim(
    name="L2c",
    title="The target's share at finite alpha",
    words="On every finite set of lattice points that contains the target, of every size and dimension n, the softmax "
    "of the quadratic head gives the target at least theta(e^-alpha)^-n, theta(q) the sum of q^(m^2) over all "
    "integers, which is at least (1 + 2/(e^alpha - 1))^-n. So the leaked mass is at most 1 - theta^-n, for all sizes "
    "at once. With one alpha for each axis, or with a real centre, the factor theta of an axis is the sum over all "
    "integers m of e^(-alpha (m^2 - 2 m f)), f from the target to the centre. A gated head, which attends by position "
    "with a share g and by content with the rest, leaks at most 1 - g and g times that.",
    formula=r"\frac{1}{\sum_{k \in S} e^{-\alpha\|k - q - \Delta\|^2}} \ge \theta(e^{-\alpha})^{-n} \ge "
    r"\left(1 + \frac{2}{e^\alpha - 1}\right)^{-n},\quad \theta(q) = \sum_{m \in \mathbb{Z}} q^{m^2}",
    conditions=(
        "alpha > 0",
        "the target, the lattice point nearest to the centre, is a key; or the keys lie in a box and its clamp is one "
        "(PAD), which then has that share; with theta itself the centre is the target: at Delta = 1/2 the share is at "
        "most 1/2",
        "the keys are distinct lattice points",
    ),
    source="this project; Cordonnier et al. 2020, Lemma 2 and the remark on the magnitude of alpha",
    not_shown="That theta converges and that a sum of non-negative terms is at least any partial sum, which are used "
    "as such; that the steps make up the theorem, which the formal layer checks. The mass as floats compute it: A46.",
    licenses={
        "conv2attn.theory.bounds.leaked_mass": Domain({"alpha": Floats(1e-3, 700.0), "dimensions": Integers(1, 4)}),
        "conv2attn.theory.bounds.leaked_mass_diagonal": Domain(
            {
                "alphas": Many(Floats(2.0**-8, 300.0), 1, 4),
                "centre": Many(Floats(2.0**-20, 2.0**20, zero=True, signed=True), 1, 4),
            },
            ("whose nearest lattice point is a key", lambda alphas, centre: True),
        ),
    },
    formal="whole",
    errata=("E1",),
    steps=(
        step(
            "The exponent is a sum over axes, so each weight is a product of one factor an axis (exp(a+b) = exp a exp "
            "b).",
            index_sums,
            Sum(delta[i] ** 2 - 2 * delta[i] * centre[i] + centre[i] ** 2, (i, 1, n)),
            Sum((delta[i] - centre[i]) ** 2, (i, 1, n)),
        ),
        step(
            "A sum over a product set of products is the product of the sums; by induction, for n axes.",
            index_sums,
            Sum(F[x] * G[y], (x, 1, A), (y, 1, B)),
            Sum(F[x], (x, 1, A)) * Sum(G[y], (y, 1, B)),
        ),
        step(
            "The keys are part of a box of the lattice: with the rest R >= 0 of its weights, Z <= Z + R.",
            sign,
            (Z + R) - Z,
            ((R,),),
            given=(R,),
        ),
        step(
            "A product of n non-negative axis sums, each at most c, is at most c^n: the induction step.",
            sign,
            power * c - prefix * factor,
            ((c, power - prefix), (prefix, c - factor)),
            given=(power - prefix, c - factor, prefix),
            positive=(c,),
        ),
        step("m^2 >= m for every integer m >= 1, so q^(m^2) <= q^m.", sign, m**2 - m, ((m, m - 1),), given=(m, m - 1)),
        step(
            "The geometric sum: q + ... + q^N = q (1 - q^N)/(1 - q), start N = 1 ...",
            identity,
            q,
            q * (1 - q) / (1 - q),
        ),
        step(
            "... and step from N to N + 1, with qN for q^N.",
            identity,
            q * (1 - qN) / (1 - q) + q * qN,
            q * (1 - q * qN) / (1 - q),
        ),
        step(
            "Hence every axis sum is below 1 + 2 q/(1 - q), for 0 < q < 1.",
            sign,
            2 * q / (1 - q) - 2 * q * (1 - qN) / (1 - q),
            ((2, q, qN, 1 / (1 - q)),),
            positive=(q, qN, 1 - q),
            strict=True,
        ),
        step(
            "With q = 1/E, E = e^alpha: 1 + 2 q/(1 - q) = 1 + 2/(E - 1).",
            identity,
            1 + 2 * (1 / E) / (1 - 1 / E),
            1 + 2 / (E - 1),
        ),
        step(
            "The sharper elementary bound theta <= 1 + 2 (q + q^4/(1 - q^5)): m^2 >= 4 + 5 (m - 2), for m = 2 + j, j "
            ">= 1 ...",
            sign,
            (2 + j) ** 2 - (4 + 5 * j),
            ((j, j - 1),),
            given=(j, j - 1),
        ),
        step("... and for j = 0 it is an equality.", identity, (2 + 0) ** 2, 4 + 5 * 0),
        step(
            "Share >= 1/c from partition <= c: 1/Z - 1/c >= 0 when c - Z >= 0.",
            sign,
            1 / Z - 1 / c,
            ((c - Z, 1 / Z, 1 / c),),
            given=(c - Z,),
            positive=(Z, c),
        ),
        step(
            "A target outside a box: with far >= near + gap, the squared distances of a key to the target, of the "
            "clamp to the target, of the key to the clamp (PAD), the weights relative to the clamp's are at most "
            "e^(-alpha gap): the same bound.",
            sign,
            alpha * (far - near) - alpha * gap,
            ((alpha, far - near - gap),),
            given=(far - near - gap,),
            positive=(alpha,),
        ),
        step(
            "A real centre at f from the target: relative to it, a key m further along scores -alpha (m^2 - 2 m f).",
            identity,
            -alpha * (m - gap) ** 2 + alpha * gap**2,
            -alpha * (m**2 - 2 * m * gap),
        ),
        refutation(
            "A real centre: between two keys, at distance 1/2 of both, the share is 1/2 and not 1.",
            identity,
            E / (E + E),
            one,
        ),
    ),
    mutants=(
        step(
            "The bound without its factor 2, theta <= 1 + 1/(e^alpha - 1), at alpha = 1 on seven keys.",
            less,
            lattice_sum(1, 3) * (exp(1) - 1),
            exp(1),
        ),
        step(
            "The bound with n - 1 for n: at n = 2, alpha = 3, a 3 x 3 grid has partition at most 1 + 2/(e^3 - 1).",
            less,
            lattice_sum(3, 1) ** 2 * (exp(3) - 1),
            exp(3) + 1,
        ),
        step(
            "The sharper bound with q^9 for q^4, at alpha = 1.",
            less,
            lattice_sum(1, 3) * (1 - exp(-5)),
            (1 + 2 * exp(-1)) * (1 - exp(-5)) + 2 * exp(-9),
        ),
        step(
            "The elementary bound from the other side, theta >= 1 + 2/(e^alpha - 1), at alpha = 1 on all keys: "
            "theta is "
            "at most 1 + 2 q + 2 q^4/(1 - q^5).",
            less,
            2 * (1 - exp(-5)),
            ((2 * exp(-1) * (1 - exp(-5)) + 2 * exp(-4)) * (exp(1) - 1)).expand(),
        ),
        step(
            "At the real centre 1/2 the share exceeds 1/2, with the two nearest keys alone.",
            identity,
            E / (E + E),
            Rational(2, 3),
        ),
        step(
            "A real centre moves a key's score by one f and not by two.",
            identity,
            -alpha * (m - gap) ** 2 + alpha * gap**2,
            -alpha * (m**2 - m * gap),
        ),
        step(
            "Keys that coincide: two at the target leave it more than 1/2.",
            sign,
            1 / (1 + Z) - Rational(1, 2),
            given=(Z - 1,),
            strict=True,
            witness={Z: 1},
        ),
    ),
)
