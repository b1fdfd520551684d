"""assert_same fails where networks are not the same function, and says where they part."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import conv2attn

IMAGE = torch.randn(1, 3, 6, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    layers[1].running_mean.normal_()
    layers[1].running_var.uniform_(0.5, 2)
    return layers


def test_a_conversion_is_the_same_network(network):
    certificate = conv2attn.assert_same(network, conv2attn.convert(network), IMAGE)
    assert certificate.strength is conv2attn.verdicts.Strength.PROVED


def test_a_fold_is_the_same_up_to_rounding_alone(network):
    folded = nn.Sequential(fuse_conv_bn_eval(network[0], network[1]), *network[2:])
    with pytest.raises(AssertionError, match=r"^holds as rounded only, but up_to='formula' requires more") as failure:
        conv2attn.assert_same(network, folded, IMAGE)
    assert failure.value.certificate.rounded is not None
    assert conv2attn.assert_same(network, folded, IMAGE, up_to="rounding").exit_code == 0


@pytest.mark.parametrize("up_to", ["formula", "rounding"])
def test_another_epsilon_fails_with_the_place(network, up_to):
    other = copy.deepcopy(network)
    other[1].eps = 1e-2
    with pytest.raises(AssertionError, match=r"^refuted \(sampled\)") as failure:
        conv2attn.assert_same(network, other, IMAGE, up_to=up_to)
    assert failure.value.certificate.place is not None
    assert "1" in failure.value.certificate.place.first


def test_networks_that_no_step_decides_fail(network):
    class Tiny(nn.Module):
        """A network whose numbers differ by less than rounding, and whose formula differs."""

        def __init__(self, layers):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers(x) + (x.abs().amax() - 100).relu()

    with pytest.raises(AssertionError, match=r"^undecided"):
        conv2attn.assert_same(network, Tiny(network), IMAGE, up_to="rounding")


def test_named_arguments_and_matched_outputs_are_those_of_certify():
    first, second = nn.MultiheadAttention(8, 2, batch_first=True).eval(), None
    second = copy.deepcopy(first)
    tokens = torch.randn(1, 5, 8)
    called = {"query": tokens, "key": tokens, "value": tokens}
    conv2attn.assert_same(first, second, forward=called, match={0: 0})
