"""Arithmetic modulo primes below 2^31, kept in int32, in blocks that fit the cache; exact sums of products in float64.

An example: with p = 7, the float 0.75 = 3 / 2^2 is the residue 3 * 4^-1 = 3 * 2 = 6, and 4 * 6 = 24 = 3 modulo 7.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from flint import fmpz
from torch import Tensor

BLOCK = 1 << 15  # numbers processed at once, in cache
WORTH = 1 << 7  # from this many products per sum, another pass costs less than another limb
EXACT = (1 << 53) - (1 << 32)  # integers up to 2^53 are exact in float64, minus the margin of a remainder


class Undecided(Exception):
    """Raised for an operator without a sound rule, or a number that leaves the run."""


def draw_primes(count: int, bits: int) -> list[int]:
    """`count` distinct, uniformly random, unpredictable primes of exactly `bits` bits."""
    primes: list[int] = []
    # A quotient in float64 may have an error of 2^-20, so a remainder may reach p + 2^11, which must fit in int32.
    many = min(1 << bits - 1, (1 << 31) - (1 << 12) - (1 << bits - 1))
    while len(primes) < count:
        number = secrets.randbelow(many) + (1 << bits - 1)
        if number not in primes and fmpz(number).is_prime():
            primes.append(number)
    return primes


def blocks(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Slices of an array, each small enough for the cache."""
    count = math.prod(shape)
    if count <= BLOCK or not shape:
        yield ()
        return
    inner = count // shape[0]
    if inner > BLOCK:
        for place in range(shape[0]):
            for rest in blocks(shape[1:]):
                yield (slice(place, place + 1), *rest)
    else:
        step = BLOCK // inner
        for place in range(0, shape[0], step):
            yield (slice(place, place + step),)


def pick(tensor: Tensor, at: tuple[slice, ...]) -> Tensor:
    """A block of a tensor that broadcasts: axes of one number are taken whole."""
    return tensor[tuple(slice(None) if side == 1 else along for side, along in zip(tensor.shape, at, strict=False))]


def near_remainder(numbers: Tensor, prime: int) -> Tensor:
    """Subtracts a multiple of p from integers in float64, in place: the result is at least -p and below 2p.

    The numbers are within 2^53 - 2p, so the multiple is exact; the quotient has an error below 2^-20 before truncation.
    """
    return numbers.sub_((numbers * (1 / prime)).floor_().mul_(prime))


def settle(numbers: Tensor, prime: int, out: Tensor) -> None:
    """Writes integers in float64 as residues in int32."""
    out.copy_(near_remainder(numbers, prime))
    # The remainder is from -2^11 to p + 2^11, since the quotient has an error below 2^-20.
    wrap(out, prime)
    out -= prime
    wrap(out, prime)


def wrap(numbers: Tensor, prime: int) -> None:
    """Adds p to the negative integers in an int32 tensor, in place."""
    # The arithmetic shift spreads the sign over all bits, which avoids a branch per number.
    numbers.add_((numbers >> 31).bitwise_and_(prime))


def around(numbers: Tensor, prime: int) -> Tensor:
    """Reduces integers in float64 up to 2^52 by a multiple of p, in place, to at most (p + 1) / 2 in size."""
    # The quotient has an error of at most 1 / p, so the remainder may exceed p / 2 by 1.
    return numbers.sub_((numbers * (1 / prime)).round_().mul_(prime))


def halved(numbers: Tensor, halvings: int, prime: int) -> None:
    """Multiplies integers near p in float64 by 2^-halvings modulo p, in place; the results are near p again."""
    if not halvings:
        return
    high, low = divmod(pow(2, -halvings, prime), 1 << 16)
    lower = near_remainder(numbers, prime) * low
    near_remainder(numbers.mul_(high), prime).mul_(2.0**16).add_(lower)


def limb(numbers: Tensor, width: int, out: Tensor) -> Tensor:
    """Writes the lowest limb of integers in float64, at most 2^(width-1) in size, and returns the higher limbs."""
    # Rounded, not truncated: centred at 0 a limb is half as large, which saves one of the 53 bits.
    others = (numbers * 2.0**-width).round_()
    torch.sub(numbers, others, alpha=2.0**width, out=out)
    return others


