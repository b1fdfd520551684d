"""The remark on alpha = 46: from which alpha float attention is exactly one-hot."""

from sympy import Rational, exp

from .claim import Claim, refutation, step
from .core import finite, less
from .domain import FLAG, Domain
from .domain import FORMATS as ALL_FORMATS

two = Rational(2)
# name: (precision in bits, smallest normal exponent); half the smallest subnormal is 2^(emin - p)
FORMATS = {"float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022)}
HALVES = {name: emin - p for name, (p, emin) in FORMATS.items()}
FIRST = {  # the first alpha of each format whose exp(-alpha) rounds to 0
    "float16": Rational(17.34375),
    "bfloat16": Rational(93),
    "float32": Rational(103.97208404541016),
    "float64": Rational(745.1332191019412),
}
AUTO = {"float16": 64, "bfloat16": 128, "float32": 128, "float64": 1024}


def spacing(name, alpha):
    """The distance of `alpha` from the number of its format next below it."""
    power = 0
    while two**power < alpha:
        power += 1
    return two ** (power - FORMATS[name][0])


def off_mass(alpha):
    """An upper bound of theta(e^-alpha)^2 - 1 by the elementary bound of L2c, times (1 - e^(-5 alpha))^2."""
    q = exp(-alpha)
    rest = 1 - exp(-5 * alpha)
    return (rest + 2 * (q * rest + exp(-4 * alpha))) ** 2 - rest**2, rest**2


def rounds_to_one(alpha, bits):
    """theta^2 - 1 < 2^-bits, cross-multiplied; 2^-bits is half the gap above 1, so the sum rounds to 1."""
    mass, scale = off_mass(alpha)
    return less, mass.expand(), (two**-bits * scale).expand()


CLAIM = Claim(
    name="A46",
    title="Which alpha makes floats one-hot",
    words="exp(-46) is about 1.05e-20, far above the smallest positive float32, 2^-149 = 1.4e-45: the remark mixes "
    "10^-45 with e^-45. At alpha = 46 the target's weight rounds to 1, but the others are not 0. An off-target weight "
    "rounds to 0 exactly from alpha > k ln 2 on, k = 25 (float16), 134 (bfloat16), 150 (float32), 1075 (float64); the "
    "table's powers of two 64, 128, 128, 1024 exceed these, with and without gradual underflow.",
    formula=r"\operatorname{fl}(e^{-\alpha}) = 0 \iff e^{-\alpha} < 2^{e_{min} - p} \iff \alpha > (p - e_{min}) \ln 2",
    conditions=(
        "round to nearest, ties to even, gradual underflow, a correctly rounded exp; the inequality is strict "
        "(equality cannot occur for a float alpha)",
        "integer offsets: an off-target score is at most -alpha, the target's is 0",
        "flush to zero: a result below the smallest normal number 2^emin becomes 0, so any alpha above is enough there "
        "too",
    ),
    source="Cordonnier et al. 2020, remark on the magnitude of alpha, corrected by this project",
    not_shown="What the exp of a library or a device really returns, which is measured and not proved. That a weight "
    "rounds to 1 is said of the exact sum; of each order of summation in SOFT.",
    licenses={
        "conv2attn.theory.bounds.auto_alpha": Domain({"format": ALL_FORMATS}),
        "conv2attn.theory.bounds.one_hot_threshold": Domain({"format": ALL_FORMATS, "flush_to_zero": FLAG}),
    },
    formal="part: that the target's weight rounds to 1, flush to zero, and the one-hot softmax of formats other "
    "than float32",
    errata=("E1",),
    steps=(
        step("exp(-46) < 1.06e-20 ...", less, exp(-46), Rational(106, 10**22)),
        step("... and exp(-46) > 1.05e-20 ...", less, Rational(105, 10**22), exp(-46)),
        step(
            "... so it is more than 10^24 times the smallest positive float32, 2^-149.",
            less,
            10**24 * two**-149,
            exp(-46),
        ),
        step("What the remark needs: exp(-103) is still more than half of it, 2^-150 ...", less, two**-150, exp(-103)),
        step("... and exp(-104) is less.", less, exp(-104), two**-150),
        step(
            "Half the smallest subnormal, 2^(emin - p), is 2^-25, 2^-134, 2^-150, 2^-1075.",
            finite,
            list(zip(HALVES.values(), (-25, -134, -150, -1075), strict=True)),
            lambda pair: pair[0] == pair[1],
            count=4,
        ),
        step(
            "The four alphas below are numbers of their formats: multiples of the spacing there.",
            finite,
            FORMATS,
            lambda name: (FIRST[name] / spacing(name, FIRST[name])).is_Integer,
            count=4,
        ),
        *(
            step(
                f"{name}: at alpha = {float(FIRST[name])} exp(-alpha) rounds to 0 ...",
                less,
                exp(-FIRST[name]),
                two ** HALVES[name],
            )
            for name in FORMATS
        ),
        *(
            step(
                f"{name}: ... and at the alpha next below it does not.",
                less,
                two ** HALVES[name],
                exp(spacing(name, FIRST[name]) - FIRST[name]),
            )
            for name in FORMATS
        ),
        *(
            step(
                f"{name}: alpha = {AUTO[name]} gives 0 with gradual underflow.",
                less,
                exp(-AUTO[name]),
                two ** HALVES[name],
            )
            for name in FORMATS
        ),
        *(
            step(
                f"{name}: alpha = {AUTO[name]} gives 0 with flush to zero.",
                less,
                exp(-AUTO[name]),
                two ** FORMATS[name][1],
            )
            for name in FORMATS
        ),
        step(
            "float64: the target rounds to 1 from 38.13 on (infinite grid, n = 2).",
            *rounds_to_one(Rational(3813, 100), 53),
        ),
        step("float32: from 18.03 on.", *rounds_to_one(Rational(1803, 100), 24)),
        step("float16: from 9.72 on.", *rounds_to_one(Rational(972, 100), 11)),
        step("At alpha = 46 it rounds to 1 in float32 and float64.", *rounds_to_one(Rational(46), 53)),
        refutation("46 is not one-hot in float32: exp(-46) < 2^-150 is false.", less, exp(-46), two**-150),
    ),
    mutants=(
        step("alpha = 46 is exactly one-hot in float32.", less, exp(-46), two**-150),
        step("alpha = 88 is exactly one-hot in float32 with gradual underflow.", less, exp(-88), two**-150),
        step("alpha = 512 is exactly one-hot in float64.", less, exp(-512), two**-1075),
        step("At alpha = 18 the off-target mass, at least 4 exp(-18), is below 2^-24.", less, 4 * exp(-18), two**-24),
        step(
            "bfloat16 needs no more than float16: exp(-17.34375) rounds to 0.", less, exp(-FIRST["float16"]), two**-134
        ),
    ),
)
