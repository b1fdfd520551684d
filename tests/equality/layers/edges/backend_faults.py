"""Overflows, faulty backends, full memory and engines that refuse: what was measured decides, or nothing."""

import pytest
import torch
from equality import planted
from equality.layers.edges.rounding import images, layer
from equality.pairs import Net, row_of
from equality.planted import taps, ulp
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict


@pytest.mark.parametrize("number", [1e38, 3e38])
def test_where_the_original_overflows_nothing_is_refuted(number):
    original = planted.network()
    asked = {"input_size": (4, 14, 11), "input_range": number}
    report = certify(original, conv2attn.convert(original), **asked)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert report.rows[0].bound is None
    assert all(row.verdict is not Verdict.REFUTED for row in report.rows)
    converted = conv2attn.convert(original)
    ulp(taps(converted.square), (3, 2, 1))
    report = certify(original, converted, **asked)
    assert [row.name for row in report.rows if row.verdict is Verdict.REFUTED] == ["square"]


def test_just_below_the_overflow_the_bound_holds_and_what_is_not_finite_is_refuted():
    original = layer((1, 1), 1, padding=0, bias=False)
    original.weight.data.fill_(2.0)
    converted = conv2attn.convert(original)
    given = torch.full((1, 1, 2, 3), 1.6e38)
    assert certify(original, converted, images=given).rows[0].max_error == 0
    assert certify(original, converted, images=given * 1.1).rows[0].verdict is Verdict.UNDECIDED
    converted.register_forward_hook(lambda module, args, output: output * torch.inf)
    assert certify(original, converted, images=given).verdict is Verdict.REFUTED
    assert certify(original, converted, images=given * 2.1).between[-1].verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_images_that_are_not_finite_leave_it_undecided(number):
    image = images(1, 16, 9, 8)
    image[0, 3, 4, 5] = number
    assert certify(layer(), conv2attn.convert(layer()), images=image).exit_code == 3


def faulty(net, image):
    """A convolution called as a function, whose kernel gives noise with channels innermost in torch 2.13."""
    return nn.functional.conv2d(image, net.weight, net.bias, (1, 2), 0, (3, 1), 3).isfinite()


def test_a_backend_fault_of_the_original_refutes_nothing():
    original = nn.Conv2d(3, 9, (2, 4), stride=(1, 2), dilation=(3, 1), groups=3, dtype=torch.bfloat16)
    given = images(3, 3, 5, 4).bfloat16()
    innermost = given.contiguous(memory_format=torch.channels_last)
    assert certify(original, conv2attn.convert(original), images=innermost).verdict is not Verdict.REFUTED
    called = Net(faulty, weight=original.weight, bias=original.bias)
    converted = conv2attn.convert(called, example_input=given)
    assert certify(called, converted, images=innermost).verdict is not Verdict.REFUTED


def test_what_is_measured_in_half_precision_on_a_cpu_refutes_nothing(monkeypatch):
    whole = nn.Conv2d._conv_forward
    wrong = lambda self, image, weight, bias: whole(self, image, weight, bias) + 7  # noqa: E731
    original = layer(dtype=torch.bfloat16)
    converted = conv2attn.convert(original)
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", wrong)
    found = row_of(original, converted, images(1, 16, 9, 8).bfloat16()).part("measured")
    assert found.verdict is Verdict.UNDECIDED, found
    assert "not always within" in found.sentence


def test_a_network_too_large_for_the_memory_is_not_refuted(monkeypatch):
    original = layer()
    converted = conv2attn.convert(original)

    def full(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("conv2attn.layers.attention.layer.MultiHeadSelfAttention.evaluate", full)
    with pytest.raises(UsageError, match="memory"):
        certify(original, converted, images=images(1, 16, 9, 8))


@pytest.mark.parametrize(("alpha", "engine", "runs"), [(128, "conv", True), (46, "conv", False), (46, "dense", True)])
def test_a_layer_whose_engine_refuses_is_refuted(alpha, engine, runs):
    converted = conv2attn.set_engine(conv2attn.convert(layer((2, 2)), alpha=alpha), engine)
    found = row_of(layer((2, 2)), converted).part("measured")
    assert (found.verdict is Verdict.HOLDS) is runs
    assert runs or f"in the second network, the engine {engine} refuses" in found.sentence
