"""Heads between pixels: as sharp as derived, on scores that are really computed, and leaking as much as derived."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import pytest
import torch

from conv2attn.bounds import FORMATS, leak_reached, sharpness_on_a_pixel
from conv2attn.bounds.formats import accumulator_of
from conv2attn.errors import AlphaError, UsageError

mpf = mpmath.mpf
SHIFTS = [(0.25,), (-0.125, 0.375), (0.4375, 0.0, -0.25)]


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workdps(800):
        yield


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shifts", SHIFTS, ids=str)
@pytest.mark.parametrize("distance", [0.5, 100.0])
def test_the_sharpness_is_its_formula_rounded_down(name, shifts, distance):
    u = mpf(accumulator_of(name).unit_roundoff)
    c = (5 + len(shifts)) * u / (1 - (5 + len(shifts)) * u)
    exact = 46.5 * (1 - u) * ((1 - 2 * mpf(max(map(abs, shifts)))) * (1 - c) - 2 * c * mpf(distance))
    found = sharpness_on_a_pixel(46.5, shifts, distance, name)
    assert found <= exact < math.nextafter(found, math.inf)


def test_where_a_head_is_as_sharp_as_it_says_and_where_it_is_not_sharp_at_all():
    assert sharpness_on_a_pixel(46.5, (0.0, 0.0), 0.0, "float32") == 46.5
    assert sharpness_on_a_pixel(46.5, (0.0, 0.0), 1.0, "float32") < 46.5
    assert sharpness_on_a_pixel(46.5, (0.25, 0.0), 0.0, "float32") < 46.5
    assert sharpness_on_a_pixel(46.5, (0.5,), 0.25, "float32") == 0.0
    assert sharpness_on_a_pixel(46.5, (0.25,), 1e9, "float32") == 0.0


@pytest.mark.parametrize("centre", [(2.25, 1.0), (1.875, 2.375), (-3.0, 6.5), (9.0, -4.25)])
def test_computed_scores_fall_off_as_said(centre):
    """Every rival n pixels from the nearest key scores lower by alpha' |n|^2 or more, as float32 computes it."""
    alpha, sides = 19.3, (5, 4)
    nearest = tuple(min(max(round(c), 0), side - 1) for c, side in zip(centre, sides, strict=True))
    shifts = [c - round(c) for c in centre]
    distance = sum((c - n) ** 2 for c, n in zip(centre, nearest, strict=True))
    sharpness = Fraction(sharpness_on_a_pixel(alpha, shifts, distance, "float32"))

    def score(key):
        away = torch.tensor(key, dtype=torch.float32) - torch.tensor(centre, dtype=torch.float32)
        return Fraction((-torch.tensor(alpha, dtype=torch.float32) * away.square().sum()).item())

    for key in product(*map(range, sides)):
        far = sum((k - n) ** 2 for k, n in zip(key, nearest, strict=True))
        assert score(nearest) - score(key) >= sharpness * far


@pytest.mark.parametrize("alpha", [0.5, 3.0, 46.0, 700.0])
@pytest.mark.parametrize("shifts", [(0.0, 0.0), *SHIFTS], ids=str)
def test_the_leak_of_both_neighbours_is_reached(alpha, shifts):
    a, odds = mpf(alpha), mpf(1)
    for shift in shifts:
        odds *= 1 + mpmath.exp(-a * (1 - 2 * abs(mpf(shift)))) + mpmath.exp(-a * (1 + 2 * abs(mpf(shift))))
    exact, found = (odds - 1) / odds, leak_reached(alpha, shifts)
    assert found <= exact < math.nextafter(found, 1)


def test_heads_that_are_none():
    for shifts, distance in (((0.75,), 1.0), ((0.0, -0.625), 1.0), ((0.25,), -1.0), ((math.nan,), 1.0)):
        with pytest.raises(UsageError, match=r"C2A007 shifts .* are not those of a head"):
            sharpness_on_a_pixel(46.0, shifts, distance, "float32")
    for alpha in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(AlphaError, match="C2A130 alpha="):
            sharpness_on_a_pixel(alpha, (0.0,), 0.0, "float32")
        with pytest.raises(AlphaError, match="C2A130 alpha="):
            leak_reached(alpha, (0.0,))


@pytest.mark.parametrize(("name", "exponent"), [("float32", 128), ("float16", 128), ("float64", 1024)])
def test_a_score_that_may_be_infinite_leaves_no_sharpness(name, exponent):
    assert sharpness_on_a_pixel(2.0 ** (exponent - 6), [0.0, 0.0], 16.0, name) > 2.0 ** (exponent - 7)
    assert sharpness_on_a_pixel(2.0 ** (exponent - 4), [0.0, 0.0], 8.0, name) == 0.0


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_twice_the_score_may_be_the_largest_number(name):
    largest = accumulator_of(name).largest
    assert sharpness_on_a_pixel(largest / 2, [0.0, 0.0], 1.0, name) > largest / 4
    assert sharpness_on_a_pixel(largest / 2, [0.0, 0.0], math.nextafter(1.0, 2.0), name) == 0.0
