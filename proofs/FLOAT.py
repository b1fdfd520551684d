"""Computed attention against computed convolution: rounding in any order, and heads that are exactly one-hot."""

from fractions import Fraction
from functools import cache
from itertools import product

from sympy import Rational, symbols

from .claim import Claim, refutation, step
from .core import finite, sign
from .domain import BOUND, FLAG, Domain, Floats, Integers
from .domain import FORMATS as ALL_FORMATS

u, g, m, loss, lost, P, n = symbols("u g m e l P n", real=True)
W, X, cut_w, cut_x, kappa = symbols("W X a b kappa", real=True)  # |w|, |x|, and how far cutting moves each
S, err, M, f1, f2, a1, a2, d1, d2, d3 = symbols("S epsilon M f_1 f_2 a_1 a_2 d_1 d_2 d_3", real=True)

FORMATS = {"float64": (53, -1074), "float32": (24, -149), "bfloat16": (8, -133), "float16": (11, -24)}  # p, emin
SMALL = (3, -3)  # 3 bits, smallest subnormal 1/8: all of its cases fit here
NUMBERS = [Fraction(k, 8) for k in (-14, -10, -7, -5, -1, 1, 3, 5, 8, 12, 28)]  # some of its numbers
ROUNDOFF, LOSS = Fraction(1, 8), Fraction(1, 16)


def gamma(roundings, roundoff):
    return roundings * roundoff / (1 - roundings * roundoff)


def growth(cut, roundings, roundoff, casts, roundoff_stored):
    """G: what multiplies the sum of absolute values, plus 1."""
    return (1 + cut) ** 2 * (1 + gamma(roundings, roundoff)) * (1 + roundoff_stored) ** casts


def underflow(products, loss, summands, sum_loss, stored, loss_stored):
    """The loss below the normal numbers, before it grows by G."""
    return products * loss + summands * sum_loss + stored * loss_stored


def rounded(z, precision, smallest):
    """To nearest, ties to even, with gradual underflow: exact."""
    if not z:
        return Fraction(0)
    exponent = abs(z).numerator.bit_length() - abs(z).denominator.bit_length()
    exponent -= abs(z) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent + 1 - precision, smallest)
    return round(z / unit) * unit


@cache
def small(z):
    return rounded(z, *SMALL)


def separate(a, b, c, d):
    return small(small(a * b) + small(c * d))


def fused(a, b, c, d):
    return small(a * b + small(c * d))


def within(evaluate, underflow):
    """Whether a sum of two products, so evaluated, is within gamma_2 of the sum of absolute values, and underflow."""

    def holds(case):
        a, b, c, d = case
        allowed = gamma(2, ROUNDOFF) * (abs(a * b) + abs(c * d)) + (1 + gamma(2, ROUNDOFF)) * 2 * underflow
        return abs(evaluate(a, b, c, d) - (a * b + c * d)) <= allowed

    return holds


def sum_loses_nothing(case):
    x, y = case
    return abs(small(x + y) - (x + y)) <= ROUNDOFF * abs(x + y)


QUADRUPLES = list(product(NUMBERS[::2], repeat=4))
PAIRS = list(product(NUMBERS, repeat=2))

