"""Networks on a device: a certificate there says what one of the CPU says, whatever products the user chose."""

import pytest
import torch
from torch import nn

from conv2attn import certify, convert, soften
from conv2attn.verdicts import Strength, Verdict


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)).eval()


def test_softened_heads_are_bounded_on_their_device(device):
    model = network().to(device)
    certificate = certify(model, soften(convert(model), alpha=46).network, input_size=(3, 8, 9))
    expected = certify(network(), soften(convert(network()), alpha=46).network, input_size=(3, 8, 9))
    assert (certificate.verdict, certificate.strength) == (expected.verdict, expected.strength)


@pytest.fixture(params=["ieee", "none", "tf32"])
def precision(request):
    """The products of cuDNN's convolutions, as a user may choose them."""
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = request.param
    yield request.param
    torch.backends.cudnn.conv.fp32_precision = before


def test_a_user_s_precision_of_products_leaves_a_certificate_decided(precision):
    """torch's own export raised with "ieee" and "none", and every certificate ended undecided."""
    model = network()
    certificate = certify(model, convert(model), input_size=(3, 8, 9))
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.PROVED)
    assert torch.backends.cudnn.conv.fp32_precision == precision
