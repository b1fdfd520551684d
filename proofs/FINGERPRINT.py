"""The chance that two different formulas have one fingerprint: polynomial identity testing over a product of fields."""

from itertools import product

from sympy import Rational, symbols

from .claim import Claim, refutation, step
from .core import finite, identity, sign

D, k, p, r, h, b, m, N, i, M, first, second = symbols("D k p r h b m N i M S_1 S_2", real=True)
q = symbols("q", real=True)
e, f, t = symbols("e f t", real=True)
POOLS = [((1, 0), (2, 0), (2, 1), (3, 0), (3, 1))] * 2
"""Widths and paddings of windows, each twice."""
PRIMES = (5, 7, 11)
BITS, WORD = 3, 6
DIFFERENCES = tuple(each for each in range(1 - (1 << BITS), 1 << BITS) if each)
"""Differences of two residues of so many bits, whose words have `WORD` bits."""


def zeros(prime):
    """How often x y (x + y), of degree 3, vanishes over the field of so many elements."""
    return sum((x * y * (x + y)) % prime == 0 for x, y in product(range(prime), repeat=2))


def factors_of_zero(difference):
    """How many of the 2^WORD factors take a difference of residues to zero."""
    return sum(difference * factor % (1 << WORD) == 0 for factor in range(1 << WORD))


def window(place, wide, padded, side):
    """The places within a side that a window reads, with so many in front of its first place."""
    return set(range(place - padded, place - padded + wide)) & set(range(side))


