"""Converted networks as torch's own tools take them: replicas of nn.DataParallel, and counts of products."""

from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.parallel import replicate
from torch.utils.flop_counter import FlopCounterMode

import conv2attn

REPLICATE = "torch.nn.parallel.replicate"


def replicas_on(network, devices):
    """What nn.DataParallel makes of a network: shallow copies whose tensors are on these devices."""

    def broadcast(tensors, to, detach=False):
        return [[tensor.to(device) for tensor in tensors] for device in to]

    with mock.patch.multiple(REPLICATE, _broadcast_coalesced_reshape=broadcast, _get_device_index=lambda d, _: d):
        return replicate(network, devices)


def network():
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2, groups=1))


@pytest.mark.parametrize(("alpha", "trainable"), [(None, False), (2.0, False), (2.0, True)])
def test_replicas_compute_what_the_network_does(device, alpha, trainable):
    options = {} if alpha is None else {"alpha": alpha}
    ours = conv2attn.convert(network(), trainable=trainable, **options)
    images = [torch.randn(2, 2, 6, 7, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    expected = [ours(image).detach() for image in images]
    devices = [torch.device("cpu"), device]
    replicas = replicas_on(ours, devices)
    outputs = [replica(image.to(on)) for replica, image, on in zip(replicas, images, devices, strict=True)]
    for place, on in enumerate(devices):
        assert outputs[place].device.type == on.type
        assert (outputs[place].detach().cpu() - expected[place]).abs().max() < 1e-5
    outputs[0].square().sum().backward()
    assert ours[0].weight.grad.abs().max() > 0


def test_torch_counts_the_same_products_in_a_converted_network():
    """torchinfo instead multiplies by the pixels only where the name of a class has Conv in it."""
    counts = []
    for each in (network(), conv2attn.convert(network())):
        with FlopCounterMode(display=False) as counter:
            each(torch.ones(2, 2, 6, 7))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
