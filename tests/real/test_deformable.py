"""torchvision's DeformConv2d beside the 1x1 convolution of its offsets: one attention layer, at whole pixels alone."""

import pytest
import torch
import torchvision
from oracles import deformed
from torch import nn
from torchvision.ops import DeformConv2d, deform_conv
from whole import whole

from conv2attn import certify, conversion_of, convert
from conv2attn.errors import UnsupportedError
from conv2attn.layers.theorem import deformable_as_attention
from conv2attn.verdicts import Verdict


@pytest.fixture(autouse=True)
def operator(monkeypatch):
    """torchvision's own operator where it was built for this torch; otherwise the formula."""
    torch.manual_seed(0)
    if not torchvision.extension._has_ops():
        monkeypatch.setattr(deform_conv, "deform_conv2d", deformed)


class Deformable(nn.Module):
    """A deformable convolution whose offsets are whole numbers, for images of whole numbers."""

    def __init__(self, kernel=3, stride=1, groups=1, bias=True):
        super().__init__()
        self.offset = nn.Conv2d(4, 2 * kernel * kernel, 1, stride)
        self.deform = DeformConv2d(4, 2, kernel, stride, (kernel - 1) // 2, groups=groups, bias=bias)
        whole(self)

    def forward(self, image):
        return self.deform(image, self.offset(image))


def image(sides=(6, 7), batch=2):
    return torch.randint(-1, 2, (batch, 4, *sides)).float()


@pytest.mark.parametrize("options", [{}, {"kernel": 1}, {"stride": 2}, {"groups": 2}, {"bias": False}], ids=str)
def test_a_pair_is_one_attention_layer_at_whole_pixels(options):
    pair = Deformable(**options)
    layer = deformable_as_attention(pair.offset, pair.deform)
    for sides in ((6, 7), (9, 5)):
        sample = image(sides)
        assert torch.equal(layer(sample), pair(sample))


def test_convert_leaves_a_deformable_convolution_and_says_why():
    network = nn.Sequential(Deformable(), nn.Conv2d(2, 3, 1))
    converted = convert(network, image())
    rows = {row.name: row for row in conversion_of(converted).rows}
    assert (rows["0.deform"].outcome, rows["0.offset"].outcome, rows["1"].outcome) == (
        "unsupported",
        "converted",
        "converted",
    )
    assert "is bilinear between pixels" in rows["0.deform"].reason
    sample = image((5, 8))
    assert torch.allclose(converted(sample), network(sample), atol=1e-4)
    with pytest.raises(UnsupportedError, match="C2A101 DeformConv2d is bilinear between pixels"):
        convert(DeformConv2d(4, 2, 3, padding=1))


def test_a_certificate_does_not_call_another_sampling_equal():
    pair = Deformable()
    layer = deformable_as_attention(pair.offset, pair.deform)
    assert certify(pair, layer, input_size=(4, 6, 7)).verdict is not Verdict.HOLDS
