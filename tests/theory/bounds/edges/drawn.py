"""Drawn numbers: bounds are their formulas rounded the right way, and hold for what torch computes."""

import math
from fractions import Fraction

import mpmath
import pytest
import torch
from flint import arb
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mpf
from theory.bounds.edges.absolute_scores import DTYPES, LARGEST, computed_scores, corner, true_score

from conv2attn.errors import UsageError
from conv2attn.theory.bounds import (
    EXP_ULPS,
    FORMATS,
    WITHOUT_THEOREM,
    Arithmetic,
    Claimed,
    Head,
    absolute_score_error,
    accumulator_of,
    claims_of,
    down,
    exact_absolute_features,
    format_of,
    leak_reached,
    soft_reading,
    up,
    worst,
)

NAMES = st.sampled_from([*FORMATS])
SHARPNESS = st.floats(0.01, 700.0)
SHIFTS = st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=3)


@example(Fraction(0))
@example(Fraction(1, 10**400))
@example(-Fraction(10**400))
@given(st.fractions() | st.floats(allow_nan=False, allow_infinity=False).map(Fraction))
def test_numbers_are_rounded_to_the_nearest_float_on_either_side(number):
    above, below = up(number), down(number)
    assert above >= number >= below
    assert above == 0 == number or math.nextafter(above, -math.inf) < number
    assert below == 0 == number or math.nextafter(below, math.inf) > number
    assert up(-number) == -below


@example(1.0, 0)
@given(st.floats(1e-300, 1e300), st.integers(-1, 1))
def test_a_ball_is_rounded_beyond_both_of_its_ends(middle, sign):
    ball = sign * (arb(middle) + arb(0, middle / 4))
    ends = sorted([Fraction(sign * middle) * Fraction(3, 4), Fraction(sign * middle) * Fraction(5, 4)])
    assert down(ball) <= ends[0] <= ends[1] <= up(ball)


@example("float16", 2**11)
@given(st.sampled_from([*DTYPES]), st.integers(0, 2**53))
def test_whole_numbers_within_the_budget_are_exact_and_the_next_one_is_not(name, number):
    assert format_of(name) is FORMATS[name]
    with pytest.raises(UsageError, match=f"C2A002 format 'not {name}'"):
        format_of(f"not {name}")
    form = FORMATS[name]
    budget = 1 << form.precision
    assert torch.tensor(number % (budget + 1)).to(DTYPES[name]).to(torch.int64) == number % (budget + 1)
    assert torch.tensor(budget + 1).to(DTYPES[name]).to(torch.int64) != budget + 1
    assert budget == 1 / form.unit_roundoff
    assert format_of(name).name == name


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sets(st.sampled_from(["L2c", "ROW", WITHOUT_THEOREM]))), max_size=4))
def test_numbers_that_are_combined_have_the_claims_of_all(parts):
    bounds = [Claimed(value, claims) for value, claims in parts]
    assert [float(bound) for bound in bounds] == [value for value, _ in parts]
    assert claims_of(*bounds, 2.0) == set().union(*(claims for _, claims in parts))
    assert not claims_of(*(bound + 1 for bound in bounds))


@given(NAMES, st.lists(st.tuples(st.floats(0.5, 30), *[st.booleans()] * 4), min_size=1, max_size=4))
def test_the_worst_arithmetic_errs_as_much_as_each(name, drawn):
    every = [
        Arithmetic(name, ulps, flushes=a, truncates=b, stores_means=c, stores_products=d) for ulps, a, b, c, d in drawn
    ]
    found = worst(every)
    assert worst([found, *every]) == found
    assert found.exp_ulps == max(each.exp_ulps for each in every)
    for each in every:
        assert found.rounding(9).factor >= each.rounding(9).factor
        assert found.rounding(9).absolute >= each.rounding(9).absolute


@example(46.0, [0.0])
@given(SHARPNESS, SHIFTS)
def test_the_leak_of_both_neighbours_is_reached(alpha, shifts):
    """By the float below it; below that of a leak which more than a hundred bits do not tell from a float."""
    a, odds = mpf(alpha), mpf(1)
    for shift in shifts:
        odds *= 1 + mpmath.exp(-a * (1 - 2 * abs(mpf(shift)))) + mpmath.exp(-a * (1 + 2 * abs(mpf(shift))))
    exact, found = (odds - 1) / odds, leak_reached(alpha, shifts)
    assert found <= exact
    assert exact * (1 - mpf(2) ** -100) < math.nextafter(found, 1)


