"""Operators with swept arguments, all under one field: functions with equal residues agree in numbers.

A quarter of 250 calls of each kind each day in the suite; `CONV2ATTN_ATTACK=10000` asks for 10,000.
"""

import os
import random

import pytest
import torch
from equality.fingerprint import pointwise, sweeps
from equality.fingerprint.programs import disagreements

from conv2attn.equality.fingerprint import operators
from conv2attn.equality.fingerprint.rules import RULES

pytestmark = pytest.mark.filterwarnings("ignore")
"""As an error, a warning of torch about an odd argument would end the call, which is then not compared."""

PARTS = range(5)
CALLS = int(os.environ.get("CONV2ATTN_ATTACK", "250")) // len(PARTS)


def new_sweep(source):
    name = source.choice(list(sweeps.GEOMETRY))
    return name, tuple(source.choice(choices) for choices in sweeps.GEOMETRY[name][1:])


def swept(call):
    return lambda image: sweeps.GEOMETRY[call[0]][0](image, *call[1])


KINDS = {
    "geometry": (new_sweep, swept, sweeps.IMAGES, torch.float64, 1e-9),
    "pointwise": (pointwise.new_call, pointwise.network, pointwise.IMAGES, torch.float32, 1e-4),
    "pointwise in float64": (pointwise.new_call, pointwise.network, pointwise.IMAGES, torch.float64, 1e-9),
}
"""By kind: what draws a call, the call as a function, images, their dtype, and a difference that rounding explains."""


def drawn_calls(draw, source, count):
    """Calls without repetition; 1, 1.0 and True are three arguments."""
    return list({repr(call): call for call in (draw(source) for _ in range(count))}.values())


@pytest.mark.parametrize("name", sweeps.GEOMETRY)
def test_each_row_of_the_table_is_a_call_that_torch_takes(name):
    function, *choices = sweeps.GEOMETRY[name]
    source, taken = random.Random(3), 0
    for _ in range(20):
        try:
            function(sweeps.IMAGES[0], *map(source.choice, choices))
        except (RuntimeError, ValueError, NotImplementedError):
            continue
        taken += 1
    assert taken >= 5


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_calls_with_equal_residues_agree_in_numbers(kind, part):
    draw, *about = KINDS[kind]
    source = random.Random(2000 + part)
    calls = drawn_calls(draw, source, CALLS)
    wrong, _, groups = disagreements(calls, *about)
    assert groups > len(calls) // 10
    assert not wrong


def forgets_padding(rule):
    """A rule of averages that takes zeros beyond the border for numbers whatever it is asked."""

    def planted(
        c,
        self,
        kernel_size,
        stride=(),
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        return rule(c, self, kernel_size, stride, padding, ceil_mode, True, divisor_override)

    return planted


def test_a_rule_that_forgets_an_argument_is_found(monkeypatch):
    _, *about = KINDS["geometry"]
    calls = [("average", (2, 1, 1, False, counted, None)) for counted in (False, True)]
    assert disagreements(calls, *about) == ([], 0, 2)
    monkeypatch.setitem(RULES, "avg_pool2d", forgets_padding(RULES["avg_pool2d"]))
    assert [pair[:2] for pair in disagreements(calls, *about)[0]] == [tuple(calls)]


def test_an_oracle_that_forgets_a_number_is_found(monkeypatch):
    _, *about = KINDS["pointwise"]
    calls = [pointwise.Call("gt", "itself", number, "nothing") for number in ("0.1", "0.5")]
    assert disagreements(calls, *about) == ([], 0, 2)
    named = operators.pointwise

    def planted(run, func, base, bound, out):
        return named(run, func, base, {key: value for key, value in bound.items() if not isinstance(value, float)}, out)

    monkeypatch.setattr(operators, "pointwise", planted)
    assert [pair[:2] for pair in disagreements(calls, *about)[0]] == [tuple(calls)]
