"""The probability that two different formulas look the same, and the number of primes that keeps it small.

For M values of oracles and outputs, degree D and height h between two levels of oracles, and N primes to draw from, the
probability is at most `M^2 / 2 (D / 2^(b-1) + h / ((b-1) N) + D 2^(b-64))^k` over the draw of k primes of b bits and of
the oracles.
"""

import math

from conv2attn.equality.fingerprint.field import Field

WANTED = -40.0
"""log2 of the largest accepted probability: one in a million million."""
FEWEST, MOST = 3, 8
PREMISE = "hashes of different arguments are taken as independent, which is proved for pairs of them alone"


def log2_chance(field: Field, primes: int, bits: int | None = None) -> float:
    """log2 of the bound for the field's primes, of `bits` bits or the field's own, rounded up to a tenth.

    Source: Schwartz 1980 and Zippel 1979 for the degree; at most `h / (b - 1)` primes divide a number of h bits; claim
    FINGERPRINT of proofs/.
    """
    bits = field.bits if bits is None else bits
    pool = (1 << bits - 1) / (bits * math.log(2)) * 0.95  # lower bound on the number of primes
    # A degree may exceed every float. From 2^900 on the bound exceeds one anyway, and more primes are refused.
    degree = float(min(field.degree, 1 << 900))
    # A difference of degree D vanishes for at most D pairs of words of one prime that coincide.
    one = degree * (2.0 ** (1 - bits) + 2.0 ** (bits - 64)) + field.height / (bits - 1) / pool
    return math.ceil(10 * (2 * math.log2(max(2, field.oracle_values)) - 1 + primes * math.log2(one))) / 10


def primes_needed(field: Field, bits: int | None = None) -> int | None:
    """The least number of primes with a small enough probability; None if more than `MOST` would be needed.

    Args:
        field: a field after a counting run. Its counts do not depend on its primes or their number. Without any prime,
            the laws of `origins` do not apply, and a softmax written by hand has fewer values; so the probability is
            computed again after the run with primes.
        bits: of each prime; by default those of the field's primes.
    """
    counts = range(FEWEST, MOST + 1)
    return next((count for count in counts if log2_chance(field, count, bits) <= WANTED), None)
