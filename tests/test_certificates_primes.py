"""How floats become integers, how many primes decide, and that no sum of residues is rounded on the way."""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
import torch

from conv2attn.basis import Weights
from conv2attn.equivalence.readings.exact import (
    RESIDUE_BITS,
    TERMS,
    Integers,
    Sums,
    dense,
    differing,
    finite,
    is_prime,
    primes_beyond,
    product_modulo,
)

DIGITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
LARGEST = (1 << 21) - 9  # the largest prime below 2^21


def full(dtype, *exponents):
    """Numbers of the most digits that a dtype has, scaled by powers of two."""
    digits = DIGITS[dtype]
    return torch.tensor([(2**digits - 1) * 2.0**exponent for exponent in exponents], dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DIGITS)
def test_floats_are_integers_of_as_many_bits_as_they_need(dtype):
    held = Integers.of(full(dtype, 0))
    assert (held.mantissa.tolist(), held.exponent.tolist()) == ([2 ** DIGITS[dtype] - 1], [0])
    assert (held.scale, held.bits) == (0, DIGITS[dtype])
    held = Integers.of(full(dtype, -3, 4))
    assert held.exponent.tolist() == [0, 7]
    assert (held.scale, held.bits) == (-3, DIGITS[dtype] + 7)


@pytest.mark.parametrize("place", [0, 2])
def test_zeros_change_neither_scale_nor_bits(place):
    numbers = full(torch.float32, 90, 92).tolist()
    numbers.insert(place, 0.0)
    held = Integers.of(torch.tensor(numbers))
    assert (held.scale, held.bits, held.mantissa[place].item(), held.exponent[place].item()) == (90, 26, 0, 0)
    small = [number * 2.0**-190 for number in numbers]
    held = Integers.of(torch.tensor(small, dtype=torch.float64))
    assert (held.scale, held.bits, held.exponent[place].item()) == (-129, 55, 0)
    nothing = Integers.of(torch.zeros(2, 3))
    assert (nothing.scale, nothing.bits, nothing.exponent.unique().tolist()) == (0, 24, [0])


def test_residues_are_those_of_the_integers():
    numbers = torch.tensor([3.0, -5.0, 0.0, 2.0**40, -(2.0**60) * 7], dtype=torch.float64)
    held = Integers.of(numbers)
    for prime in (3, 101, LARGEST):
        whole = [int(Fraction(number) / Fraction(2) ** held.scale) % prime for number in numbers.tolist()]
        assert held.modulo(prime).tolist() == whole


@pytest.mark.parametrize(("heads", "bits"), [(1, 24), (2, 25), (3, 26), (4, 26), (5, 27)])
def test_a_sum_has_a_bit_more_where_the_number_of_terms_doubles(heads, bits):
    factor = full(torch.float32, *[0] * heads).reshape(heads, 1, 1)
    for weights in (Weights(factor, None, None, 1), Weights(None, factor, None, 1)):
        sums = Sums(weights, (0,) * heads, 1)
        assert (sums.scale, sums.bits) == (0, bits)
        assert heads * (2**24 - 1) < 2**bits
        assert sums.modulo(LARGEST).tolist() == [[[heads * (2**24 - 1) % LARGEST]]]
    wide = Sums(Weights(None, torch.cat([factor] * 3, 2), None, 1), (0,) * heads, 1)
    assert (wide.bits, wide.modulo(LARGEST).shape) == (bits, (1, 1, 3))


def test_a_product_has_the_bits_of_both_factors_and_of_its_terms():
    value, output = full(torch.float32, 1, 1, 1, 1).reshape(2, 2, 1), full(torch.float32, *[-3] * 4).reshape(2, 1, 2)
    sums = Sums(Weights(value, output, None, 1), (0, 1), 2)
    assert (sums.scale, sums.bits) == (-2, 24 + 24 + 2)
    wider = Sums(Weights(value, torch.cat([output] * 3, 1), None, 1), (0, 1), 2)
    assert wider.bits == sums.bits
    assert wider.modulo(101).tolist() == [[[2 * (2**24 - 1) ** 2 % 101]] * 3] * 2


def test_the_sum_over_no_heads_is_zero():
    sums = Sums(Weights(None, torch.zeros(0, 2, 3), None, 1), (), 2)
    assert torch.equal(sums.modulo(7), torch.zeros(2, 2, 3, dtype=torch.int64))


