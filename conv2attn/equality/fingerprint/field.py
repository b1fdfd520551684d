"""A product of secret prime fields: its primes, the residues of inputs and constants, and its arithmetic.

A float is a dyadic rational and so an element: 0.1 in float32 is 13421773 / 2^27. Sums, differences and products of
elements are exact. The field's counts (oracle values, degrees, heights) bound the probability that two different
formulas look the same.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.answers import Answers
from conv2attn.equality.fingerprint.origins import Origins
from conv2attn.equality.fingerprint.residues import ANY_SIGN, NOT_NEGATIVE, POSITIVE, Factor, Residues
from conv2attn.equality.fingerprint.ring import (
    Products,
    Undecided,
    around,
    bilinear,
    blocks,
    centred,
    draw_primes,
    pick,
)
from conv2attn.equality.fingerprint.trace import hash_of_numbers

Progress = Callable[[int, int, str], None]


class Field:
    """k secret primes of `bits` bits, drawn after the networks are fixed, for one comparison.

    Without primes, nothing is computed, but degrees and heights are counted.

    Args:
        progress: called before each operator with its number from 1, the number of operators, and the current step.
    """

    def __init__(self, count: int, bits: int = 31, progress: Progress | None = None):
        if not 7 <= bits <= 31:
            raise ValueError(f"primes of {bits} bits")
        self.count, self.bits, self.primes = count, bits, draw_primes(count, bits)
        self.secret, self.progress = os.urandom(32), progress
        self.inputs: dict[tuple[int, ...], Tensor] = {}
        self.salts: dict[tuple[str, int], list[int]] = {}
        self.powers: dict[torch.dtype, list[Tensor]] = {}
        self.answers, self.origins = Answers(), Origins()
        self.digests: dict[tuple[Any, ...], tuple[Tensor, str]] = {}
        self.oracle_values, self.degree = 0, 0
        self.masked = False  # whether the least float was read as -inf; see `Numbers.masking`
        self.size_bits, self.halvings, self.odd_divisor = 0.0, 0.0, 1

    def tell(self, place: int, operators: int) -> None:
        """Reports the next operator of a network to `progress`."""
        if self.progress is not None:
            primes = f"{self.count} prime{'s' * (self.count > 1)}"
            self.progress(place, operators, f"formulas modulo {primes}")

    def digest(self, numbers: Tensor) -> str:
        """A hash of the numbers of a dense tensor, computed once until `forget`."""
        key = (numbers.data_ptr(), numbers.is_neg(), tuple(numbers.size()), numbers.stride(), numbers.dtype)
        if key not in self.digests:
            self.digests[key] = numbers, hash_of_numbers(numbers)
        return self.digests[key][1]

    def forget_answers(self) -> None:
        """Clears the cached results; counts stay."""
        self.answers, self.origins = Answers(), Origins()
        self.inputs.clear()

    def forget(self) -> None:
        """Clears the hashes, since an operator may write to hashed tensors."""
        self.digests.clear()

    def note(self, *operands: Residues) -> None:
        """Updates the largest degree, size and denominator, on which the error probability depends."""
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
        """`count` secret words for an oracle of this name."""
        if (name, count) not in self.salts:
            raw = hashlib.shake_256(self.secret + name.encode()).digest(8 * count)
            words = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, 8 * count, 8)]
            self.salts[name, count] = words
        return self.salts[name, count]

    def encode(self, numbers: Tensor) -> Residues:
        """Real numbers as residues.

        Raises:
            Undecided: they are complex, quantised or not dense.
        """
        numbers, mark, facts = self.read(numbers)
        values = torch.empty(self.count, *numbers.shape, dtype=torch.int32)
        for place in range(self.count):
            self.reduce(numbers, place, values[place])
        return facts.but(values=values, mark=mark)

    def factor(self, numbers: Tensor) -> Factor:
        """Real numbers as a factor of products, with residues computed for one prime at a time.

        Raises:
            Undecided: they are complex, quantised or not dense, or some are not finite.
        """
        if numbers.dim() == 2 and numbers.mT.is_contiguous() and not numbers.is_contiguous():
            return self.factor(numbers.mT).turned  # in the order of memory
        numbers, mark, facts = self.read(numbers)
        self.usable(facts.but(mark=mark), "a product")
        # Most weights become integers below 2^52 after enough doublings. A remainder in float64 is then their residue
        # up to a power of two, by which the products are multiplied. Subnormal ones, of 150 halvings, are read as bits:
        # `torch.set_flush_denormal` would make them zero in arithmetic.
        single = numbers.dtype == torch.float32 and bool(numbers.numel()) and facts.halvings < 150
        whole = single and max(-numbers.min().item(), numbers.max().item()) <= 2.0 ** (52 - facts.halvings)
        halvings = int(facts.halvings) if whole else 0

        def part(place: int, columns: slice, rows: slice) -> Tensor:
            prime = self.primes[place]

            def residues(block: Tensor) -> Tensor:
                if whole:
                    return around(block.double().mul_(2.0**halvings), prime)
                block = block.contiguous()
                return centred(self.reduce(block, place, torch.empty(block.shape, dtype=torch.int32)), prime)

            return in_blocks(numbers[..., rows, columns], residues)

        return Factor(tuple(numbers.shape), facts, part, halvings)

    def as_factor(self, numbers: Residues) -> Factor:
        """Residues as a factor."""

        def part(place: int, columns: slice, rows: slice) -> Tensor:
            prime = self.primes[place]
            return in_blocks(numbers.values[place][..., rows, columns], lambda block: centred(block, prime))

        return Factor(numbers.shape, numbers, part)

    def read(self, numbers: Tensor) -> tuple[Tensor, Tensor | None, Residues]:
        """The numbers with 0 for those that are not finite, the marks of these, and the known properties.

        Raises:
            Undecided: they are complex, quantised or not dense.
        """
        numbers, mark = numbers.detach(), None
        if numbers.is_complex() or numbers.is_quantized or numbers.layout != torch.strided:
            raise Undecided(f"constants of dtype {numbers.dtype}")
        nothing = torch.empty(self.count, 0, dtype=torch.int32)
        if not numbers.numel():
            return numbers, None, Residues(nothing, degree=0)
        if not numbers.is_floating_point():
            least, most = int(numbers.min()), int(numbers.max())
            size_bits = max(abs(least), abs(most)).bit_length()
            sign = POSITIVE if least > 0 else NOT_NEGATIVE if least == 0 else ANY_SIGN
            return numbers, None, Residues(nothing, sign=sign, degree=0, size_bits=size_bits)
        if not bool(numbers.isfinite().all()):
            infinite = torch.where(numbers == -math.inf, 1, 2)
            mark = torch.where(numbers.isfinite(), 0, infinite).to(torch.int8)
            numbers = torch.where(mark > 0, 0, numbers)
        # float32 holds every number of float16 and bfloat16 exactly, so one reading of bits serves them too.
        if numbers.dtype not in (torch.float32, torch.float64):
            numbers = numbers.float()
        bits, bias, whole = dyadic(numbers.dtype)
        numbers = numbers.contiguous()
        words, largest = numbers.view(whole).reshape(-1), torch.iinfo(whole).max
        most, least, zero, negative = 0, largest, False, False
        # Without the sign bit, floats are ordered as their bits, so the two extreme words give both extreme exponents.
        for at in blocks((words.numel(),)):
            sizes = words[at] & largest
            low, most = int(sizes.min()), max(most, int(sizes.max()))
            if not low:
                zero, low = True, int(torch.where(sizes == 0, largest, sizes).min())
            least, negative = min(least, low), negative or bool(((words[at] < 0) & (sizes > 0)).any())
        sign = ANY_SIGN if negative else NOT_NEGATIVE if zero else POSITIVE
        size_bits = max(0, (most >> bits) - bias + bits + 1)
        halvings = max(0, bias - (least >> bits)) if most else 0
        return numbers, mark, Residues(nothing, sign=sign, degree=0, size_bits=size_bits, halvings=halvings)

    def reduce(self, numbers: Tensor, place: int, out: Tensor) -> Tensor:
        """Writes the read numbers modulo the prime at this index: `mantissa * 2^(exponent - bias)`."""
        prime = self.primes[place]
        if not numbers.is_floating_point() or not numbers.numel():
            return out.copy_(numbers.to(torch.int64) % prime)
        bits, bias, whole = dyadic(numbers.dtype)
        top = (torch.iinfo(whole).max >> bits) + 1
        # A float is sign, exponent e and mantissa m: m 2^(e - bias) with its hidden bit. One entry for each sign and
        # exponent; subnormal numbers (e = 0) have the power of e = 1, and no hidden bit.
        if numbers.dtype not in self.powers:
            self.powers[numbers.dtype] = [
                torch.tensor([s * pow(2, max(1, e) - bias, p) % p for s in (1, -1) for e in range(top)])
                for p in self.primes
            ]
        powers, words, residues = self.powers[numbers.dtype][place], numbers.view(whole).reshape(-1), out.view(-1)
        for at in blocks((words.numel(),)):
            exponent = (words[at] >> bits) & (2 * top - 1)
            mantissa = (words[at] & (1 << bits) - 1).to(torch.int64)
            mantissa += ((exponent & top - 1) > 0).to(torch.int64) << bits
            # 24 bits times a residue of 31 fit in int64; the 53 bits of float64 must be reduced before.
            if numbers.dtype == torch.float64:
                mantissa.remainder_(prime)
            residues[at] = mantissa.mul_(powers.index_select(0, exponent)).remainder_(prime)
        return out

    def rational(self, numerator: int, denominator: int) -> Residues:
        """A fraction, as one number."""
        # Powers of two are counted separately, since all floats share them. No cancellation removes the odd part of a
        # denominator, so it is kept as the least common multiple.
        odd_divisor, halvings = abs(denominator), 0
        while odd_divisor % 2 == 0:
            odd_divisor, halvings = odd_divisor // 2, halvings + 1
        residues = torch.tensor(
            [numerator * pow(denominator, -1, prime) % prime for prime in self.primes], dtype=torch.int32
        )
        sign = POSITIVE if numerator * denominator > 0 else int(numerator == 0)
        size_bits = max(0, abs(numerator).bit_length() - abs(denominator).bit_length() + 1)
        return Residues(residues, None, True, sign, 0, size_bits, halvings, odd_divisor)

    def each(self, function: Callable[..., Any], *operands: Residues) -> Tensor:
        """`function(prime, *blocks of operands, block of the result)` on every block of every prime."""
        shape = torch.broadcast_shapes(*(each.shape for each in operands))
        parts = [each.with_axes(len(shape)).values for each in operands]
        result = torch.empty(self.count, *shape, dtype=torch.int32)
        for place, prime in enumerate(self.primes):
            for at in blocks(shape):
                function(prime, *(pick(part[place], at) for part in parts), pick(result[place], at))
        return result

    def bilinear(
        self,
        first: Factor,
        second: Factor,
        terms: int,
        op: Products,
        axis: int,
        columns: Sequence[slice] = (slice(None),),
    ) -> Tensor:
        """Sums of products; see `ring.bilinear`."""
        if not self.primes:
            limbs = (*first.shape[:axis], 1, *first.shape[axis:])
            *_, products = op(torch.empty(limbs, device="meta"), torch.empty(second.shape, device="meta"))
            return torch.empty(0, *products[-1].shape, dtype=torch.int32)
        ours, theirs = (partial(each.part, rows=slice(None)) for each in (first, second))
        halvings = first.halvings + second.halvings
        return bilinear(ours, theirs, self.primes, self.bits, terms, op, axis, columns, halvings)

    def reduced(self, sums: Tensor) -> Tensor:
        """Sums of residues in int64, for each prime, as residues."""
        values = torch.empty(sums.shape, dtype=torch.int32)
        for part, prime, out in zip(sums, self.primes, values, strict=True):
            out.copy_(part % prime)
        return values

    def usable(self, operand: Residues, what: str) -> None:
        """Refuses numbers that may not be finite.

        Raises:
            Undecided: some are not finite, or not known to be.
        """
        if operand.mark is not None:
            raise Undecided(f"a number that is not finite in {what}")
        if not operand.finite:
            raise Undecided(f"numbers not known to be finite in {what}")


def in_blocks(numbers: Tensor, residues: Callable[[Tensor], Tensor]) -> Tensor:
    """Residues in float64, computed block by block, in the layout of the numbers."""
    out = torch.empty_like(numbers, dtype=torch.float64)
    for at in blocks(numbers.shape):
        out[at] = residues(numbers[at])
    return out


def dyadic(dtype: torch.dtype) -> tuple[int, int, torch.dtype]:
    """For a float dtype: mantissa bits, exponent bias including these, and the integer dtype of the same width."""
    return (23, 150, torch.int32) if dtype == torch.float32 else (52, 1075, torch.int64)
