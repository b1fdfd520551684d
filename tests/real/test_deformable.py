"""torchvision's DeformConv2d beside the 1x1 convolution of its offsets: one attention layer, at whole pixels alone."""

import itertools

import pytest
import torch
import torchvision
from torch import nn
from torchvision.ops import DeformConv2d, deform_conv
from whole import whole

from conv2attn import MultiHeadSelfAttention, certify, conversion_of, convert
from conv2attn.errors import UnsupportedError
from conv2attn.verdicts import Verdict


def deformed(image, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    """Eqs. (2) to (4) of Dai et al. 2017: bilinear sampling at moved taps, zero beyond the image; one offset group."""
    sides, rows, total = image.shape[2:], [torch.arange(n) for n in offset.shape[2:]], 0
    for number, tap in enumerate(itertools.product(*map(range, weight.shape[2:]))):
        at = [
            (rows[a] * stride[a] - padding[a] + dilation[a] * tap[a])[(..., *[None] * (1 - a))]
            + offset[:, 2 * number + a]
            for a in (0, 1)
        ]
        read = 0
        for corner in itertools.product((0, 1), repeat=2):
            place = [x.floor() + step for x, step in zip(at, corner, strict=True)]
            share = [1 - (x - p).abs() for x, p in zip(at, place, strict=True)]
            seen = [(p >= 0) & (p < side) for p, side in zip(place, sides, strict=True)]
            row, column = (p.clamp(0, side - 1).long() for p, side in zip(place, sides, strict=True))
            pixels = image.flatten(2).gather(
                2, (row * sides[1] + column).flatten(1)[:, None].expand(-1, image.shape[1], -1)
            )
            read = read + pixels.unflatten(2, row.shape[1:]) * (share[0] * share[1] * seen[0] * seen[1])[:, None]
        read = read if mask is None else read * mask[:, number, None]
        groups = image.shape[1] // weight.shape[1]
        taps = weight[:, :, tap[0], tap[1]].unflatten(0, (groups, -1))
        total = total + torch.einsum("goc,bgcij->bgoij", taps, read.unflatten(1, (groups, -1))).flatten(1, 2)
    return total if bias is None else total + bias[:, None, None]


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


class Between(Deformable):
    """Its offsets lie between pixels."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.offset.bias += 0.5


class Clamped(Deformable):
    def forward(self, image):
        return self.deform(image, self.offset(image).clamp(-1, 1))


class Masked(Deformable):
    def forward(self, image):
        return self.deform(image, self.offset(image), torch.ones(1, 9, *image.shape[2:]))


class InPlace(Deformable):
    def forward(self, image):
        offsets = self.offset(image)
        return self.deform(image, offsets.neg_())


class OtherInput(Deformable):
    def forward(self, image):
        return self.deform(image, self.offset(image.flip(-1)))


class Doubled(Deformable):
    def forward(self, image):
        return 2 * super().forward(image)


class WithNorm(Deformable):
    """A layer beside the two."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(2)

    def forward(self, image):
        return self.norm(super().forward(image))


def image(sides=(6, 7), batch=2):
    return torch.randint(-1, 2, (batch, 4, *sides)).float()


@pytest.mark.parametrize("options", [{}, {"kernel": 1}, {"stride": 2}, {"groups": 2}, {"bias": False}], ids=str)
def test_a_pair_is_one_attention_layer_of_the_same_outputs(options):
    pair = Deformable(**options)
    layer = convert(pair, image())
    assert isinstance(layer, MultiHeadSelfAttention)
    for sides in ((6, 7), (9, 5)):
        sample = image(sides)
        assert torch.equal(layer(sample), pair(sample))
    (row,) = conversion_of(layer).rows
    assert row.outcome == "converted"
    assert "bilinear" in row.reason


def test_a_pair_within_a_network_is_replaced():
    network = nn.Sequential(whole(nn.Conv2d(4, 4, 1)), Deformable(), nn.Conv2d(2, 3, 3))
    converted = convert(network, image())
    assert [type(each).__name__ for each in converted] == ["MultiHeadSelfAttention"] * 3
    sample = image((5, 8))
    assert torch.allclose(converted(sample), network(sample), atol=1e-4)


def test_a_network_with_a_shared_pair_stays_shared():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.second = Deformable()

        def forward(self, sample):
            return self.first(sample) + self.second(sample)

    network = Twice()
    converted = convert(network, image())
    assert converted.first is converted.second
    sample = image((5, 8))
    assert torch.equal(converted(sample), network(sample))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Between, "offsets are not whole pixels on the example input: between pixels DeformConv2d is bilinear"),
        (Clamped, r"does not compute deform\(x, offset\(x\)\)"),
        (Masked, r"does not compute deform\(x, offset\(x\)\)"),
        (InPlace, r"does not compute deform\(x, offset\(x\)\)"),
        (OtherInput, r"does not compute deform\(x, offset\(x\)\)"),
        (Doubled, r"does not compute deform\(x, offset\(x\)\)"),
        (WithNorm, "only in a module of its own, together with the Conv2d of its offsets"),
    ],
)
def test_what_is_no_pair_stays_and_says_why(kind, words):
    network = nn.Sequential(kind(), nn.Conv2d(2, 3, 1))
    sample = image()
    converted = convert(network, sample)
    row = next(row for row in conversion_of(converted).rows if row.signature == "DeformConv2d")
    assert row.outcome == "unsupported"
    with pytest.raises(UnsupportedError, match=words):
        raise UnsupportedError("C2A101", row.reason, "")
    assert isinstance(converted[0], kind)
    assert torch.allclose(converted(sample), network(sample), atol=1e-5)


def test_alone_or_without_an_example_a_pair_is_refused_in_a_sentence():
    with pytest.raises(UnsupportedError, match="shows in a run on example_input alone"):
        convert(Deformable())
    with pytest.raises(UnsupportedError, match="only in a module of its own"):
        convert(DeformConv2d(4, 2, 3, padding=1), (image(), torch.zeros(2, 18, 6, 7)))
    with pytest.raises(UnsupportedError, match="alpha and trainable, and no other settings"):
        convert(Deformable(), image(), encoding="enumerated")


def test_hooks_shared_layers_and_offset_groups_are_refused():
    hooked = Deformable()
    hooked.deform.register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="DeformConv2d has hooks"):
        convert(hooked, image())
    shared = nn.Sequential(Deformable(), nn.Conv2d(2, 4, 1))
    shared.extra = shared[0].offset
    shared.forward = lambda x: shared[1](shared[0](x))
    assert "only in a module of its own" in conversion_of(convert(shared, image())).rows[0].reason
    padded = Deformable()
    padded.deform.padding = (0, 0)
    with pytest.raises(UnsupportedError, match=r"C2A101 padding \(0, 0\) in front"):
        convert(padded, image())
    grouped = Deformable()
    grouped.offset = whole(nn.Conv2d(4, 36, 1))
    with pytest.raises(UnsupportedError, match="C2A007 offsets 4->36"):
        convert(grouped, image())


def test_a_soft_pair_trains_and_keeps_what_was_frozen():
    pair = Deformable()
    pair.deform.weight.requires_grad_(False)
    layer = convert(pair, image(), alpha=3.0, trainable=True)
    layer(image()).square().sum().backward()
    assert layer.weight.grad is None
    assert layer.query.grad.abs().sum() > 0


def test_a_certificate_does_not_call_another_sampling_equal():
    pair, sample = Deformable(), image()
    layer = convert(pair, sample)
    assert certify(pair, layer, input_size=(4, 6, 7)).verdict is not Verdict.HOLDS