CLAIM = Claim(
    name="FLOAT",
    title="Computed attention and convolution",
    words="A sum of n products and a bias, as computed in any order, with or without fused multiply-adds, from zero or "
    "not, each summand stored at most c times on its way and m partial sums in all, is within (G - 1)(sum |w x| + |b|) "
    "+ G (n e + m e') of its real value, G = (1 + kappa)^2 (1 + gamma_n) (1 + u')^c: for round to nearest even "
    "with gradual underflow, for flushing and for truncating arithmetic, with operands cut by a fraction kappa or not. "
    "If the exponentials of each head are 1 at the key that its tap reads, at most half of the smallest number that is "
    "stored at the others, and too small together to move a sum of 1, then the weights as computed are exactly one-hot "
    "in every format, their means read exactly that key's token, and the layer as computed and the convolution as "
    "computed differ by at most what their two sums are off by. Heads that read tokens within epsilon add sum |w| "
    "epsilon and its rounding.",
    formula=r"|\hat y_{\mathrm{MHSA}} - \hat y_{\mathrm{conv}}| \le (G - 1 + G' - 1)\Bigl(\sum_i |w_i x_i| + |b|\Bigr) "
    r"+ G\,(n e + m e') + G'(n' e + m' e'),\quad G = (1 + \kappa)^2 (1 + \gamma_n)(1 + u')^c",
    conditions=(
        "no overflow, infinity or NaN; n u < 1",
        "direct summation: every product is formed of a weight and an input, and is added once; no Winograd, no FFT",
        "u = 2^-p; a product loses at most half of the smallest subnormal number, a sum nothing (gradual underflow); "
        "the smallest normal number both (flushing); u = 2^(1-p) and the smallest subnormal number (truncating)",
        "for one-hot weights: round to nearest even, storage no finer than the format of the softmax, at most 2^(p-1) "
        "keys; the exponential of the device is 1 at 0 and negligible at scores of -alpha and below, as it is measured",
    ),
    source="Higham 2002, Sec. 3.1 and Lemma 3.1; Hauser 1996 for sums that underflow; this project for the layers",
    not_shown="Heads that are not one-hot: SOFT. That a library sums directly.",
    licenses={
        "conv2attn.theory.bounds.gamma": Domain(
            {"operations": Integers(0, 2**52), "unit_roundoff": Floats(2.0**-53, 2.0**-8)},
            ("n u < 1", lambda n, u: n * u < 1),
        ),
        "conv2attn.theory.bounds.convolution_bound": Domain(
            {
                "terms": Integers(1, 2**17),
                "format": ALL_FORMATS,
                "bias": FLAG,
                "casts": Integers(0, 2**10),
                "stored": Integers(0, 2**17),
                "truncating": FLAG,
                "flush_to_zero": FLAG,
            }
        ),
        "conv2attn.theory.bounds.difference_bound": Domain(
            {
                "weight_sum": Floats(2.0**-60, 2.0**60, zero=True),
                "bias": Floats(2.0**-60, 2.0**60, zero=True, signed=True),
                "input_range": Floats(2.0**-60, 2.0**60, zero=True),
                "original": BOUND,
                "converted": BOUND,
                "leak": Floats(2.0**-60, 1.0, zero=True),
                "mixing": BOUND,
            }
        ),
    },
    formal="part: that weights are exactly one-hot in arithmetic that flushes; layers that read by such weights, in "
    "any arithmetic and with operands cut, are a theorem of SOFT (SOFT_cut)",
    steps=(
        step(
            "One more rounding: if y is within (g - 1) m + g l of z, |z| <= m, and y' within u |y| + e of y, then y' "
            "is within ((1 + u) g - 1) m + (1 + u) g (l + e) of z.",
            sign,
            ((1 + u) * g - 1) * m
            + (1 + u) * g * (lost + loss)
            - (u * (g * m + g * lost) + loss + (g - 1) * m + g * lost),
            ((loss, g - 1), (loss, u, g)),
            given=(loss, g - 1, u, g),
        ),
        step(
            "Cut operands: |c(w) c(x) - w x| <= a b + a |x| + |w| b <= ((1 + kappa)^2 - 1) |w| |x|.",
            sign,
            ((1 + kappa) ** 2 - 1) * W * X - (cut_w * cut_x + cut_w * X + W * cut_x),
            (
                (kappa * W - cut_w, kappa, X),
                (cut_w, kappa * X - cut_x),
                (X, kappa * W - cut_w),
                (W, kappa * X - cut_x),
            ),
            given=(kappa * W - cut_w, kappa * X - cut_x, kappa, X, W, cut_w),
        ),
        step(
            "(1 + u)^n (1 - n u) <= 1 by induction, so n roundings grow a number by at most 1 + gamma_n.",
            sign,
            P * (1 - n * u) - P * (1 + u) * (1 - (n + 1) * u),
            ((P, n + 1, u**2),),
            given=(P, n + 1),
        ),
        step(
            "A sum of two numbers of a format is off by at most u times itself, underflow or not (3 bits, some pairs; "
            "the formal layer has all formats).",
            finite,
            PAIRS,
            sum_loses_nothing,
            count=121,
        ),
        step(
            "Two products in 3 bits, rounded and added: within gamma_2 and underflow, in all of these cases.",
            finite,
            QUADRUPLES,
            within(separate, LOSS),
            count=1296,
        ),
        step(
            "The same with a fused multiply-add.",
            finite,
            QUADRUPLES,
            within(fused, LOSS),
            count=1296,
        ),
        step(
            "In each of the four formats 1 + u rounds to 1, so weights of at most u together do not move the sum.",
            finite,
            list(FORMATS.values()),
            lambda form: rounded(1 + Fraction(2) ** -form[0], *form) == 1,
            count=4,
        ),
        step(
            "In each, half of the smallest number rounds to 0, so such a weight is stored as 0.",
            finite,
            list(FORMATS.values()),
            lambda form: rounded(Fraction(2) ** (form[1] - 1), *form) == 0,
            count=4,
        ),
        step(
            "Two layers: rounding of the first, what the heads read, rounding of the second on tokens that reach "
            "further.",
            sign,
            f1 * M + a1 + S * err + f2 * (M + S * err) + a2 - (d1 + d2 + d3),
            ((f1 * M + a1 - d1,), (S * err - d2,), (f2 * (M + S * err) + a2 - d3,)),
            given=(f1 * M + a1 - d1, S * err - d2, f2 * (M + S * err) + a2 - d3),
        ),
        refutation(
            "What underflows must be counted: without it two products in 3 bits exceed gamma_2.",
            finite,
            QUADRUPLES,
            within(separate, 0),
            1296,
        ),
    ),
    mutants=(
        step("Nothing is lost by underflow.", finite, QUADRUPLES, within(separate, Fraction(0)), 1296),
        step(
            "gamma_1 does for two roundings.",
            sign,
            1 + u / (1 - u) - (1 + u) ** 2,
            given=(u,),
            witness={u: Rational(1, 2)},
        ),
        step(
            "One more rounding costs u m only, whatever was lost before.",
            sign,
            ((1 + u) * g - 1) * m + g * lost + loss - (u * (g * m + g * lost) + loss + (g - 1) * m + g * lost),
            given=(u, g - 1, lost),
            witness={u: 1, g: 1, m: 0, lost: 1, loss: 0},
        ),
        step(
            "Two layers, the second's rounding counted on the first's tokens.",
            sign,
            f1 * M + a1 + S * err + f2 * M + a2 - (d1 + d2 + d3),
            given=(f1 * M + a1 - d1, S * err - d2, f2 * (M + S * err) + a2 - d3),
            witness={f1: 0, M: 0, a1: 0, a2: 0, S: 1, err: 1, f2: 1, d1: 0, d2: 1, d3: 1},
        ),
        step(
            "1 + 2 u rounds to 1.",
            finite,
            list(FORMATS.values()),
            lambda form: rounded(1 + 2 * Fraction(2) ** -form[0], *form) == 1,
            count=4,
        ),
        step(
            "Every sum of two numbers of a format is exact.",
            finite,
            PAIRS,
            lambda case: small(sum(case)) == sum(case),
            count=121,
        ),
    ),
)
