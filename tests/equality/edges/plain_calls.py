"""Nothing but two plain calls refutes: a plain difference is far above rounding, and equal formulas are near it."""

import copy

import pytest
import torch
from torch import nn

from conv2attn.equality import differing_calls

torch.manual_seed(0)
IMAGES = torch.randn(2, 3, 12, 10)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Conv2d(4, 5, 3)).eval()


def apart(first, second, images=IMAGES):
    with torch.no_grad():
        outputs = first(images), second(images)
    return differing_calls((first, second), images, outputs)


def other_sums(first):
    """The same formula, its channels summed in another order."""
    second, turned = copy.deepcopy(first), torch.tensor([2, 0, 3, 1])
    for name, tensor in second[0].state_dict().items():
        tensor.copy_(first[0].state_dict()[name][turned])
    second[3].weight.data = first[3].weight.data[:, turned]
    second[1].weight.data, second[1].bias.data = first[1].weight.data[turned], first[1].bias.data[turned]
    return second


class Mean(nn.Module):
    def forward(self, images):
        return images.mean((2, 3), keepdim=True)


PAIRS = {
    "channels in another order": lambda: (first := network(), other_sums(first)),
    "a pool and a mean of a grey image": lambda: (nn.AvgPool2d((222, 222)), Mean()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_formulas_differ_by_rounding(name):
    images = torch.ones(1, 1, 222, 222) if "grey" in name else IMAGES
    difference = apart(*PAIRS[name](), images)
    assert difference.ratio < 4
    assert not difference.refutes
    assert not difference.trouble


@pytest.mark.parametrize("image", [0, 1])
def test_a_difference_of_a_thousand_roundings_in_one_image_is_found(image):
    class Off(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, images):
            outputs = self.inner(images).clone()
            outputs[image, 2] *= 1.01
            outputs[1 - image] += 0.0
            return outputs

    first = network()
    difference = apart(first, Off(copy.deepcopy(first)))
    assert difference.refutes
    assert difference.place[:2] == (image, 2)
    assert difference.count > 1
    assert difference.first != difference.second
    assert difference.size > 100 * difference.rounding


def test_equal_bits_need_no_shaken_call():
    class Once(nn.Module):
        calls = 0

        def forward(self, images):
            Once.calls += 1
            return images * 2

    first = Once()
    assert apart(first, first).ratio == 0
    assert Once.calls == 2


def test_an_error_of_a_shaken_call_is_said_and_refutes_nothing():
    class Fussy(nn.Module):
        def forward(self, images):
            if not torch.equal(images, IMAGES):
                raise ValueError("other numbers")
            return images + 1

    difference = apart(Fussy(), nn.Identity())
    assert not difference.refutes
    assert "other numbers" in difference.trouble


def test_dropout_is_drawn_anew():
    torch.manual_seed(3)
    assert not apart(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5))).refutes
