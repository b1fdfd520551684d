"""The bound against an adversary: never exceeded, and close enough to what the adversary finds to mean something."""

import statistics

import pytest
import torch
from hypothesis import given, target
from hypothesis import strategies as st
from torch import nn

from benchmarks.tightness import CASES, SHORT, measure, shuffled, table
from conv2attn import convert, set_engine
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.readings.reading import reading_of


@pytest.mark.slow
def test_the_median_ratio_is_under_100_up_to_500_terms():
    short = [(channels, size) for channels, size in CASES if channels * size**2 <= SHORT]
    found = [measure(channels, size, 128.0, 30) for channels, size in short]
    assert all(0 < each.worst <= each.bound for each in found)
    assert statistics.median(each.ratio for each in found) < 100, table(found)


def test_the_ratio_of_a_leaking_layer_is_small():
    found = measure(8, 3, 3.0, 4)
    assert found.worst <= found.bound < 10 * found.worst


@given(st.data())
def test_no_input_exceeds_the_bound(data):
    seed = data.draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    groups = data.draw(st.sampled_from([1, 2]))
    torch.manual_seed(seed)
    layer = nn.Conv2d(4, 6, data.draw(st.sampled_from([1, 2, 3])), padding=1, groups=groups).to(dtype)
    with torch.no_grad():
        layer.weight.mul_(2.0 ** torch.randint(-6, 7, layer.weight.shape, generator=generator))
    alpha = data.draw(st.sampled_from(["auto", 60.0, 30.0, 4.0, 0.7]))
    attention = convert(layer, alpha=alpha)
    reach = data.draw(st.sampled_from([1e-4, 1.0, 50.0]))
    image = ((torch.rand(2, 4, 5, 6, generator=generator) * 2 - 1) * reach).to(dtype)
    image = torch.where(torch.rand(image.shape, generator=generator) < 0.5, image.sign() * reach, image).to(dtype)
    bounds = difference_bounds(reading_of(layer), reading_of(attention), image.abs().max().item(), (7, 8))
    worst = 0.0
    for engine in ("dense", "separable", "sdpa"):
        other = set_engine(shuffled(attention, generator), engine)
        if engine == "sdpa" and other.why_engine(image)["sdpa"] != "exact":
            continue
        with torch.no_grad():
            difference = (layer(image).double() - other(image).double()).abs().amax((0, 2, 3))
        assert (difference <= torch.tensor(bounds)).all(), engine
        worst = max(worst, (difference / torch.tensor(bounds)).max().item())
    target(worst)
