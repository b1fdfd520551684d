"""Which networks commute with shifts, flips and permutations of their input (claim EQV)."""

import pytest
import torch
from equality.pairs import Net
from torch import nn

import conv2attn
from conv2attn.equality import symmetric
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.verdicts import Verdict

SIZE = (2, 6, 8)
CIRCULAR = {"padding": 1, "padding_mode": "circular"}


def drawn(layer):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer.eval()


def mirrored(conv):
    with torch.no_grad():
        conv.weight.copy_((conv.weight + conv.weight.flip(-1)) / 2)
    return conv


def logits():
    return drawn(nn.Sequential(nn.Conv2d(2, 3, 3, **CIRCULAR), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()))


TABLE = torch.randn(1, *SIZE, generator=torch.Generator().manual_seed(0))
HOLDS = {
    "a circular convolution under shifts": (lambda: drawn(nn.Conv2d(2, 3, 3, **CIRCULAR)), {"shift": (1, 0)}),
    "its logits under shifts": (logits, {"shift": (0, 3)}),
    "a stride under its own multiples": (lambda: drawn(nn.Conv2d(2, 3, 3, 2, **CIRCULAR)), {"shift": (2, 4)}),
    "mirrored taps under a flip": (lambda: mirrored(drawn(nn.Conv2d(2, 3, 3, padding=1))), {"flip": (0, 1)}),
    "a 1x1 convolution under permutations": (lambda: drawn(nn.Conv2d(2, 3, 1)), {"permute": 5}),
    "pixels by themselves under permutations": (
        lambda: drawn(nn.Sequential(nn.Conv2d(2, 3, 1), nn.GELU())),
        {"permute": 1},
    ),
}
REFUTED = {
    "zero padding under shifts": (lambda: drawn(nn.Conv2d(2, 3, 3, padding=1)), {"shift": (1, 0)}),
    "any taps under a flip": (lambda: drawn(nn.Conv2d(2, 3, 3, padding=1)), {"flip": (0, 1)}),
    "a 3x3 convolution under permutations": (lambda: drawn(nn.Conv2d(2, 3, 3, padding=1)), {"permute": 5}),
    "a table of positions": (lambda: Net(lambda net, x: (x + net.table).relu(), table=TABLE), {"shift": (1, 0)}),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_symmetry_holds_for_all_images(name):
    network, moved = HOLDS[name]
    certificate = symmetric(network(), **moved, input_size=SIZE)
    assert certificate.verdict is Verdict.HOLDS, str(certificate)


def test_modes_stay_where_one_layer_evaluates_in_a_network_that_trains():
    network = nn.Sequential(nn.Conv2d(2, 3, 3, **CIRCULAR), nn.BatchNorm2d(3))
    network[1].eval()
    symmetric(network, shift=(1, 0), input_size=SIZE)
    assert [module.training for module in network.modules()] == [True, True, False]


@pytest.mark.parametrize("name", REFUTED)
def test_a_symmetry_that_fails_is_refuted_by_an_image(name):
    network, moved = REFUTED[name]
    assert symmetric(network(), **moved, input_size=SIZE).verdict is Verdict.REFUTED


def test_attention_without_positions_commutes_with_permutations_and_with_positions_it_does_not():
    encoding = Encoding.of("quadratic", torch.zeros(2, 2), 0.0)
    layer = drawn(MultiHeadSelfAttention(2, 3, encoding, d_key=3, terms="qk"))
    assert symmetric(layer, permute=1, input_size=SIZE).verdict is not Verdict.REFUTED
    padded = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1))
    assert symmetric(padded, permute=1, input_size=SIZE).verdict is Verdict.REFUTED
    converted = conv2attn.convert(nn.Conv2d(2, 3, 3, **CIRCULAR))
    assert symmetric(converted, shift=(1, 2), input_size=SIZE).verdict is Verdict.HOLDS
