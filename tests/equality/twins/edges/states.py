"""The state of a certificate: mode, dtypes, device, threads, and the modes of gradients that were tried."""

import pytest
import torch
from equality.pairs import Net
from torch import nn

import conv2attn
from conv2attn.report import document
from conv2attn.verdicts import Verdict

MODES = {
    "training": lambda net: net.train(),
    "mixed": lambda net: net[3].train(),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Dropout(0.5)).eval()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("convert", [False, True])
def test_another_mode_is_the_first_thing_said(mode, convert):
    second = network()
    MODES[mode](second)
    second = conv2attn.convert(second) if convert else second
    certificate = conv2attn.certify(network(), second, input_size=(3, 6, 7))
    assert certificate.verdict is Verdict.UNDECIDED
    assert (
        document(certificate).answer[1]
        == f"the first network is in evaluation mode, and the second network in {mode} mode"
    )
    assert certificate.to_text().count("the first network is in evaluation mode") == 1


def test_a_claim_made_in_training_mode_names_it():
    first = network().train()
    certificate = conv2attn.certify(first, conv2attn.convert(first), input_size=(3, 6, 7))
    assert certificate.verdict is Verdict.HOLDS
    assert ", in training mode" in certificate.claim
    assert first.training


def test_threads_and_gradients_that_were_tried_are_kept():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        certificate = conv2attn.certify(first := network(), conv2attn.convert(first), input_size=(3, 6, 7))
    finally:
        torch.set_num_threads(before)
    assert certificate.state.threads == 1
    assert certificate.state.gradients == ("no gradients",)
    line = "state: evaluation mode, float32, cpu, 1 thread, without gradients"
    assert line in certificate.to_text(verbose=True)
    other = conv2attn.certify(first, conv2attn.convert(first), input_size=(3, 6, 7), also_modes=["gradients"])
    assert other.state.gradients == ("no gradients", "gradients")


def caching(net, x):
    """Keeps what it made of its first input by its shape, outside of itself."""
    return x * kept_by_shape.setdefault(x.shape, x.mean()) * net.scale


kept_by_shape: dict[torch.Size, torch.Tensor] = {}


def test_what_is_kept_outside_of_networks_is_seen_at_the_first_call():
    kept_by_shape.clear()
    first, second = Net(caching, scale=nn.Parameter(torch.ones(1))), Net(caching, scale=torch.ones(1))
    certificate = conv2attn.certify(first, second, input_size=(3, 4, 4))
    assert certificate.identified is None
    kept_by_shape.clear()
