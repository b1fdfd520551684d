"""Formulas over a field: exact sums and products, and every other function as a random oracle.

An oracle of the name "exp" gives equal numbers for equal arguments, and unpredictable ones otherwise: it hashes all
residues of all operands together, so two different arguments look equal only if they agree modulo every prime.

A maximum does not depend on the order of its numbers, so its oracle must not either: `max(a, b)` is the hash of the sum
of two hashes, those of "max of" and a, and of "max of" and b. So `max(b, a)` is the same number, and `max(a, c)`
another.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.residues import (
    ANY_SIGN,
    MINUS_INFINITY,
    NOT_NEGATIVE,
    POSITIVE,
    UNUSABLE,
    Factor,
    Residues,
    bits_of_sum,
    knowledge,
    unusable,
)
from conv2attn.equality.fingerprint.ring import Undecided, blocks, pick, pieces, wrap

MOST_COMPARED = 1 << 24
MOST_AT_ONCE = 1 << 22
"""Most numbers of a factor that are in memory in float64."""


def add(field: Field, a: Residues, b: Residues) -> Residues:
    """`a + b`; -inf plus a number stays -inf."""
    if not (a.finite and b.finite):
        return oracle(field, "add", a, b)

    def block(prime: int, x: Tensor, y: Tensor, out: Tensor) -> None:
        # A sum of two residues needs no division, and the sum minus p fits in int32.
        torch.add(x, y - prime, out=out)
        wrap(out, prime)

    values, mark, facts = field.each(block, a, b), None, knowledge(a, b)
    if a.mark is not None or b.mark is not None:
        # UNUSABLE is larger than MINUS_INFINITY, so the larger mark is the safe one.
        marks = [each.mark.expand(values.shape[1:]) for each in (a, b) if each.mark is not None]
        mark = torch.stack(marks).amax(0)
        values = torch.where(mark > 0, 0, values)
    # Two non-negative numbers may both be zero: a sum is positive only if one of them is.
    sign = POSITIVE if a.sign and b.sign and POSITIVE in (a.sign, b.sign) else min(a.sign, b.sign)
    return Residues(values, mark, **{**facts, "sign": sign, "size_bits": facts["size_bits"] + 1})


def product_facts(a: Residues, b: Residues, terms: int = 1) -> dict[str, Any]:
    """Degree and height of sums of `terms` products."""
    return {
        "degree": a.degree + b.degree,
        "size_bits": a.size_bits + b.size_bits + bits_of_sum(terms),
        "halvings": a.halvings + b.halvings,
        "odd_divisor": a.odd_divisor * b.odd_divisor,
    }


def mul(field: Field, a: Residues, b: Residues, square: bool = False) -> Residues:
    """`a b`; a square if both are one number."""
    if not (a.finite and b.finite):
        return oracle(field, "mul", a, b)

    def block(prime: int, x: Tensor, y: Tensor, out: Tensor) -> None:
        out.copy_((x.long() * y).remainder_(prime))

    values = field.each(block, a, b)
    sign = NOT_NEGATIVE if square and not a.sign else min(a.sign, b.sign)
    return Residues(values, unusable(values.shape[1:], a, b), True, sign, **product_facts(a, b))


def neg(field: Field, a: Residues) -> Residues:
    """`-a`."""
    if not a.finite:
        return oracle(field, "neg", a)
    # p - 0 is p, which is not a residue: the factor makes it 0 again.
    values = field.each(lambda prime, x, out: torch.sub(prime, x, out=out).mul_(x != 0), a)
    return a.but(values=values, mark=unusable(a.shape, a), sign=ANY_SIGN)


def sub(field: Field, a: Residues, b: Residues) -> Residues:
    """`a - b`; its origin is noted if one number of b is subtracted from several of a."""
    apart = add(field, a, neg(field, b))
    return apart if a.shape == b.shape else field.origins.note(apart, "difference", a, b)


def times(field: Field, a: Residues, numerator: int, denominator: int = 1) -> Residues:
    """`a numerator / denominator`."""
    return a if numerator == denominator else mul(field, a, field.rational(numerator, denominator))


def total(field: Field, a: Residues, axes: Sequence[int], keep: bool = False) -> Residues:
    """The sum over some axes."""
    field.usable(a, "a sum")
    along = [axis % len(a.shape) - len(a.shape) for axis in axes] if a.shape else []
    if not along:
        return a
    terms = math.prod(a.shape[axis] for axis in along)
    size_bits = a.size_bits + bits_of_sum(terms)
    values = field.reduced(a.values.sum(along, keep))
    summed = a.but(values=values, size_bits=size_bits, sign=a.sign if terms else ANY_SIGN)
    if scaled := field.origins.of("scaled", a):
        numbers, share = (each.with_axes(len(a.shape)) for each in scaled)
        if all(share.shape[axis] == 1 for axis in along):  # one factor for all summands
            share = share.but(values=share.values.amax(along, keep))
            field.origins.note(summed, "scaled", total(field, numbers, axes, keep), share)
    return summed


def mean(field: Field, a: Residues, axes: Sequence[int], keep: bool = False) -> Residues:
    """The mean over some axes."""
    count = math.prod(a.shape[axis] for axis in axes)
    if not count:
        raise Undecided("an empty mean")
    return times(field, total(field, a, axes, keep), 1, count)


def matmul(
    field: Field, a: Factor, b: Factor, cached: Callable[[Callable[[], Tensor]], Tensor] = lambda anew: anew()
) -> Residues:
    """The product of matrices, (..., n, k) and (..., k, m).

    Args:
        held: called with the function that computes the residues; returns cached residues or calls it.
    """
    field.usable(a.known, "a product of matrices")
    field.usable(b.known, "a product of matrices")
    values = cached(lambda: summed_products(field, a, b))
    sign = min(NOT_NEGATIVE, a.known.sign, b.known.sign)
    return Residues(values, None, True, sign, **product_facts(a.known, b.known, a.shape[-1]))


def summed_products(field: Field, a: Factor, b: Factor) -> Tensor:
    """The residues of the product of matrices."""
    terms = a.shape[-1]
    sums = pieces(terms, 1, field.bits)

    def op(parts: Tensor, other: Tensor) -> Iterable[Sequence[Tensor]]:
        limbs, stacked = parts.shape[-3], parts.flatten(-3, -2)
        return ((stacked[..., at] @ other[..., at, :]).chunk(limbs, -2) for at in sums)

    # Only one factor is cut into limbs, the smaller one, since every limb is another product of matrices. The larger
    # one is in memory in parts: the first layer after the last map of a VGG has 100 million weights.
    turned = math.prod(a.shape) > math.prod(b.shape)
    ours, theirs = (b.turned, a.turned) if turned else (a, b)
    last = theirs.shape[-1]
    step = max(1, MOST_AT_ONCE * last // max(1, math.prod(theirs.shape)))
    columns = [slice(at, min(at + step, last)) for at in range(0, max(1, last), step)]
    values = field.bilinear(ours, theirs, sums[0].stop, op, len(ours.shape) - 2, columns)
    return values.mT if turned else values


def keyed_hashes(field: Field, name: str, *operands: Residues, reduced: bool = False) -> Tensor:
    """One hash per prime of all residues of all operands, with independent keys, (k, *shape).

    Args:
        reduced: 63 bits of each hash as a residue, almost uniformly, in int32; otherwise all 64 bits.
    """
    shape = torch.broadcast_shapes(*(each.shape for each in operands))
    operands = tuple(each.with_axes(len(shape)) for each in operands)
    result = torch.empty(field.count, *shape, dtype=torch.int32 if reduced else torch.int64)
    field.oracle_values += math.prod(shape)
    field.note(*operands)
    # A multilinear hash modulo 2^64 (Carter and Wegman 1979): arguments that differ in any residue modulo any prime
    # agree only by chance. The shifts and odd factors after it are bijections: they lose nothing, and mix high bits
    # into the low ones, where products of even differences have few.
    many = 3 + field.count * len(operands)
    salts = [field.salt(f"{name} lane {lane}", many) for lane in range(field.count)]
    for at in blocks(shape):
        words = [pick(word, at).long() for each in operands for word in each.values]
        for lane, (prime, salt) in enumerate(zip(field.primes, salts, strict=True)):
            out = pick(result[lane], at)
            h = torch.full(out.shape, salt[0])
            for word, factor in zip(words, salt[3:], strict=True):
                h.add_(word, alpha=factor)
            h ^= (h >> 32) & 0xFFFFFFFF
            h *= salt[1] | 1
            h ^= (h >> 29) & 0x7FFFFFFFF
            h *= salt[2] | 1
            h ^= (h >> 32) & 0xFFFFFFFF
            if reduced:
                # floor(h p / 2^63), in two halves since 63 + 31 bits do not fit. It needs no division, and no residue
                # has more than one hash above its share (Lemire 2019).
                h &= 0x7FFFFFFFFFFFFFFF
                low = ((h & 0xFFFFFFFF) * prime) >> 32
                h = (h >> 32).mul_(prime).add_(low) >> 31
            out.copy_(h)
    return result


def oracle(field: Field, name: str, *operands: Residues, finite: bool = False, sign: int = ANY_SIGN) -> Residues:
    """An unknown function of this name, with known sign and finiteness."""
    values = keyed_hashes(field, name, *operands, reduced=True)
    mark, sound = unusable(values.shape[1:], *operands), all(each.finite for each in operands)
    kept = values if mark is None else torch.where(mark > 0, 0, values)
    return Residues(kept, mark, finite and sound, sign if sound else ANY_SIGN)


def symmetric_oracle(field: Field, name: str, a: Residues, b: Residues) -> Residues:
    """An oracle of two numbers, independent of their order."""
    axes = max(len(a.shape), len(b.shape))
    both = keyed_hashes(field, f"{name} of", a.with_axes(axes)) + keyed_hashes(field, f"{name} of", b.with_axes(axes))
    hashes = Residues(both, unusable(both.shape[1:], a, b), a.finite and b.finite)
    return oracle(field, name, hashes, finite=True)


def unordered(field: Field, name: str, a: Residues, axes: Sequence[int], keep: bool = False) -> Residues:
    """An oracle of all numbers along some axes, independent of their order."""
    hashes = hashes_of_all(field, name, a, axes, keep)
    return oracle(field, name, hashes, finite=a.finite, sign=a.sign)


def hashes_of_all(field: Field, name: str, a: Residues, axes: Sequence[int], keep: bool) -> Residues:
    """One hash of all numbers along some axes, independent of their order.

    Raises:
        Undecided: some are not finite, or there are too many.
    """
    if a.mark is not None:
        raise Undecided(f"a number that is not finite in {name}")
    along = [axis % len(a.shape) - len(a.shape) for axis in axes]
    if math.prod(a.shape[axis] for axis in along) > MOST_COMPARED:
        raise Undecided(f"{name} of too many numbers")
    hashes = keyed_hashes(field, f"{name} of", a)
    return Residues(hashes.sum(along, keep) if along else hashes)


def logarithm(field: Field, operand: Residues, finite: bool) -> Residues:
    """`log`."""
    return field.origins.note(oracle(field, "log", operand, finite=finite), "log", operand)


def exponential(field: Field, operand: Residues) -> Residues:
    """`exp`, with exp(log w) = w and exp(a - b) = exp(a) / exp(b)."""
    # exp(log w) = w only for positive w: for others the logarithm is NaN in the network, and stays an oracle here.
    if (power := field.origins.of("log", operand)) and power[0].sign == POSITIVE:
        return power[0]
    difference = field.origins.of("difference", operand)
    if difference is None:
        return oracle(field, "exp", operand, finite=True, sign=POSITIVE)
    numbers, share = exponential(field, difference[0]), inverse(field, exponential(field, difference[1]))
    return field.origins.note(mul(field, numbers, share), "scaled", numbers, share)


def quotient(field: Field, a: Residues, b: Residues, constant: Tensor | None = None) -> Residues:
    """`a / b`, with a common factor cancelled; see `inverse` for a constant b."""
    ours, theirs = (field.origins.of("scaled", each) for each in (a, b))
    if ours and theirs and torch.equal(ours[1].values, theirs[1].values):
        a, b = ours[0], theirs[0]
    return mul(field, a, inverse(field, b, constant))


def inverse(field: Field, operand: Residues, constant: Tensor | None = None) -> Residues:
    """`1 / operand`: exact for one constant, otherwise an oracle if the operand is known to be positive.

    Raises:
        Undecided: there may be a pole.
    """
    if constant is not None:
        if constant.is_complex() or not bool((constant != 0).all()) or not bool(constant.isfinite().all()):
            raise Undecided("division by zero or by a number that is not finite")
        if constant.numel() == 1 or bool((constant == constant.flatten()[0]).all()):
            numerator, denominator = constant.flatten()[0].double().item().as_integer_ratio()
            return field.rational(denominator, numerator)
        return oracle(field, "inverse", operand, finite=True, sign=operand.sign)
    if operand.sign < POSITIVE:
        raise Undecided("division by numbers not known to be positive")
    return oracle(field, "inverse", operand, finite=True, sign=POSITIVE)


def root(field: Field, operand: Residues) -> Residues:
    """The square root."""
    return oracle(field, "sqrt", operand, finite=operand.sign > ANY_SIGN, sign=operand.sign)


def inverse_root(field: Field, operand: Residues) -> Residues:
    """One over the square root.

    Raises:
        Undecided: there may be a pole.
    """
    if operand.sign < POSITIVE:
        raise Undecided("1 / sqrt of numbers not known to be positive")
    return inverse(field, root(field, operand))


def exponentials(field: Field, operand: Residues, axes: Sequence[int], keep: bool) -> tuple[Residues, Residues]:
    """`exp` and its sum over some axes; -inf weighs nothing.

    Raises:
        Undecided: numbers are not finite, or all summands are -inf.
    """
    if not operand.finite or (operand.mark is not None and bool((operand.mark == UNUSABLE).any())):
        raise Undecided("exponentials of numbers not known to be finite")
    weights = exponential(field, operand.but(mark=None) if operand.mark is not None else operand)
    if operand.mark is not None:
        if bool((operand.mark == MINUS_INFINITY).all(tuple(axes)).any()):
            raise Undecided("exponentials of a row of -inf")
        # exp(-inf) is 0 exactly, and a row has a number above -inf, so the sum stays positive and may divide.
        weights = weights.but(values=weights.values * (operand.mark == 0), sign=NOT_NEGATIVE)
    return weights, total(field, weights, axes, keep).but(sign=POSITIVE)


def softmax(field: Field, operand: Residues, axis: int) -> Residues:
    """`exp / sum exp` along an axis; -inf weighs nothing.

    Raises:
        Undecided: numbers are not finite, or a whole row is -inf.
    """
    if not operand.shape:
        field.usable(operand, "softmax")
        return Residues(torch.ones(field.count, dtype=torch.int32), degree=0)
    if difference := field.origins.of("difference", operand):
        whole, taken = difference[0], difference[1].with_axes(len(operand.shape))
        if whole.shape == operand.shape and taken.shape[axis] == 1:
            operand = whole  # a constant subtracted from a whole row cancels in the softmax
    weights, weight = exponentials(field, operand, [axis], True)
    share = inverse(field, weight)
    return field.origins.note(mul(field, weights, share), "scaled", weights, share)
