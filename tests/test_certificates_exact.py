"""Sums of products are compared as real numbers: against fractions, with planted differences as small as they get."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.basis import Weights
from conv2attn.equivalence.readings.exact import Integers, Sums, dense, differing, finite, is_prime, primes_beyond

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def floats(shape, dtype, seed, spread):
    """Numbers whose exponents are spread over 2 * spread binades, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-spread, spread + 1, shape, generator=generator)
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64) * 2.0**exponents
    return (numbers * (torch.rand(shape, generator=generator) > 0.2)).to(dtype)


def by_fractions(weights, places, count):
    """The sums at each place, by definition."""
    output, value, groups = weights.output, weights.value, weights.groups
    heads, d_out, d_in = len(places), output.shape[1], value.shape[2]
    inner = output.shape[2]
    totals = [[[Fraction(0)] * d_in for _ in range(d_out)] for _ in range(count)]
    for head in range(heads):
        for o in range(d_out):
            group = o // (d_out // groups)
            for i in range(d_in):
                totals[places[head]][o][i] += sum(
                    Fraction(output[head, o, k].item()) * Fraction(value[head, group * inner + k, i].item())
                    for k in range(inner)
                )
    return totals


@given(st.data())
def test_equality_is_that_of_fractions(data):
    dtype, groups = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([1, 2]))
    spread = data.draw(st.sampled_from([0, 3, 8] if dtype == torch.float16 else [0, 5, 60]))
    seed = data.draw(st.integers(0, 10**6))
    output = floats((3, 4, 4 // groups), dtype, seed + 1, spread)
    weights = Weights(floats((3, 4, 2), dtype, seed, spread), output, None, groups)
    places = tuple(data.draw(st.lists(st.integers(0, 1), min_size=3, max_size=3)))
    exact = by_fractions(weights, places, 2)
    rounded = torch.tensor([[[float(x) for x in row] for row in place] for place in exact], dtype=torch.float64)
    wrong = differing(Sums(weights, places, 2), Sums(Weights(None, rounded, None, groups), (0, 1), 2))
    expected = [[[Fraction(float(x)) != x for x in row] for row in place] for place in exact]
    assert wrong.tolist() == expected
    assert not differing(Sums(weights, places, 2), Sums(weights, places, 2)).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_ulp_of_any_number_is_seen(dtype):
    weights = Weights(floats((2, 3, 3), dtype, 0, 4), floats((2, 3, 3), dtype, 1, 4), None, 1)
    for name in ("value", "output"):
        factor = getattr(weights, name)
        for place in [(0, 0, 0), (1, 2, 1)]:
            moved = factor.clone()
            moved[place] = torch.nextafter(moved[place], torch.full((), torch.inf, dtype=dtype))
            other = Weights(*(moved if key == name else getattr(weights, key) for key in ("value", "output")), None, 1)
            assert differing(Sums(weights, (0, 1), 2), Sums(other, (0, 1), 2)).any()


def test_a_difference_of_many_primes_is_still_a_difference():
    """1 and 1 + p for the first prime are the same modulo it, so one prime would not do."""
    primes = list(primes_beyond(100))
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    for prime in (primes[0], primes[0] * primes[1]):
        other = one + prime
        assert differing(Sums(Weights(None, one, None, 1), (0,), 1), Sums(Weights(None, other, None, 1), (0,), 1)).all()


def test_the_smallest_and_the_largest_numbers_are_held_exactly():
    numbers = torch.tensor([5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 0.0, -0.0], dtype=torch.float64)
    held = Integers.of(numbers)
    again = [Fraction(int(m)) * Fraction(2) ** int(e) for m, e in zip(held.mantissa, held.exponent, strict=True)]
    assert [x * Fraction(2) ** held.scale for x in again] == [Fraction(x) for x in numbers.tolist()]
    assert all(abs(x) <= 2**held.bits for x in again)


def test_primes_are_primes_and_enough():
    primes = list(primes_beyond(500))
    product = 1
    for prime in primes:
        assert all(prime % divisor for divisor in range(2, 1450))
        assert prime < 2**21
        product *= prime
    assert len(set(primes)) == len(primes)
    assert product > 2**500
    assert [n for n in range(3, 30, 2) if is_prime(n)] == [3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_dense_factors_are_the_same_sums():
    weights = Weights(floats((2, 4, 2), torch.float32, 3, 2), floats((2, 6, 2), torch.float32, 4, 2), None, 2)
    blocks = torch.stack([torch.block_diag(*head.unflatten(0, (2, -1))) for head in weights.taps()])
    assert torch.equal(dense(weights).taps(), blocks)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_seen(number):
    numbers = torch.ones(3, 4)
    assert finite([numbers, None, torch.empty(0)])
    numbers[1, 2] = number
    assert not finite([torch.ones(2), numbers])


@pytest.mark.slow
def test_a_layer_of_the_size_of_a_resnet_takes_seconds():
    generator = torch.Generator().manual_seed(0)
    value, output = (torch.randn(9, 256, 256, generator=generator) for _ in range(2))
    sums = Sums(Weights(value, output, None, 1), tuple(range(9)), 9)
    moved = output.clone()
    moved[4, 7, 3] = torch.nextafter(moved[4, 7, 3], torch.tensor(9.0))
    wrong = differing(sums, Sums(Weights(value, moved, None, 1), tuple(range(9)), 9))
    assert wrong.nonzero()[:, :2].unique(dim=0).tolist() == [[4, 7]]
