"""Arithmetic modulo primes below 2^31, kept in int32, in blocks that fit the cache; exact sums of products in float64.

An example: with p = 7, the float 0.75 = 3 / 2^2 is the residue 3 * 4^-1 = 3 * 2 = 6, and 4 * 6 = 24 = 3 modulo 7.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from flint import fmpz
from torch import Tensor

BLOCK = 1 << 15  # numbers worked on at once, in cache
WORTH = 1 << 7  # products in a sum, for which another pass over the sums costs less than another limb
EXACT = (1 << 53) - (1 << 32)  # whole numbers up to 2^53 are exact in float64; a remainder takes twice a prime more


class Undecided(Exception):
    """An operator without a sound rule, or a number that leaves the run."""


def draw_primes(count: int, bits: int) -> list[int]:
    """So many different primes of exactly so many bits, each as likely as any other, that nobody can foresee."""
    primes: list[int] = []
    # A quotient in float64 may be off by 2^-20, so that a remainder is as much as p + 2^11: it must fit in int32 too.
    many = min(1 << bits - 1, (1 << 31) - (1 << 12) - (1 << bits - 1))
    while len(primes) < count:
        number = secrets.randbelow(many) + (1 << bits - 1)
        if number not in primes and fmpz(number).is_prime():
            primes.append(number)
    return primes


def blocks(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Slices of an array that are small enough for the cache."""
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
    """Whole numbers in float64 less a multiple of p, in place: at least -p and below 2p.

    They lie within 2^53 - 2p, so that the multiple is exact; the quotient is wrong by less than 2^-20 before it is cut.
    """
    return numbers.sub_((numbers * (1 / prime)).floor_().mul_(prime))


def settle(numbers: Tensor, prime: int, out: Tensor) -> None:
    """Writes whole numbers in float64 as residues, in int32."""
    out.copy_(near_remainder(numbers, prime))
    # The remainder lies from -2^11 to p + 2^11, since the quotient is wrong by less than 2^-20.
    wrap(out, prime)
    out -= prime
    wrap(out, prime)


def wrap(numbers: Tensor, prime: int) -> None:
    """Adds p to the negative ones of whole numbers in int32, in place."""
    # The shift spreads the sign over all bits, so that no number takes a branch.
    numbers.add_((numbers >> 31).bitwise_and_(prime))


def around(numbers: Tensor, prime: int) -> Tensor:
    """Whole numbers in float64, up to 2^52 in size, less a multiple of p, in place: at most (p + 1) / 2 in size."""
    # The quotient is wrong by 1 / p at most, so that the remainder is as much as 1 beyond a half of p.
    return numbers.sub_((numbers * (1 / prime)).round_().mul_(prime))


def halved(numbers: Tensor, halvings: int, prime: int) -> None:
    """Multiplies whole numbers near p in float64 by 2^-halvings modulo p, in place, so that they are near p again."""
    if not halvings:
        return
    high, low = divmod(pow(2, -halvings, prime), 1 << 16)
    lower = near_remainder(numbers, prime) * low
    near_remainder(numbers.mul_(high), prime).mul_(2.0**16).add_(lower)


def limb(numbers: Tensor, width: int, out: Tensor) -> Tensor:
    """Writes the lowest limb of whole numbers in float64, at most 2^(width-1) in size, and returns the others."""
    # Rounded and not cut: around 0 a limb is half as large, which saves one of the 53 bits.
    others = (numbers * 2.0**-width).round_()
    torch.sub(numbers, others, alpha=2.0**width, out=out)
    return others


def centred(numbers: Tensor, prime: int) -> Tensor:
    """Residues in float64, around 0."""
    return (numbers - ((prime // 2 - numbers) >> 31 & prime)).double()


def most_terms(limbs: int, bits: int) -> int:
    """Of how many products, of a limb and a residue, a sum is exact in float64, with what the limbs above leave."""
    width = -(-bits // limbs)
    # What is cut lies around 0, below 2^(bits - 1), and so does each limb below 2^(width - 1). The sums are added to a
    # remainder below 2^(bits + 1) of the limbs above, shifted by a limb.
    carried = (1 << bits + 1 + width) * (limbs > 1)
    return EXACT - carried >> width - 1 + bits - 1


def limbs_for(terms: int, bits: int) -> tuple[int, int]:
    """Into how many limbs, and of how many bits, one factor is cut so that sums of products are exact in float64.

    Raises:
        Undecided: no cut serves so many terms.
    """
    for limbs in range(1, 9):
        if terms <= most_terms(limbs, bits):
            return limbs, -(-bits // limbs)
    raise Undecided(f"a sum of {terms} products")


def pieces(inner: int, terms: int, bits: int) -> list[slice]:
    """Slices of an axis that is summed over, `terms` products at each place, so that few limbs serve each slice."""
    # A limb is one more product of matrices, and a slice only one more sum of its results.
    most = next((most for limbs in range(1, 9) if (most := most_terms(limbs, bits)) >= max(WORTH, terms)), terms)
    count = max(1, -(-inner // (most // terms)))
    step = max(1, -(-inner // count))
    return [slice(at, at + step) for at in range(0, max(1, inner), step)]


Products = Callable[[Tensor, Tensor], Iterable[Sequence[Tensor]]]
Part = Callable[[int, slice], Tensor]
"""A factor modulo the prime at this place, around 0 and in float64: these places of its last axis."""


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
        first, second: asked for one prime at a time, so that weights are never in memory modulo all primes at once.
        terms: how many products are summed before a remainder is taken.
        op: takes the limbs of the first factor, stacked at `axis`, and the second factor; gives the products of some
            terms after those of others, one product for each limb.
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
                    # From the highest limb down (Horner), each step brought near the prime, so no step leaves the
                    # exact whole numbers.
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
