"""How much a floating-point sum of non-negative numbers can grow, in any order."""

from flint import arb

from conv2attn.bounds.formats import Format


def summation_growth(spread: arb, arithmetic: Format) -> arb:
    """Upper bound on computed / exact for a sum of positive floats, however many they are and however they are added.

    It is `spread^(1 / (p - 2))`. Unlike `1 + gamma_n` it does not know the number of terms, so that 50,000 negligible
    weights stay negligible. Derivation: adding a >= b is off by at most b, because a is itself a float, and by at most
    u (a + b). Charge the error to b, which grows by a factor of at most 1 + min(1, u r) <= r^(1/p), where
    r = (a + b) / b >= 2 and p >= 8. From one leaf to the root the product of these r is at most computed / smallest.
    The 2 in p - 2 pays for computed > exact, and for r being a ratio of rounded numbers.

    Args:
        spread: at least the exact sum divided by the smallest term; at least 1.
        arithmetic: the format of the additions.
    """
    return spread.root(arithmetic.precision - 2)
