"""Torch's own samples of its operators, with one argument changed: calls with equal residues agree in numbers.

A quarter of 400 calls each day in the suite; `CONV2ATTN_ATTACK=10000` asks for 10,000.
"""

import os
import random
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from equality.fingerprint.programs import disagreements
from equality.fingerprint.sweeps import images_of

from conv2attn.equality.fingerprint.rules import RULES

pytestmark = pytest.mark.filterwarnings("ignore")
"""As an error, a warning of torch about an odd argument would end the call, which is then not compared."""

PARTS = range(4)
CALLS = int(os.environ.get("CONV2ATTN_ATTACK", "400")) // len(PARTS)
LARGEST, SAMPLES, CHANGES = 400, 6, 5
"""Numbers of an image, samples of an operator, and calls of a sample."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class Sample(NamedTuple):
    """A call of an operator of torch with an image of some shape."""

    name: str
    place: int
    shape: tuple[int, ...]
    function: Any
    args: tuple[Any, ...]
    settings: dict[str, Any]

    def __call__(self, image):
        return self.function(image, *self.args, **self.settings)


@cache
def operators():
    """All operators that torch tests, each with a function that makes samples."""
    pytest.importorskip("expecttest", reason="torch's samples need expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def changed(settings):
    """The settings, and the same with one of them changed."""
    yield settings
    for name, value in settings.items():
        if isinstance(value, bool):
            yield {**settings, name: not value}
        elif isinstance(value, int | float):
            yield from ({**settings, name: other} for other in (value + 1, -value, value * 2))


def samples_of(operator, dtype):
    """Samples whose first argument is a small dense image."""
    torch.manual_seed(0)
    try:
        made = [each for each, _ in zip(operator.sample_inputs("cpu", dtype), range(SAMPLES), strict=False)]
    except Exception:  # some samples need what is not installed, or another device
        return
    for place, sample in enumerate(made):
        image = sample.input
        plain = isinstance(image, torch.Tensor) and image.dtype == dtype and image.layout == torch.strided
        if plain and image.is_contiguous() and 0 < image.numel() <= LARGEST:
            name = f"{operator.name} {operator.variant_test_name}".strip()
            for settings, _ in zip(changed(dict(sample.kwargs)), range(CHANGES), strict=False):
                yield Sample(name, place, tuple(image.shape), operator.op, tuple(sample.args), settings)


def by_shape(samples):
    """Samples by the shape of their image: all of one shape are compared with one another."""
    shapes = {}
    for sample in samples:
        shapes.setdefault(sample.shape, []).append(sample)
    return shapes


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
def test_samples_with_equal_residues_agree_in_numbers(part):
    dtype = (torch.float64, torch.float32)[part % 2]
    source, samples = random.Random(part), []
    while len(samples) < CALLS:
        operator = source.choice(operators())
        samples += list(samples_of(operator, dtype)) if dtype in operator.dtypes else []
    wrong, groups = [], 0
    for shape, calls in by_shape(samples).items():
        found, _, more = disagreements(calls, lambda call: call, images_of(shape), dtype, TOLERANCE[dtype])
        wrong, groups = wrong + found, groups + more
    assert groups > CALLS // 10
    assert not wrong


def test_a_rule_that_forgets_an_argument_is_found_by_torchs_samples(monkeypatch):
    rule = RULES["cumsum"]
    sums = [each for each in operators() if each.name == "cumsum"]
    samples = [sample for each in sums for sample in samples_of(each, torch.float64) if len(sample.shape) == 3]
    calls = [each._replace(args=(axis,)) for each in samples for axis in (0, 1)]
    images = images_of(calls[0].shape)
    assert not disagreements(calls, lambda call: call, images, torch.float64, 1e-9)[0]
    monkeypatch.setitem(RULES, "cumsum", lambda c, self, dim, dtype=None: rule(c, self, 0))
    assert disagreements(calls, lambda call: call, images, torch.float64, 1e-9)[0]
