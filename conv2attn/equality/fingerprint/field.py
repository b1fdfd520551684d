"""A product of secret prime fields: its primes, the residues of inputs and constants, and its arithmetic.

A float is a dyadic rational and so an element: 0.1 in float32 is 13421773 / 2^27. Sums, differences and products of
elements are exact. What a field counts on the way (values of oracles, degrees, heights) bounds the chance that two
different formulas look the same.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.answers import Answers
from conv2attn.equality.fingerprint.origins import Origins
from conv2attn.equality.fingerprint.residues import ANY_SIGN, NOT_NEGATIVE, POSITIVE, Residues
from conv2attn.equality.fingerprint.ring import Undecided, bilinear, blocks, draw_primes, pick
from conv2attn.equality.twins.bits import sha256_of

MOST_TERMS = 1 << 30
KEPT = 1 << 27  # residues of constants that are kept: 1 GiB
WORTH_KEEPING = 1 << 12  # numbers of a constant from which its residues are


Progress = Callable[[int, int, str], None]


class Field:
    """k secret primes of so many bits, drawn after the networks are fixed; it is for one comparison.

    Args:
        progress: called before each operator with its number from 1, the number of operators, and what is done.
    """

    def __init__(self, count: int, bits: int = 31, progress: Progress | None = None):
        if not 7 <= bits <= 31:
            raise ValueError(f"primes of {bits} bits")
        self.count, self.bits, self.primes = count, bits, draw_primes(count, bits)
        self.secret, self.progress = os.urandom(32), progress
        self.inputs: dict[tuple[int, ...], Tensor] = {}
        self.salts: dict[tuple[str, int], list[int]] = {}
        self.powers: dict[torch.dtype, list[Tensor]] = {}
        self.kept: dict[tuple[str, torch.dtype], Residues] = {}
        self.kept_numbers = 0
        self.answers, self.origins = Answers(), Origins()
        self.digests: dict[tuple[Any, ...], tuple[Tensor, str]] = {}
        self.oracle_values, self.degree = 0, 0
        self.masked = False  # whether the least float was read as -inf; see `Numbers.masking`
        self.size_bits, self.halvings, self.odd_divisor = 0.0, 0.0, 1

    def tell(self, place: int, operators: int) -> None:
        """Tells which operator of one network comes next."""
        if self.progress is not None:
            primes = f"{self.count} prime{'s' * (self.count > 1)}"
            self.progress(place, operators, f"formulas modulo {primes}")

    def digest(self, numbers: Tensor) -> str:
        """A hash of the numbers of a dense tensor, computed once until `forget`."""
        key = (numbers.data_ptr(), numbers.is_neg(), tuple(numbers.size()), numbers.stride(), numbers.dtype)
        if key not in self.digests:
            self.digests[key] = numbers, sha256_of(numbers)
        return self.digests[key][1]

    def forget(self) -> None:
        """Forgets hashes: an operator may write to what was hashed."""
        self.digests.clear()

    def note(self, *operands: Residues) -> None:
        """Keeps the largest degree, size and denominator so far, on which the chance of a wrong answer depends."""
        for each in operands:
            self.degree = max(self.degree, each.degree)
            self.size_bits = max(self.size_bits, each.size_bits)
            self.halvings = max(self.halvings, each.halvings)
            self.odd_divisor = max(self.odd_divisor, each.odd_divisor)

    @property
    def height(self) -> float:
        """Bits of the largest coefficient of a difference of two numbers that were compared."""
        return self.size_bits + self.halvings + 2 * math.log2(self.odd_divisor) + 2

    def input(self, shape: Sequence[int]) -> Tensor:
        """The residues of the input with this shape, (k, *shape): the same for both networks."""
        sides = tuple(shape)
        if sides not in self.inputs:
            count = self.count * math.prod(sides)
            raw = torch.frombuffer(bytearray(os.urandom(8 * max(1, count))), dtype=torch.int64)
            # 62 bits modulo a prime below 2^31: no residue is likelier than another by more than one part in 2^31.
            words = raw[:count].reshape(self.count, *sides) & (1 << 62) - 1
            self.inputs[sides] = self.reduced(words)
        return self.inputs[sides].clone()

    def salt(self, name: str, count: int) -> list[int]:
        """So many secret words for an oracle of this name."""
        if (name, count) not in self.salts:
            raw = hashlib.shake_256(self.secret + name.encode()).digest(8 * count)
            words = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, 8 * count, 8)]
            self.salts[name, count] = words
        return self.salts[name, count]

    def encode(self, numbers: Tensor) -> Residues:
        """Real numbers as residues; those of large constants are kept for the second network.

        Raises:
            Undecided: they are complex, quantised or not dense.
        """
        numbers = numbers.detach()
        if numbers.is_complex() or numbers.is_quantized or numbers.layout != torch.strided:
            raise Undecided(f"constants of dtype {numbers.dtype}")
        if numbers.numel() < WORTH_KEEPING:
            return self.encode_anew(numbers)
        key = self.digest(numbers), numbers.dtype
        if key not in self.kept:
            found = self.encode_anew(numbers.flatten())
            self.kept_numbers += found.values.numel()
            if self.kept_numbers > KEPT:
                return found.laid(numbers.shape)
            self.kept[key] = found
        return self.kept[key].laid(numbers.shape)

    def encode_anew(self, numbers: Tensor) -> Residues:
        """Real numbers as residues."""
        if not numbers.is_floating_point():
            sign, size_bits = ANY_SIGN, 0
            if numbers.numel():
                least, most = int(numbers.min()), int(numbers.max())
                size_bits = max(abs(least), abs(most)).bit_length()
                sign = POSITIVE if least > 0 else NOT_NEGATIVE if least == 0 else ANY_SIGN
            whole = numbers.to(torch.int64)
            values = torch.stack([whole % prime for prime in self.primes])
            return Residues(values, sign=sign, degree=0, size_bits=size_bits)
        mark = None
        if not bool(numbers.isfinite().all()):
            infinite = torch.where(numbers == -math.inf, 1, 2)
            mark = torch.where(numbers.isfinite(), 0, infinite).to(torch.int8)
            numbers = torch.where(mark > 0, 0, numbers)
        # float32 holds every number of float16 and bfloat16 exactly, so one reading of bits serves them too.
        if numbers.dtype not in (torch.float32, torch.float64):
            numbers = numbers.float()
        return self.encode_dyadic(numbers, mark)

    def encode_dyadic(self, numbers: Tensor, mark: Tensor | None) -> Residues:
        """Finite floats as mantissa times a power of two: `(bits of the mantissa) * 2^(exponent - bias)`."""
        single = numbers.dtype == torch.float32
        bits, bias, whole = (23, 150, torch.int32) if single else (52, 1075, torch.int64)
        top = 1 << (31 if single else 63) - bits
        # A float is sign, exponent e and mantissa m: m 2^(e - bias) with its hidden bit. One entry for each sign and
        # exponent; subnormal numbers (e = 0) have the power of e = 1, and no hidden bit.
        if numbers.dtype not in self.powers:
            self.powers[numbers.dtype] = [
                torch.tensor([s * pow(2, max(1, e) - bias, p) % p for s in (1, -1) for e in range(top)])
                for p in self.primes
            ]
        words = numbers.contiguous().view(whole).reshape(-1)
        values = torch.empty(self.count, words.numel(), dtype=torch.int64)
        for at in blocks((words.numel(),)):
            exponent = (words[at] >> bits) & (2 * top - 1)
            mantissa = (words[at] & (1 << bits) - 1).to(torch.int64)
            mantissa += ((exponent & top - 1) > 0).to(torch.int64) << bits
            for place, prime in enumerate(self.primes):
                here = values[place][at]
                # 24 bits times a residue of 31 fit in int64; the 53 bits of float64 must be reduced before.
                factor = mantissa if single else mantissa % prime
                torch.mul(factor, self.powers[numbers.dtype][place].index_select(0, exponent), out=here)
                here.remainder_(prime)
        values = values.reshape(self.count, *numbers.shape)
        if not numbers.numel():
            return Residues(values, mark, degree=0)
        # Without their sign bit floats have the order of their bits, so two extreme words give both extreme exponents.
        sizes = words & (1 << (31 if single else 63)) - 1
        zero = sizes == 0
        most = int(sizes.max()) >> bits
        least = int(torch.where(zero, torch.iinfo(whole).max, sizes).min()) >> bits
        sign = ANY_SIGN if bool(((words < 0) & ~zero).any()) else NOT_NEGATIVE if bool(zero.any()) else POSITIVE
        size_bits = max(0, most - bias + bits + 1)
        halvings = max(0, bias - least) if bool((~zero).any()) else 0
        return Residues(values, mark, sign=sign, degree=0, size_bits=size_bits, halvings=halvings)

    def rational(self, numerator: int, denominator: int) -> Residues:
        """A fraction, as one number."""
        # Powers of two are counted apart, since all floats share them; the odd part of a denominator is lost to no
        # cancellation, so it is kept as the least common multiple.
        odd_divisor, halvings = abs(denominator), 0
        while odd_divisor % 2 == 0:
            odd_divisor, halvings = odd_divisor // 2, halvings + 1
        residues = torch.tensor([numerator * pow(denominator, -1, prime) % prime for prime in self.primes])
        sign = POSITIVE if numerator * denominator > 0 else int(numerator == 0)
        size_bits = max(0, abs(numerator).bit_length() - abs(denominator).bit_length() + 1)
        return Residues(residues, None, True, sign, 0, size_bits, halvings, odd_divisor)

    def each(self, function: Callable[..., Any], *operands: Residues) -> Tensor:
        """`function(prime, *blocks of operands, block of the result)` on every block of every prime."""
        shape = torch.broadcast_shapes(*(each.shape for each in operands))
        parts = [each.with_axes(len(shape)).values for each in operands]
        result = torch.empty(self.count, *shape, dtype=torch.int64)
        for place, prime in enumerate(self.primes):
            for at in blocks(shape):
                function(prime, *(pick(part[place], at) for part in parts), pick(result[place], at))
        return result

    def bilinear(
        self, first: Residues, second: Residues, terms: int, op: Callable[[Tensor, Tensor], Sequence[Any]], axis: int
    ) -> Tensor:
        """Sums of products; see `ring.bilinear`."""
        return bilinear(first.values, second.values, self.primes, self.bits, terms, op, axis)

    def reduced(self, sums: Tensor) -> Tensor:
        """Sums of residues, for each prime, as residues."""
        return torch.stack([each % prime for each, prime in zip(sums, self.primes, strict=True)])

    def usable(self, operand: Residues, what: str) -> None:
        """Refuses numbers that are not finite.

        Raises:
            Undecided: some are not, or may not be.
        """
        if operand.mark is not None:
            raise Undecided(f"a number that is not finite in {what}")
        if not operand.finite:
            raise Undecided(f"numbers not known to be finite in {what}")
