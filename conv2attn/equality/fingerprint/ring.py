"""Arithmetic modulo primes below 2^31, kept in int32, in blocks that fit the cache; exact sums of products in float64.

An example: with p = 7, the float 0.75 = 3 / 2^2 is the residue 3 * 4^-1 = 3 * 2 = 6, and 4 * 6 = 24 = 3 modulo 7.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from flint import fmpz
from torch import Tensor

BLOCK = 1 << 15  # numbers worked on at once, in cache
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


def limb(numbers: Tensor, width: int, out: Tensor) -> Tensor:
    """Writes the lowest limb of whole numbers in float64, at most 2^(width-1) in size, and returns the others."""
    # Rounded and not cut: around 0 a limb is half as large, which saves one of the 53 bits.
    others = (numbers * 2.0**-width).round_()
    torch.sub(numbers, others, alpha=2.0**width, out=out)
    return others


def centred(numbers: Tensor, prime: int) -> Tensor:
    """Residues in float64, around 0."""
    return (numbers - ((prime // 2 - numbers) >> 31 & prime)).double()


def limbs_for(terms: int, bits: int) -> tuple[int, int]:
    """Into how many limbs, and of how many bits, one factor is cut so that sums of products are exact in float64.

    The sums are added to a remainder below `2^(bits + 1)` of the limbs above, shifted by a limb.

    Raises:
        Undecided: no cut serves so many terms.
    """
    for limbs in range(1, 9):
        width = -(-(bits + 1) // limbs)
        factor = width - 1 if limbs > 1 else bits - 1
        carried = (1 << bits + 1 + width) * (limbs > 1)
        if (terms << factor + bits - 1) + carried <= EXACT:
            return limbs, width
    raise Undecided(f"a sum of {terms} products")


Products = Callable[[Tensor, Tensor], Sequence[Any]]
Factor = Callable[[int], Tensor]
"""The residues of a factor modulo the prime at this place."""


def bilinear(
    first: Factor, second: Factor, primes: Sequence[int], bits: int, terms: int, op: Products, axis: int
) -> Tensor:
    """Sums of so many products of residues, (primes, *result), exactly.

    Args:
        first, second: asked for one prime at a time, so that weights are never in memory modulo all primes at once.
        op: takes the limbs of the first factor, stacked at `axis`, and the second factor, in float64 and both centred
            around 0; gives one product for each limb.
    """
    limbs, width = limbs_for(terms, bits)
    parts = other = result = torch.empty(0)
    for place, prime in enumerate(primes):
        ours, theirs = first(place), second(place)
        shape = tuple(ours.shape)
        if not place:
            parts = torch.empty(*shape[:axis], limbs, *shape[axis:], dtype=torch.float64)
            other = torch.empty(theirs.shape, dtype=torch.float64)
        for at in blocks(other.shape):
            other[at] = centred(theirs[at], prime)
        for at in blocks(shape):
            part = centred(ours[at], prime)
            for number in range(limbs - 1):
                part = limb(part, width, parts.select(axis, number)[at])
            parts.select(axis, limbs - 1)[at] = part
        products = op(parts, other)
        if not place:
            result = torch.empty(len(primes), *products[0].shape, dtype=torch.int32)
        for at in blocks(products[0].shape):
            total = products[-1][at]
            # From the highest limb down (Horner), each step brought near the prime, so no step leaves the exact whole
            # numbers.
            for product in reversed(products[:-1]):
                total = near_remainder(total, prime).mul_(2.0**width).add_(product[at])
            settle(total, prime, result[place][at])
    return result
