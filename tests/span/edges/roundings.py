"""Rounding of derived rows, counted in fractions; half precision, whose rounding explains little."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, soft

from conv2attn import check_span
from conv2attn.errors import UsageError
from conv2attn.span.conditions.limits import ULPS
from conv2attn.span.sources.reading import MEMORY_LIMIT, read_array
from conv2attn.verdicts import Verdict

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


HALVES = [torch.float16, torch.bfloat16]


def random_heads(dtype, heads=12, side=14):
    scores = torch.randn(heads, side**2, side**2, generator=torch.Generator().manual_seed(0))
    return torch.softmax(2 * scores, -1).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_at_random_is_refuted(dtype):
    assert check_span(random_heads(dtype)).verdict is Verdict.REFUTED


def test_halves_stored_as_float32_are_halves():
    assert check_span(random_heads(torch.float16).float()).verdict is Verdict.REFUTED


@pytest.mark.parametrize("dtype", HALVES)
def test_identities_hold_for_no_neighbour(dtype):
    found = check_span(torch.eye(196).expand(12, -1, -1).to(dtype)).rows[0].deciding
    verdicts = {target.offset: target.verdict for target in found.targets}
    assert verdicts.pop((0, 0)) is Verdict.HOLDS
    assert set(verdicts.values()) == {Verdict.REFUTED}


@pytest.mark.parametrize("dtype", HALVES)
def test_nine_heads_are_no_kernel_of_five(dtype):
    heads = torch.from_numpy(soft((14, 14), 12.0)).to(dtype)
    assert check_span(heads, 5).verdict is Verdict.REFUTED
    assert check_span(heads, 3).verdict is Verdict.HOLDS


def test_a_residual_that_no_heads_at_all_leave_too_decides_nothing():
    for eps in (1.0, 2.0):
        with pytest.raises(UsageError, match=r"C2A001 eps=.* as much as no heads at all leave"):
            check_span(hard((5, 6), OFFSETS), grid=(5, 6), eps=eps)
    assert check_span(np.eye(9)[None], 1, eps=0.5).verdict is Verdict.HOLDS
