"""Arguments at and beyond the edges of what is accepted: each is served exactly, or refused by its code."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from conv2attn import convert, load, save, set_engine
from conv2attn.errors import CheckpointError, GeometryError
from conv2attn.layers.attention import exponential_underflows, hardness
from conv2attn.networks.zoo import ResNet, ResNetPlan
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import evaluate


@example(46)
@example(torch.tensor(50.0))
@example(1e-40)
@given(st.floats(1e-38, 1e38) | st.integers(1, 2**30))
def test_a_sharpness_that_can_be_stored_is_taken_as_it_is(alpha):
    layer = convert(nn.Conv2d(1, 1, 3), alpha=alpha)
    assert torch.equal(layer.positions.alpha, torch.full((9,), float(alpha)))
    assert layer(torch.ones(1, 1, 5, 4)).isfinite().all()


def test_float64_stores_what_float32_cannot():
    assert convert(nn.Conv1d(1, 1, 3, dtype=torch.float64), alpha=1e300).encoding.alpha[0] == 1e300


CHANGES = {
    "eps": lambda net: setattr(net.bn1, "eps", 0.3),
    "a layer": lambda net: net.layer1.append(nn.ReLU()),
    "a stage": lambda net: setattr(net, "layer1", nn.Sequential(nn.Conv2d(4, 4, 1))),
    "a forward": lambda net: setattr(net.relu, "forward", torch.sigmoid),
    "a list": lambda net: setattr(net, "order", [3]),
    "a mapping of tensors": lambda net: setattr(net, "table", {"a": torch.ones(1)}),
    "an object": lambda net: setattr(net.relu, "context", nn.Parameter),
    "a closure": lambda net: vars(net.bn1).update(momentum=lambda: net),
    "a hidden attribute": lambda net: setattr(net.layer1, "_order", 3),
    "a stride": lambda net: setattr(net.layer2[0].downsample[0], "stride", (1, 1)),
}


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_network_that_would_be_rebuilt_otherwise_is_not_saved(tmp_path, change, converted):
    network = ResNet(ResNetPlan(depths=(2, 1, 1, 1), width=4, classes=3, stem="cifar"))
    CHANGES[change](network)
    network = convert(network) if converted and change != "a stride" else network
    with pytest.raises(CheckpointError, match="C2A306"):
        save(network, tmp_path / "network.pt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("training", [False, True])
def test_what_was_frozen_is_frozen_in_the_network_loaded(tmp_path, training):
    network = convert(ResNet(ResNetPlan(depths=(2, 1, 1, 1), width=4, classes=3, stem="cifar"))).train(training)
    network.conv1.requires_grad_(False)
    network.bn1.bias.requires_grad_(False)
    save(network, tmp_path / "network.pt")
    frozen = [[p.requires_grad for p in each.parameters()] for each in (network, load(tmp_path / "network.pt"))]
    assert frozen[0] == frozen[1]


def test_a_dilation_beyond_what_its_centres_can_count_is_refused():
    convert(nn.Conv1d(1, 1, 3, dilation=2**24))
    with pytest.raises(GeometryError, match=r"C2A001 an offset of 16777217 pixels is not exact in torch.float32"):
        convert(nn.Conv1d(1, 1, 3, dilation=2**24 + 1))


@pytest.mark.parametrize(("dtype", "enough"), [(torch.float64, 746.0), (torch.float32, 104.0), (torch.float16, 17.4)])
def test_the_device_s_own_exponential_is_measured(dtype, enough):
    assert exponential_underflows(enough, dtype, "cpu")
    assert not exponential_underflows(enough * 0.8, dtype, "cpu")


def test_heads_are_not_hard_on_a_device_whose_exponential_does_not_vanish(monkeypatch):
    layer = convert(nn.Conv1d(1, 1, 3))
    assert layer.which_engine(torch.ones(1, 1, 5)) == "conv"
    monkeypatch.setattr(hardness, "exponential_underflows", lambda *_: False)
    layer.prepare()
    reasons = layer.why_engine(torch.ones(1, 1, 5))
    assert reasons["conv"] == reasons["gather"] == "exp(-103.972) does not vanish in float32 on cpu"


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_the_engine_and_what_is_trained_are_loaded_with_a_layer(tmp_path, trainable):
    layer = set_engine(convert(nn.Conv2d(2, 3, 3), trainable=trainable), "separable")
    save(layer, tmp_path / "layer.pt")
    again = load(tmp_path / "layer.pt")
    assert again.engine == "separable"
    assert (not again.encoding.is_frozen) == trainable


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("engine", "local"), [("conv", True), ("gather", True), ("separable", False), ("dense", False)]
)
@torch.no_grad()
def test_what_is_not_finite_spreads_as_far_as_the_engine_looks(engine, local, number):
    """As far as the convolution's window, or over the slab of queries that read the pixel together."""
    original = nn.Conv2d(3, 4, 3, padding=1)
    converted = set_engine(convert(original), engine)
    image = torch.randn(1, 3, 18, 17)
    image[0, 2, 2, 3] = number
    spoiled, expected = (~layer(image).isfinite() for layer in (converted, original))
    assert expected.sum() == 9 * 4
    assert torch.equal(spoiled, expected) if local else (spoiled >= expected).all()


@pytest.mark.parametrize("engine", ["dense", "separable"])
@pytest.mark.parametrize(
    ("conv", "side"),
    [
        (nn.Conv2d(16, 16, 3, padding=1, groups=2), 2),
        (nn.Conv2d(3, 8, 7, stride=2, padding=3), 12),
        (nn.Conv2d(8, 12, 3, stride=2), 6),
        (nn.Conv2d(12, 8, 3, padding=1), 2),
    ],
)
def test_trained_factors_in_either_order_are_the_sum_of_the_basis(engine, conv, side):
    """Few tokens go through value and output in turn, many through their products; gradients are those of the sum."""
    torch.manual_seed(0)
    layer = set_engine(convert(conv.double(), trainable=True, alpha=3.0), engine)
    image = torch.randn(2, conv.in_channels, side, side + 1, dtype=torch.float64, requires_grad=True)
    inputs = [image, *layer.parameters()]
    outputs = [layer(image), evaluate(layer.basis(), image)]
    assert_same_output(outputs[0].detach(), outputs[1].detach(), 1e-11)
    for ours, expected in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in outputs), strict=True):
        assert_same_output(ours, expected, 1e-11 * (1 + expected.abs().max().item()))