def centred(numbers: Tensor, prime: int) -> Tensor:
    """Residues in float64, centred at 0."""
    return (numbers - ((prime // 2 - numbers) >> 31 & prime)).double()


def most_terms(limbs: int, bits: int) -> int:
    """How many products of a limb and a residue have an exact sum in float64, beside the remainder of higher limbs."""
    width = -(-bits // limbs)
    # The factor that is cut is centred at 0, below 2^(bits - 1) in size, and so is each limb, below 2^(width - 1). The
    # sums are added to a remainder below 2^(bits + 1) of the higher limbs, shifted by a limb.
    carried = (1 << bits + 1 + width) * (limbs > 1)
    return EXACT - carried >> width - 1 + bits - 1


def limbs_for(terms: int, bits: int) -> tuple[int, int]:
    """The number of limbs, and their bits, into which a factor is cut so that sums of products are exact in float64.

    Raises:
        Undecided: no cut is exact for this many terms.
    """
    for limbs in range(1, 9):
        if terms <= most_terms(limbs, bits):
            return limbs, -(-bits // limbs)
    raise Undecided(f"a sum of {terms} products")


def pieces(inner: int, terms: int, bits: int) -> list[slice]:
    """Slices of a summed axis, with `terms` products per index, such that few limbs suffice for each slice."""
    # Each limb costs another product of matrices, while each slice costs only another sum.
    most = next((most for limbs in range(1, 9) if (most := most_terms(limbs, bits)) >= max(WORTH, terms)), terms)
    count = max(1, -(-inner // (most // terms)))
    step = max(1, -(-inner // count))
    return [slice(at, at + step) for at in range(0, max(1, inner), step)]


Products = Callable[[Tensor, Tensor], Iterable[Sequence[Tensor]]]
Part = Callable[[int, slice], Tensor]
"""A factor modulo the prime at this index, centred at 0, in float64, for some indices of its last axis."""


def bilinear(
    first: Part,
    second: Part,
    primes: Sequence[int],
    bits: int,
    terms: int,
    op: Products,
    axis: int,
    columns: Sequence[slice] = (slice(None),),
    halvings: int = 0,
) -> Tensor:
    """Sums of products of residues over `2^halvings`, (primes, *result), exactly.

    Args:
        first, second: called for one prime at a time, so that weights are never in memory modulo all primes at once.
        terms: number of products summed before a remainder is taken.
        op: takes the limbs of the first factor, stacked at `axis`, and the second factor; yields products, one per
            limb, for some of the terms at a time.
        columns: slices of the last axis of the second factor and of the result, which are computed one by one.
    """
    limbs, width = limbs_for(terms, bits)
    result: Tensor | None = None
    for place, prime in enumerate(primes):
        whole = first(place, slice(None))
        shape = tuple(whole.shape)
        parts = torch.empty(*shape[:axis], limbs, *shape[axis:], dtype=torch.float64)
        for at in blocks(shape):
            part = whole[at]
            for number in range(limbs - 1):
                part = limb(part, width, parts.select(axis, number)[at])
            parts.select(axis, limbs - 1)[at] = part
        for column in columns:
            sums = None
            for products in op(parts, second(place, column)):
                for at in blocks(products[-1].shape):
                    total = products[-1][at]
                    # From the highest limb down (Horner). Each step is reduced, so no step leaves the exact integers.
                    for product in reversed(products[:-1]):
                        total = near_remainder(total, prime).mul_(2.0**width).add_(product[at])
                    near_remainder(total, prime)
                    if sums is not None:
                        total.add_(sums[at])
                sums = products[-1]
            assert sums is not None
            if result is None:
                last = columns[-1].stop or sums.shape[-1]
                result = torch.empty(len(primes), *sums.shape[:-1], last, dtype=torch.int32)
            out = result[place][..., column]
            for at in blocks(sums.shape):
                halved(sums[at], halvings, prime)
                settle(sums[at], prime, out[at])
    assert result is not None
    return result