@example("float32", 46.5, [0.0, 0.0], 0.0)
@example("float32", 46.5, [0.25], 1e9)
@example("float32", 99.0, [0.0, 0.4765625], 99.0)
@given(NAMES, SHARPNESS, SHIFTS, st.floats(0, 100))
def test_the_sharpness_on_a_pixel_is_its_formula_rounded_down(name, alpha, shifts, distance):
    u = mpf(accumulator_of(name).unit_roundoff)
    c = (5 + len(shifts)) * u / (1 - (5 + len(shifts)) * u)
    exact = mpf(alpha) * (1 - u) * ((1 - 2 * mpf(max(map(abs, shifts)))) * (1 - c) - 2 * c * mpf(distance))
    found = Head(alpha, tuple(shifts), distance).sharpness(name)
    if not any(shifts) and not distance:
        assert found == alpha
    elif exact <= 0:
        assert found == 0
    else:
        assert found <= exact < math.nextafter(found, math.inf)


@given(NAMES, st.floats(0.01, 1e4), st.integers(1, 2**20), st.integers(1, 3))
def test_the_error_of_absolute_scores_is_its_formula_rounded_up(name, alpha, largest, axes):
    u, v = Fraction(FORMATS[name].unit_roundoff), Fraction(accumulator_of(name).unit_roundoff)
    summed = 1 + (axes + 1) * v / (1 - (axes + 1) * v)
    exact = 3 * axes * ((1 + 5 * u / (1 - 5 * u)) * summed - 1) * Fraction(alpha) * largest**2
    assert exact <= absolute_score_error(alpha, largest, axes, name) <= exact * (1 + Fraction(1, 10**13))


@st.composite
def coordinates(draw):
    """A format, and a largest coordinate about as large as the largest for which its features are exact."""
    name = draw(st.sampled_from([*FORMATS]))
    return name, draw(st.integers(1, LARGEST[name]) | st.integers(LARGEST[name] - 1, LARGEST[name] + 2))


@given(coordinates(), st.integers(-3, 3), st.sampled_from([(1, 1), (1, -1), (-1, 1)]))
def test_scores_are_exact_up_to_the_largest_coordinate_and_no_further(drawn, power, signs):
    name, largest = drawn
    alpha, centre = 2.0**power, tuple(largest * sign for sign in signs)
    assert exact_absolute_features(alpha, largest, 2, name) is (largest <= LARGEST[name])
    assert not exact_absolute_features(alpha, LARGEST[name] + 1, 2, name)
    assert not exact_absolute_features(1.5 * alpha, largest, 2, name)
    if largest <= LARGEST[name] and name in DTYPES:
        computed = computed_scores(alpha, centre, corner(largest), name).double()
        assert list(map(Fraction, computed.tolist())) == [true_score(alpha, centre, key) for key in corner(largest)]


@given(st.floats(0.05, 90.0), st.floats(-0.5, 0.5), st.integers(0, 2**16))
def test_what_a_head_reads_is_within_its_leak_and_rounding(alpha, center, seed):
    """Of its nearest key in real arithmetic, and of that as float32 computes it."""
    keys = torch.arange(9) - 4
    alpha, center = (torch.tensor(number, dtype=torch.float32) for number in (alpha, center))
    head = Head(alpha.item(), (abs(center.item()),), center.item() ** 2 * (1 + 2.0**-40))
    leak, rounding = soft_reading(head, (9,), Arithmetic("float32", EXP_ULPS["softmax"]), 0.0)
    powers = [mpmath.exp(-mpf(alpha.item()) * (int(key) - mpf(center.item())) ** 2) for key in keys]
    exact = [power / mpmath.fsum(powers) for power in powers]
    assert mpmath.fsum(exact[:4] + exact[5:]) <= leak <= 1
    tokens = torch.rand(9, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    computed = (torch.softmax(-alpha * (keys - center).square(), 0) * tokens).sum().item()
    truth = mpmath.fsum(p * x for p, x in zip(exact, tokens.tolist(), strict=True))
    assert abs(computed - truth) <= rounding.factor + rounding.absolute
