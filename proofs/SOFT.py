"""Heads that are not exactly one-hot, as computed: the softmax, what leaks, what is mixed, and the layer."""

from fractions import Fraction
from itertools import product

from sympy import Rational, symbols

from .claim import Claim, refutation, step
from .core import finite, identity, sign
from .domain import FORMATS as ALL_FORMATS
from .domain import ULPS, Domain, Floats, Integers
from .FLOAT import FORMATS, PAIRS, gamma, rounded, small

u, v, g, D, mass, total, computed, one_by_one = symbols("u v g D lambda Z Zhat delta", real=True)
weight, e, x, y, r, S, M, f1, f2, a1, a2 = symbols("w e x y r S M f_1 f_2 a_1 a_2", real=True)
others, d1, d2, d3, leak, off, radius = symbols("m d_1 d_2 d_3 l W R", real=True)


def softmax(keys, d, eta, g, lost, v, mu):
    """The error of computed weights in all."""
    off = d + keys * eta
    return ((v + g) * (1 + off) + 2 * off + lost) / ((1 - g) * (1 - off) - lost) + keys * mu


def leaked(others, rest, d, eta, cast, loss_stored):
    """The sum of weights off the target: `rest` the exponentials, at most `others` weights not 0."""
    return (1 + cast) * (1 + d) * rest + others * ((1 + cast) * eta + loss_stored)


def is_one(others, rest, roundoff, roundoff_stored):
    """Whether the target's weight is exactly 1: the others do not move the sum, or the quotient is stored as 1."""
    moved = (1 + gamma(others + 1, roundoff)) * (1 + rest)
    return (1 + gamma(others, roundoff)) * rest <= roundoff or (1 - roundoff_stored / 2) * moved <= 1 - roundoff


def hard_mixing(growth, mass, lost, casts):
    """The error of a mean, of |x| and besides, where the target's weight is 1 and the others are `mass` in all."""
    return 2 ** (casts + 1) * growth * mass, 2 ** (casts + 1) * growth * lost


def nearest(case):
    """Adding y to a number x of the format errs by at most |y|."""
    return abs(small(sum(case)) - sum(case)) <= abs(case[1])


def absorbed(case):
    """A sum of 1 and of weights of at most u together is 1, in 3 bits, in both orders."""
    a, b = case
    return small(small(1 + a) + b) == small(1 + small(a + b)) == 1


TINY = list(product([Fraction(k, 64) for k in range(4)], repeat=2))

