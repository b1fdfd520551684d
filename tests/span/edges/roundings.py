"""Rounding and uncertainty of derived rows, counted in fractions."""

from fractions import Fraction

import numpy as np
import pytest

from conv2attn.span.conditions.limits import ULPS
from conv2attn.span.sources.reading import MEMORY_LIMIT, read_array

ROUNDOFFS = {np.float64: Fraction(1, 2**53), np.float32: Fraction(1, 2**24)}


def rows_in(dtype, images, tokens=10, extra=0, seed=0):
    generator = np.random.default_rng(seed)
    given = generator.dirichlet(np.ones(tokens) / 4, (images, 2, tokens)).astype(dtype)
    return given, read_array(
        "x", given, grid=(tokens - extra,), dimensions=1, extra_tokens=extra, memory_limit=MEMORY_LIMIT
    )


def farthest(row, meant):
    """The largest relative distance of floats from what they may stand for."""
    return max(abs(Fraction(float(x)) - m) / Fraction(float(x)) for x, m in zip(row, meant, strict=True) if x)


def moved(row, sign, roundoff):
    """A row within its uncertainty: one entry up and all others down, or the other way."""
    up, down = 1 + sign * ULPS * roundoff, 1 - sign * ULPS * roundoff
    most = int(np.argmax(row))
    return [Fraction(float(x)) * (up if k == most else down) for k, x in enumerate(row)]


@pytest.mark.parametrize("dtype", ROUNDOFFS)
def test_what_remains_of_a_row_is_known_half_as_well(dtype):
    given, whole = rows_in(dtype, 1, extra=1)
    read = whole.renormalised()
    allowed, found = read.ulps * ROUNDOFFS[dtype], []
    (_, _, block), *_ = read.pieces()
    for head, query in np.ndindex(2, 9):
        for sign in (1, -1):
            meant = moved(given[0, head, 1 + query, 1:], sign, ROUNDOFFS[dtype])
            found.append(farthest(block[head, query], [x / sum(meant) for x in meant]))
    assert ULPS * ROUNDOFFS[dtype] < max(found) <= allowed


@pytest.mark.parametrize("dtype", ROUNDOFFS)
def test_the_average_of_images_is_rounded_once_an_image(dtype):
    given, read = rows_in(dtype, 40)
    average = read.average()
    (_, _, block), *_ = average.pieces()
    found = []
    for head, query in np.ndindex(2, 10):
        whole = [[Fraction(float(x)) * (1 + ULPS * ROUNDOFFS[dtype]) for x in image[head, query]] for image in given]
        found.append(farthest(block[head, query], [sum(column) / 40 for column in zip(*whole, strict=True)]))
    assert ULPS * ROUNDOFFS[dtype] < max(found) <= average.ulps * ROUNDOFFS[dtype]


def test_the_average_of_zeros_and_ones_is_rounded_once():
    hot = np.stack([np.roll(np.eye(3)[None], shift, -1) for shift in (0, 0, 1)])
    average = read_array("x", hot, grid=(3,), dimensions=1, memory_limit=MEMORY_LIMIT).average()
    (_, _, block), *_ = average.pieces()
    assert average.ulps == 1
    assert 0 < farthest(block[0, 0], [Fraction(2, 3), Fraction(1, 3), Fraction(0)]) <= ROUNDOFFS[np.float64]