def one_window(sizes, inner=1):
    """Whether windows of windows, the inner ones at this stride, are the windows of both widths and paddings."""
    side, wide, padded, outer, around, stride = sizes
    count = (side + 2 * padded - wide) // inner + 1
    for place in range((count + 2 * around - outer) // stride + 1):
        read = window(place * stride, outer, around, count)
        union = {at for each in read for at in window(each * inner, wide, padded, side)}
        if union != window(place * stride * inner, wide + inner * (outer - 1), padded + inner * around, side):
            return False
    return True


CLAIM = Claim(
    name="FINGERPRINT",
    title="Equal fingerprints of different formulas, in part",
    words="Two networks are evaluated over the product of k fields of primes, drawn from N primes of b bits without "
    "repetition after both are fixed; other operators are oracles: independent uniform functions into the product. "
    "Let every difference that is compared be a polynomial of degree at most D with a coefficient a / d, 0 < |a| <= "
    "2^h, and no prime divide d. Two words of an oracle in the field of one prime, of 64 bits, agree for different "
    "arguments with chance at most 2^(b-64), and at most D such pairs make a difference vanish. Then a pair of "
    "different values agrees with chance at most (D / 2^(b-1) + h / ((b-1) N) + D 2^(b-64))^k, and any of M values "
    "with at most M^2 / 2 times that. Equal fingerprints make two networks one formula but "
    "for this chance; unequal ones refute nothing. Formulas are rewritten before by laws of real functions: "
    "exp(z - m) = exp(z) / exp(m), exp(log w) = w, (e t) / (f t) = e / f; a maximum over windows of maxima is one over "
    "their union. That changes no function, and the chance is that of the formulas as rewritten.",
    formula=r"P \le \tfrac{M^2}{2}\Bigl(\tfrac{D}{2^{b-1}} + \tfrac{h}{(b-1)N} + D\,2^{b-64}\Bigr)^k",
    conditions=(
        "primes are at least 2^(b-1), all different, and drawn after the pair is fixed; inputs are uniform residues",
        "oracles are independent uniform functions: that hashes are is a premise, proved for pairs of them alone",
        "no prime divides a denominator, which the evaluation sees",
    ),
    source="this project; Schwartz 1980, Zippel 1979; Maclaurin's inequality for draws without repetition",
    not_shown="That multiply-xorshift words act as independent ones but for one pair that agrees: several at once are "
    "not counted. Maclaurin's "
    "inequality for more than two primes, and that runs with real and ideal oracles agree until two different "
    "arguments of one oracle are equal, are used as such.",
    licenses={},
    formal="part: all but the first step, Schwartz-Zippel for polynomials over a finite field; that formulas are "
    "polynomials, and the premises above",
    steps=(
        step(
            "Schwartz-Zippel, by induction on the variables: the leading coefficient, of degree D - k, vanishes with "
            "chance (D - k)/q at most; otherwise k roots of q remain.",
            identity,
            (D - k) / q + k / q,
            D / q,
        ),
        step(
            "Chances of two causes add up: p + (1 - p) r <= p + r.",
            sign,
            p + r - (p + (1 - p) * r),
            ((p, r),),
            given=(p, r),
        ),
        step(
            "Bad primes: m of them divide a, each at least 2^(b-1), and 2^(m (b-1)) <= |a| <= 2^h. So m <= h / (b-1).",
            sign,
            h / (b - 1) - m,
            ((h - m * (b - 1), 1 / (b - 1)),),
            given=(h - m * (b - 1),),
            positive=(b - 1,),
        ),
        step(
            "Drawn without repetition: after i bad primes the next is bad with chance (m - i)/(N - i) <= m/N.",
            sign,
            m / N - (m - i) / (N - i),
            ((i, N - m, 1 / N, 1 / (N - i)),),
            given=(i, N - m),
            positive=(N, N - i),
        ),
        step(
            "So for any chances f of the primes, S_1 their sum, S_2 that of their squares: the mean of f f' over two "
            "different primes is at most the square of the mean (Maclaurin), as S_1^2 <= N S_2.",
            sign,
            first**2 / N**2 - (first**2 - second) / (N * (N - 1)),
            ((N * second - first**2, 1 / N, 1 / N, 1 / (N - 1)),),
            given=(N * second - first**2,),
            positive=(N, N - 1),
        ),
        step("The union over M (M - 1)/2 pairs.", sign, M**2 / 2 - M * (M - 1) / 2, ((Rational(1, 2), M),), given=(M,)),
        step(
            "x y (x + y), of degree 3, has at most 3 q zeros over the fields of 5, 7 and 11 elements.",
            finite,
            PRIMES,
            lambda prime: zeros(prime) <= 3 * prime,
            3,
        ),
        step(
            "Of 2^64 factors at most 2^(b-1) take a difference of residues, below 2^b, to 0: as many as the largest "
            "power of two that divides it (6 bits, differences below 2^3).",
            finite,
            DIFFERENCES,
            lambda difference: factors_of_zero(difference) <= 1 << (BITS - 1),
            len(DIFFERENCES),
        ),
        step(
            "A difference that vanishes where two words x and y are one has the factor x - y. Those of different pairs "
            "are coprime, so m of them divide it together, and m <= D: the chances of m pairs add up to D 2^(b-64).",
            sign,
            D * r - m * r,
            ((D - m, r),),
            given=(D - m, r),
        ),
        step(
            "A softmax of numbers less m is that of the numbers: of e = exp(z), f = exp(y) and t = 1 / exp(m).",
            identity,
            e * t / (e * t + f * t),
            e / (e + f),
        ),
        step(
            "Windows of up to 3, padded by up to half, at stride 1, then such windows at a stride of 1 or 2: the union "
            "is the window that is as wide and as padded as both, on sides of 3 to 7.",
            finite,
            tuple(product(range(3, 8), *POOLS, (1, 2))),
            lambda sizes: one_window((sizes[0], *sizes[1], *sizes[2], sizes[3])),
            5 * 5 * 5 * 2,
        ),
        refutation(
            "Fixed primes have no such chance: a difference that is their product vanishes modulo each of them.",
            finite,
            PRIMES,
            lambda prime: (5 * 7 * 11) % prime != 0,
            3,
        ),
    ),
    mutants=(
        step(
            "One factor takes a difference of residues to 0: both 0 and 2^5 do so of 6 bits where it is even.",
            finite,
            DIFFERENCES,
            lambda difference: factors_of_zero(difference) <= 1,
            len(DIFFERENCES),
        ),
        step(
            "At most D - 1 pairs: x - y is of degree 1, and one pair makes it vanish.",
            sign,
            (D - 1) * r - m * r,
            given=(D - m, r),
            witness={D: 1, m: 1, r: 1},
        ),
        step(
            "The degree counts half.",
            identity,
            (D - k) / q + k / q,
            D / (2 * q),
        ),
        step(
            "At most h / b bad primes: one of two bits, 2, divides 2.",
            sign,
            h / b - m,
            given=(h - m * (b - 1),),
            positive=(b - 1, b),
            witness={h: 1, b: 2, m: 1},
        ),
        step(
            "Drawing without repetition makes bad primes likelier.",
            sign,
            (m - i) / (N - i) - m / N,
            given=(i, N - m),
            positive=(N, N - i),
            witness={m: 1, N: 2, i: 1},
        ),
        step(
            "The same prime twice squares the chance.",
            sign,
            first**2 / N**2 - second / N,
            given=(N * second - first**2,),
            positive=(N,),
            witness={N: 2, first: 1, second: 1},
        ),
        step(
            "The union over M / 2 pairs.",
            sign,
            M / 2 - M * (M - 1) / 2,
            given=(M,),
            witness={M: 3},
        ),
        step(
            "Windows of one number at a stride of two, then of two: their union leaves out a number.",
            finite,
            (6,),
            lambda side: one_window((side, 1, 0, 2, 0, 1), inner=2),
            1,
        ),
        step("A sum in front is a factor.", identity, (e + t) / (f + t), e / f),
        step(
            "A polynomial of degree 3 has at most 2 q zeros over a field of q elements.",
            finite,
            PRIMES,
            lambda prime: zeros(prime) <= 2 * prime,
            3,
        ),
    ),
)