CLAIM = Claim(
    name="SOFT",
    title="Heads that are not exactly one-hot, as computed",
    words="A sum in any order of which N summands count is off by gamma_N of these, and by twice what the others "
    "weigh, however many they are; where sums truncate, the others must weigh nothing. A softmax as computed, from "
    "exponentials off by a fraction D of their sum over the "
    "N keys that count, each divided by the sum, or multiplied with the reciprocal, and stored, is within ((v + g)(1 "
    "+ D) + 2 D + lambda) / ((1 - g)(1 - D) - lambda) + N mu, in all, of its real value, g = gamma_N, v = (1 + u)^2 "
    "(1 + u') - 1, and what the other keys weigh as computed, and twice as they are. For scores s off by c |s| and "
    "exponentials off by a fraction d but at the nearest key, D is at most (1 + d)(M - 1) + d times the leak, M the "
    "mean of e^(c |s|), which over the keys of a box is at most (theta((1 - c) alpha) / theta(alpha))^n for a head on "
    "a key, whatever the box, and a product of such ratios for any scores that fall along each axis. Scores of "
    "quadratic heads are off by c = (1 + u)^4 (1 + gamma_n) - 1, by (1 + u)(1 + gamma_n) - 1 from integers up to 2^p "
    "squared, and once more by a rounding where the largest is subtracted; scores of absolute features by their sum "
    "of products. A mean with weights off by W in all is off by (W + gamma_N (1 + W)) X and what the others weigh, "
    "for |x| <= X; axis after axis, with bands and stored sums, these add up, each for tokens that reach further. A "
    "fused kernel, which takes keys in B blocks, rescales its sums to a running maximum and divides after mixing, is "
    "off by 2 g / (1 - g) X, 1 + g = ((1 + r)(1 + d))^B, for sums off by r and exponentials off by d. Where the "
    "target's exponential is 1, no weight exceeds its exponential as stored, so all but the target's are at most (1 + "
    "u')(1 + d) (theta^n - 1) and underflow; if (1 + gamma) times the others' sum is at most u, or the quotient is "
    "within u'/2 of 1, the target's weight is exactly 1; then the mean is off by 2^(c + 1) G times what the others "
    "weigh, c the casts, and not by a fraction of the target. If each head reads within epsilon of what its tap "
    "reads, the layer and the convolution as computed differ by at most S epsilon and the rounding of both, the "
    "layer's on tokens that reach epsilon further.",
    formula=r"|\hat y_{\mathrm{MHSA}} - \hat y_{\mathrm{conv}}| \le S\epsilon + f(S R + |b|) + a + f'(S R + |b| + "
    r"S\epsilon) + a',\quad \epsilon = \bigl(2\,\mathrm{leak} + W + (G - 1)(1 + W)\bigr) R + \mathrm{underflow}",
    conditions=(
        "no overflow, infinity or NaN; N u < 1; one score is at least 0 (the largest was subtracted), D <= 1, g <= 1 "
        "and (1 - g)(1 - D) > lambda",
        "the exponential of the device is within d and eta, and 1 at 0; weights that underflow are 0",
        "for a target of weight 1: sums to nearest, with gradual underflow, or flushing where no x is subnormal",
    ),
    source="Blanchard, Higham and Higham 2021 for the softmax; this project for the rest",
    not_shown="The error of a device's exponential, which is measured. What underflows in a fused kernel. Scores "
    "of real centres in arithmetic that flushes.",
    licenses={
        "conv2attn.theory.bounds.computed_leak": Domain(
            {"alpha": Floats(2.0**-5, 1100.0), "dimensions": Integers(1, 3), "format": ALL_FORMATS, "exp_ulps": ULPS}
        ),
        "conv2attn.theory.bounds.target_rounds_to_one_threshold": Domain(
            {"format": ALL_FORMATS, "dimensions": Integers(1, 3), "exp_ulps": ULPS}
        ),
        "conv2attn.theory.bounds.hard_mixing_bound": Domain(
            {
                "alpha, in thresholds,": Floats(1.0, 32.0),
                "dimensions": Integers(1, 3),
                "format": ALL_FORMATS,
                "exp_ulps": ULPS,
            }
        ),
    },
    formal="part: the alpha from which the target's weight is 1, of which the formal theorem has the condition",
    steps=(
        step(
            "A softmax: quotients, exponentials and their sum are off by at most ((v + g)(1 + D) + 2 D + lambda) Z, "
            "Z >= 1 the real sum and Zhat <= (1 + D) Z that of the exponentials as computed.",
            sign,
            ((v + g) * (1 + D) + 2 * D + mass) * total - (v * computed + one_by_one + D * total + g * computed + mass),
            (
                (v, (1 + D) * total - computed),
                (g, (1 + D) * total - computed),
                (mass, total - 1),
                (D * total - one_by_one,),
            ),
            given=(v, g, mass, (1 + D) * total - computed, total - 1, D * total - one_by_one),
        ),
        step(
            "A fused kernel: sums that are off by a fraction g are, rescaled, off by (1 + g)(1 + d) - 1, and after the "
            "additions of a block by (1 + r)(1 + d)(1 + g) - 1.",
            identity,
            (1 + g) * (1 + d1) - 1 + r * (1 + g) * (1 + d1),
            (1 + r) * (1 + d1) * (1 + g) - 1,
        ),
        step(
            "The quotient of two sums that are each off by g: one too large, the other too small.",
            identity,
            (1 + g) / (1 - g) - 1,
            2 * g / (1 - g),
        ),
        step(
            "A weight e/Z of a sum Z >= 1 is at most e: dividing enlarges nothing.",
            sign,
            e - e / total,
            ((e, total - 1, 1 / total),),
            given=(e, total - 1),
            positive=(total,),
        ),
        step(
            "Adding y to a number of the format errs by at most |y|, since that number is itself a candidate (3 bits, "
            "some pairs; the formal layer has all formats).",
            finite,
            PAIRS,
            nearest,
            count=121,
        ),
        step(
            "So a partial sum with the target in it, off by r, is after adding y off by at most r + 2 |y|.",
            sign,
            r + 2 * y - (x + y + d1),
            ((r - x,), (y - d1,)),
            given=(r - x, y - d1),
        ),
        step(
            "Storing it doubles what it is off by: the target's value is a number of the storage.",
            sign,
            2 * r - (d1 + d2),
            ((r - d1,), (r - d2,)),
            given=(r - d1, r - d2),
        ),
        step(
            "Weights of at most 3/64 each do not move a sum of 1, in either order (3 bits, u = 1/8).",
            finite,
            TINY,
            absorbed,
            count=16,
        ),
        step(
            "In each of the four formats 1 - u/2 rounds to 1, a tie that goes to the even number.",
            finite,
            list(FORMATS.values()),
            lambda form: rounded(1 - Fraction(2) ** (-form[0] - 1), *form) == 1,
            count=4,
        ),
        step(
            "A mean with weights that are off by W: W X, and the rounding of a sum with weights of at most 1 + W.",
            sign,
            (off + (g - 1) * (1 + off)) * radius - (d1 + (g - 1) * d2),
            ((off * radius - d1,), (g - 1, (1 + off) * radius - d2)),
            given=(off * radius - d1, g - 1, (1 + off) * radius - d2),
        ),
        step(
            "What leaks moves the mean by at most twice the leak times the radius, and the rest comes on top.",
            sign,
            (2 * leak + off) * radius - (d1 + d2),
            ((off * radius - d1,), (2 * leak * radius - d2,)),
            given=(off * radius - d1, 2 * leak * radius - d2),
        ),
        step(
            "Two layers: what the heads read, rounding of the first, rounding of the second on tokens that reach "
            "further.",
            sign,
            S * e + f1 * M + a1 + f2 * (M + S * e) + a2 - (d1 + d2 + d3),
            ((S * e - d1,), (f1 * M + a1 - d2,), (f2 * (M + S * e) + a2 - d3,)),
            given=(S * e - d1, f1 * M + a1 - d2, f2 * (M + S * e) + a2 - d3),
        ),
        refutation(
            "A sum that truncates loses more than is added: 1 - 1/64 becomes 7/8 in 3 bits.",
            sign,
            y - (x - r),
            witness={x: Rational(63, 64), y: Rational(1, 64), r: Rational(7, 8)},
        ),
    ),
    mutants=(
        step(
            "A softmax whose sum is taken for exact: (v (1 + D) + 2 D + lambda) Z do.",
            sign,
            (v * (1 + D) + 2 * D + mass) * total - (v * computed + one_by_one + D * total + g * computed + mass),
            given=(v, g, mass, (1 + D) * total - computed, total - 1, D * total - one_by_one),
            witness={v: 0, g: 1, mass: 0, D: 0, total: 1, computed: 1, one_by_one: 0},
        ),
        step(
            "Exponentials and their sum off by D Z once, not twice.",
            sign,
            ((v + g) * (1 + D) + D + mass) * total - (v * computed + one_by_one + D * total + g * computed + mass),
            given=(v, g, mass, (1 + D) * total - computed, total - 1, D * total - one_by_one),
            witness={v: 0, g: 0, mass: 0, D: 1, total: 1, computed: 2, one_by_one: 1},
        ),
        step(
            "A weight is at most its exponential whatever the sum is.",
            sign,
            e - e / total,
            given=(e,),
            positive=(total,),
            witness={e: 1, total: Rational(1, 2)},
        ),
        step(
            "A sum with the target in it is off by r + |y|.",
            sign,
            r + y - (x + y + d1),
            given=(r - x, y - d1),
            witness={r: 0, x: 0, y: 1, d1: 1},
        ),
        step(
            "1 - u rounds to 1.",
            finite,
            list(FORMATS.values()),
            lambda form: rounded(1 - Fraction(2) ** -form[0], *form) == 1,
            count=4,
        ),
        step(
            "Two layers, the second's rounding counted on the first's tokens.",
            sign,
            S * e + f1 * M + a1 + f2 * M + a2 - (d1 + d2 + d3),
            given=(S * e - d1, f1 * M + a1 - d2, f2 * (M + S * e) + a2 - d3),
            witness={f1: 0, M: 0, a1: 0, a2: 0, S: 1, e: 1, f2: 1, d1: 1, d2: 0, d3: 1},
        ),
        step(
            "The mean of a target of weight 1 is exact: in 3 bits 1 and a neighbour of weight 1/4 read 1.",
            finite,
            [(Fraction(1), Fraction(1, 4))],
            lambda case: small(sum(case)) == 1,
            count=1,
        ),
    ),
)
