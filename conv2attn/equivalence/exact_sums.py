"""Sums of products of floats, compared exactly: a float is an integer times a power of two.

Two such sums are scaled to integers and compared modulo primes whose product exceeds twice the bound of both: then
equality modulo all of them *is* equality (Chinese remainder theorem), and one difference is a difference. Products of
residues below 2^21 are added 2^11 at a time, so every float64 sum is an exact integer of at most 53 bits.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from conv2attn.basis import Weights

PRECISION = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
RESIDUE_BITS = 21
TERMS = 1 << (53 - 2 * RESIDUE_BITS)


@final
@dataclass(frozen=True, eq=False)
class Integers:
    """Floats as `mantissa * 2^exponent * 2^scale`, exactly, with no negative exponent; magnitudes below 2^bits."""

    mantissa: Tensor
    exponent: Tensor
    scale: int
    bits: int

    @staticmethod
    def of(floats: Tensor) -> "Integers":
        """The finite numbers of a tensor of any float dtype, subnormals included."""
        precision = PRECISION[floats.dtype]
        fraction, exponent = torch.frexp(floats.detach().cpu().double())
        mantissa, exponent = (fraction * 2.0**precision).long(), exponent.long() - precision
        present = exponent[mantissa != 0]
        low, high = (int(present.min()), int(present.max())) if present.numel() else (0, 0)
        return Integers(mantissa, torch.where(mantissa == 0, 0, exponent - low), low, precision + high - low)

    def modulo(self, prime: int) -> Tensor:
        """Residues of `mantissa * 2^exponent`: int64 in [0, prime)."""
        powers = [1]
        for _ in range(self.bits):  # no exponent is larger
            powers.append(powers[-1] * 2 % prime)
        return self.mantissa % prime * torch.tensor(powers)[self.exponent] % prime


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """For each of `count` places, the sum of `W_val W_out` over the heads that stand there: (count, d_out, d_in / g).

    Args:
        weights: factors of the heads, finite.
        places: for each head, the place that it stands at.
    """

    weights: Weights
    places: tuple[int, ...]
    count: int

    @cached_property
    def factors(self) -> tuple[Integers | None, Integers | None]:
        """`output` and `value` as integers; None is the identity."""
        output, value = self.weights.output, self.weights.value
        return None if output is None else Integers.of(output), None if value is None else Integers.of(value)

    @property
    def scale(self) -> int:
        """The sums are integers times 2^scale."""
        return sum(factor.scale for factor in self.factors if factor is not None)

    @property
    def bits(self) -> int:
        """Each of those integers is less than 2^bits in magnitude."""
        output, value = self.factors
        added = len(self.places) * (output.mantissa.shape[2] if output and value else 1)
        return sum(factor.bits for factor in self.factors if factor is not None) + (added - 1).bit_length()

    def modulo(self, prime: int) -> Tensor:
        """Residues of the integers: int64 in [0, prime)."""
        output, value = (None if factor is None else factor.modulo(prime) for factor in self.factors)
        if output is not None and value is not None:
            products = product_modulo(output, value, self.weights.groups, prime)
        else:
            alone = output if value is None else value
            assert alone is not None
            products = alone
        sums = torch.zeros(self.count, *products.shape[1:], dtype=torch.int64)
        return sums.index_add_(0, torch.tensor(self.places, dtype=torch.int64), products) % prime


def product_modulo(output: Tensor, value: Tensor, groups: int, prime: int) -> Tensor:
    """`output value` of each head and group, modulo prime: (heads, d_out, d_in / groups)."""
    left = output.double().unflatten(1, (groups, -1))
    right = value.double().unflatten(1, (groups, -1))
    total = torch.zeros((), dtype=torch.int64)
    for start in range(0, left.shape[3], TERMS):
        stop = start + TERMS
        total = (total + (left[..., start:stop] @ right[:, :, start:stop]).long()) % prime
    return total.flatten(1, 2)


def differing(first: Sums, second: Sums) -> Tensor:
    """Where the two families of sums differ as real numbers: bool (count, d_out, d_in / groups); exact, no doubt."""
    scale = min(first.scale, second.scale)
    bits = max(side.bits + side.scale - scale for side in (first, second))
    wrong: Tensor | bool = False
    for prime in primes_beyond(bits + 1):
        ours, theirs = (side.modulo(prime) * pow(2, side.scale - scale, prime) % prime for side in (first, second))
        wrong = wrong | (ours != theirs)
    assert isinstance(wrong, Tensor)
    return wrong


def primes_beyond(bits: int) -> Iterator[int]:
    """Distinct primes below 2^21, the largest first, whose product exceeds 2^bits."""
    product, candidate = 1, (1 << RESIDUE_BITS) + 1
    while product <= 1 << bits:
        candidate -= 2
        if is_prime(candidate):
            product *= candidate
            yield candidate


def is_prime(odd: int) -> bool:
    """Whether an odd number is prime, by trial division."""
    return odd > 1 and all(odd % divisor for divisor in range(3, int(odd**0.5) + 1, 2))


def block_diagonal(weights: Weights) -> Weights:
    """The factors with their zero blocks, as those of one group."""

    def blocks(factor: Tensor | None) -> Tensor | None:
        if factor is None or weights.groups == 1:
            return factor
        return torch.stack([torch.block_diag(*head.unflatten(0, (weights.groups, -1))) for head in factor])

    return Weights(blocks(weights.value), blocks(weights.output), weights.bias, 1)


def all_finite(tensors: Sequence[Tensor | None]) -> bool:
    """Whether all numbers are: the extremes of a tensor with a NaN are NaN."""
    present = (tensor for tensor in tensors if tensor is not None and tensor.numel())
    return all(math.isfinite(extreme) for tensor in present for extreme in torch.aminmax(tensor))
