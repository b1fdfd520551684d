"""What a flush of subnormal numbers costs, to the last number, and what is told where nothing was read."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equivalence import certify
from conv2attn.equivalence.computed.rounding import flushed
from conv2attn.equivalence.network import ASSUMPTIONS
from conv2attn.equivalence.readings.reading import reading_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_flushing_costs_is_eight_of_the_smallest_for_each_term(dtype):
    reading = reading_of(nn.Conv2d(2, 1, 3, dtype=dtype))
    lost = flushed(reading, torch.tensor([3.0], dtype=torch.float64), 10, 0.5)
    assert lost.tolist() == [8 * 2.0**-126 * (3 + 10 * 1.5 + 2)]


def test_of_compiled_code_the_assumptions_and_circumstances_are_told():
    original = nn.Conv2d(2, 3, 3, padding=1)
    converted = conv2attn.convert(original)
    converted._compiled_call_impl = lambda image: image
    report = certify(original, converted, input_size=(2, 4, 5), circumstances=(("command", "told"),))
    assert (report.rows, report.outputs, report.assumptions) == ((), None, ASSUMPTIONS)
    assert ("command", "told") in report.circumstances
