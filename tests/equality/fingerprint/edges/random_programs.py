"""Random programs and their mutants: whatever is identified agrees in numbers.

A quarter of 200 pairs and 400 functions each day in the suite; CONV2ATTN_ATTACK=10000 asks for 20,000 and 10,000.
"""

import os
import random

import pytest
import torch
from equality.fingerprint.programs import disagreements, gap, mutant, network, new_program
from equality.fingerprint.sweeps import IMAGES

from conv2attn.equality.fingerprint import identify

PARTS = range(4)
ASKED = int(os.environ.get("CONV2ATTN_ATTACK", "0"))
PAIRS, FUNCTIONS = (2 * ASKED // len(PARTS), ASKED // len(PARTS)) if ASKED else (50, 100)

TOLERANCE = 1e-9
"""Two orders of one sum differ by less in float64, over four steps on numbers below 1e4."""


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
def test_identified_mutants_agree_in_numbers(part):
    source = random.Random(part)
    equal = 0
    for _ in range(PAIRS):
        program = new_program(source)
        changed = mutant(source, program)
        pair = network(program), network(changed)
        difference = gap(*pair)
        if difference is None:
            continue
        if identify(*pair, IMAGES[0], primes=2).equal:
            equal += 1
            assert difference <= TOLERANCE, (program, changed)
    assert equal


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
def test_functions_with_equal_residues_agree_in_numbers(part):
    """All pairs under one field: as many comparisons as pairs."""
    source = random.Random(1000 + part)
    programs = [new_program(source, longest=3) for _ in range(FUNCTIONS)]
    wrong, _, groups = disagreements(programs, network, IMAGES, torch.float64, TOLERANCE)
    assert groups > FUNCTIONS // 10
    assert not wrong


def test_a_wrong_rule_would_be_found():
    """The comparison of numbers does fail: these two are told apart by it alone."""
    assert gap(torch.relu, torch.abs) > TOLERANCE
    assert gap(lambda x: x, lambda x: x / 0) > TOLERANCE
    assert gap(lambda x: x, raises_on_zeros) > TOLERANCE
    assert gap(raises_on_zeros, lambda x: x) > TOLERANCE
    assert gap(raises_on_zeros, raises_on_zeros) == 0.0
    assert gap(torch.chunk, torch.chunk) is None
    assert gap(torch.linalg.cholesky_ex, lambda x: (x, x)) > TOLERANCE


def raises_on_zeros(image):
    """The image, or an error where all of it is zero."""
    if not image.any():
        raise ValueError
    return image
