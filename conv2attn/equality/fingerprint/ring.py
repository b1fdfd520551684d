"""Arithmetic modulo primes below 2^31 in int64, in blocks that fit the cache; exact sums of products in float64.

An example: with p = 7, the float 0.75 = 3 / 2^2 is the residue 3 * 4^-1 = 3 * 2 = 6, and 4 * 6 = 24 = 3 modulo 7.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

BLOCK = 1 << 15  # numbers worked on at once, in cache
EXACT = 52  # bits of a float64 in which sums of products stay exact


class Undecided(Exception):
    """An operator without a sound rule, or a number that leaves the run."""


def is_prime(number: int) -> bool:
    """Whether a number below 3.3e24 is prime: Miller and Rabin with the bases that decide there."""
    small = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    if number < 43:
        return number in small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in small:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def draw_primes(count: int, bits: int) -> list[int]:
    """So many different primes of exactly so many bits, each as likely as any other, that nobody can foresee."""
    primes: list[int] = []
    while len(primes) < count:
        number = secrets.randbelow(1 << bits - 1) + (1 << bits - 1)
        if number not in primes and is_prime(number):
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


def reduce_product(numbers: Tensor, prime: int) -> None:
    """Numbers modulo p in place, for 0 <= x < 2^62: the quotient is never too large, and too small by at most one."""
    numbers -= numbers.double().mul_((1 - 2.0**-50) / prime).to(torch.int64).mul_(prime)
    numbers -= prime
    numbers += (numbers >> 63) & prime


def remainder(numbers: Tensor, prime: int) -> Tensor:
    """Whole numbers in float64, below 2^53 in size, modulo p."""
    numbers = numbers - torch.floor(numbers * (1 / prime)).mul_(prime)
    numbers += (numbers < 0).double().mul_(prime)  # a mask times a Python number would be a float32, of 24 bits
    numbers -= (numbers >= prime).double().mul_(prime)
    return numbers


def limbs_for(terms: int, bits: int) -> tuple[int, int]:
    """Into how many limbs, and of how many bits, one factor is cut so that sums of products are exact in float64.

    Raises:
        Undecided: no cut serves so many terms.
    """
    for limbs in range(1, 9):
        width = -(-(bits + 1) // limbs)
        factor = width - 1 if limbs > 1 else bits - 1
        if math.log2(max(1, terms)) + factor + bits - 1 <= EXACT:
            return limbs, width
    raise Undecided(f"a sum of {terms} products")


Products = Callable[[Tensor, Tensor], Sequence[Any]]


def bilinear(
    first: Tensor, second: Tensor, primes: Sequence[int], bits: int, terms: int, op: Products, axis: int
) -> Tensor:
    """Sums of so many products of residues, (primes, *result), exactly.

    Args:
        op: takes the limbs of the first factor, stacked at `axis`, and the second factor, in float64 and both centred
            around 0; gives one product for each limb.
    """
    limbs, width = limbs_for(terms, bits)
    half, mask = 1 << width - 1, (1 << width) - 1
    shape = tuple(first.shape[1:])
    parts = torch.empty(*shape[:axis], limbs, *shape[axis:], dtype=torch.float64)
    other, result = torch.empty(second.shape[1:], dtype=torch.float64), torch.empty(0)
    for place, prime in enumerate(primes):
        for at in blocks(other.shape):
            part = second[place][at]
            other[at] = (part - (part > prime // 2) * prime).double()
        for at in blocks(shape):
            part = first[place][at]
            part = part - (part > prime // 2) * prime
            for limb in range(limbs - 1):
                low = ((part + half) & mask) - half
                parts.select(axis, limb)[at] = low.double()
                part = (part - low) >> width
            parts.select(axis, limbs - 1)[at] = part.double()
        products = op(parts, other)
        if not place:
            result = torch.empty(len(primes), *products[0].shape, dtype=torch.int64)
        for at in blocks(products[0].shape):
            total = remainder(products[-1][at], prime)
            for product in reversed(products[:-1]):
                total = remainder(total.mul_(2.0**width).add_(remainder(product[at], prime)), prime)
            result[place][at] = total.to(torch.int64)
    return result