@dataclass
class One:
    """One integer times 2^scale, which looks like `Sums` and remembers for which primes it was asked."""

    number: int
    scale: int = 0
    asked: list = field(default_factory=list)

    @property
    def bits(self):
        return self.number.bit_length()

    def modulo(self, prime):
        self.asked.append(prime)
        return torch.tensor([self.number % prime])


def test_as_many_primes_are_asked_as_can_hide_a_difference_and_no_more():
    first, second, third, fourth = list(primes_beyond(64))
    assert (first, len(list(primes_beyond(61))), len(list(primes_beyond(63)))) == (LARGEST, 3, 4)
    hidden = first * second * third
    above = One(hidden // 2 + 1)
    below = One(above.number - hidden)
    assert (above.bits, below.bits) == (62, 62)
    assert differing(above, below).tolist() == [True]
    assert above.asked == below.asked == [first, second, third, fourth]
    for sides in ((One(hidden + 1), One(1)), (One(1), One(hidden + 1))):
        assert differing(*sides).tolist() == [True]
    smaller = One(2**61 - 1)
    assert differing(smaller, One(2**61 - 1)).tolist() == [False]
    assert smaller.asked == [first, second, third]


@pytest.mark.parametrize("scales", [(0, 5), (5, 0), (-70, 3), (3, -70)])
def test_numbers_of_different_scales_are_the_same_numbers(scales):
    sides = [One(12345 * 2 ** (80 - scale), scale) for scale in scales]
    assert differing(*sides).tolist() == [False]
    moved = [sides[0], One(sides[1].number + 1, scales[1])]
    assert differing(*moved).tolist() == [True]


@pytest.mark.parametrize("low", [0, 10, -70])
def test_the_primes_are_enough_for_the_larger_scale(low):
    hidden = math.prod(list(primes_beyond(84))[:-1])
    above = One(hidden // 64 + 1, low + 5)
    below = One(32 * above.number - hidden, low)
    assert (above.bits + 5, below.bits, hidden.bit_length()) == (83, 83, 84)
    for sides in ((above, below), (below, above)):
        assert differing(*sides).tolist() == [True]


def test_the_primes_are_the_largest_below_the_limit_and_end_where_their_product_suffices():
    assert list(primes_beyond(0)) == [LARGEST]
    assert list(primes_beyond(20)) == [LARGEST]
    assert list(primes_beyond(21)) == [LARGEST, LARGEST - 10]
    assert all(not is_prime(odd) for odd in range(LARGEST - 8, LARGEST, 2))
    assert not is_prime(1)
    assert not is_prime(1447**2)
    assert TERMS * (1 << RESIDUE_BITS) ** 2 == 2**53


@pytest.mark.parametrize("groups", [1, 2])
def test_long_sums_of_the_largest_residues_are_exact(groups):
    """2^11 products of 42 bits fill a float64; more would be rounded."""
    generator = torch.Generator().manual_seed(0)
    inner = 2 * TERMS + 3
    output = LARGEST - 1 - torch.randint(0, 50, (1, 4, inner), generator=generator)
    value = LARGEST - 1 - torch.randint(0, 50, (1, groups * inner, 3), generator=generator)
    found = product_modulo(output, value, groups, LARGEST)
    rows = 4 // groups
    expected = [
        [
            sum(int(output[0, row, k]) * int(value[0, row // rows * inner + k, column]) for k in range(inner)) % LARGEST
            for column in range(3)
        ]
        for row in range(4)
    ]
    assert found.tolist() == [expected]


def test_dense_factors_keep_the_bias_and_what_is_an_identity():
    factor, bias = torch.randn(2, 4, 2), torch.randn(4)
    alone = dense(Weights(None, factor, bias, 2))
    assert (alone.value, alone.groups, alone.bias is bias) == (None, 1, True)
    assert alone.output.shape == (2, 4, 4)
    same = Weights(factor, None, None, 1)
    assert dense(same).value is factor


def test_empty_tensors_and_absent_ones_are_finite():
    assert finite([])
    assert finite([None, torch.empty(0, 3)])
    assert not finite([None, torch.empty(0), torch.tensor([1.0, torch.inf])])
    assert not finite([torch.tensor([-torch.inf, 1.0])])
