"""Moving centres: nearest sampling at whole offsets equals a deformable convolution written by its equations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import deformed
from torch import nn

from conv2attn.layers.theorem import deformable_as_attention
from conv2attn.theory.bounds import leaked_mass


@torch.no_grad()
def deformable(mover, conv, image):
    """The convolution with its taps moved by what the first one gives."""
    geometry = {"stride": conv.stride, "padding": conv.padding, "dilation": conv.dilation}
    result = deformed(image, mover(image), conv.weight, conv.bias, **geometry)
    return result[(..., *map(slice, conv(image).shape[2:]))]


@st.composite
def pairs(draw, wide=(False, True)):
    """A convolution of whole numbers and one that it moves, both in float64, and an image.

    The first is 1x1; or wider, of the sides of the image, and then neither has a stride or groups.
    """
    axes, wide = draw(st.integers(1, 2)), draw(st.sampled_from(wide))
    sizes = st.lists(st.integers(1, 3), min_size=axes, max_size=axes).map(tuple)
    kernel, dilation = draw(sizes), draw(sizes)
    stride, groups = ((1,) * axes, 1) if wide else (draw(sizes), draw(st.integers(1, 2)))
    padding = tuple(d * ((k - 1) // 2) for k, d in zip(kernel, dilation, strict=True))
    if wide:
        kernel = tuple(k - 1 + k % 2 for k in kernel)
    kind = (nn.Conv1d, nn.Conv2d)[axes - 1]
    conv = kind(4, 2, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()))
    options = {"padding": 1, "padding_mode": draw(st.sampled_from(["zeros", "reflect", "circular"]))} if wide else {}
    mover = kind(4, axes * conv.weight[0, 0].numel(), 3 if wide else 1, stride, bias=draw(st.booleans()), **options)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    with torch.no_grad():
        for parameter in (*conv.parameters(), *mover.parameters()):
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    sides = draw(st.lists(st.integers(5, 7), min_size=axes, max_size=axes))
    return mover.double(), conv.double(), torch.randint(-1, 2, (1, 4, *sides), generator=generator).double()


@given(pairs())
def test_whole_offsets_are_a_deformable_convolution_bit_for_bit(pair):
    """Those of a wider kernel are written beside the image first."""
    mover, conv, image = pair
    layer = deformable_as_attention(mover, conv)
    assert torch.equal(layer(image).detach(), deformable(mover, conv, image).detach())
    assert torch.equal(layer(image[0]).detach(), layer(image)[0].detach())


@given(pairs((False,)), st.sampled_from([1.0, 3.0, 8.0]))
def test_a_soft_head_misses_by_the_leak_around_the_moved_centre(pair, alpha):
    mover, conv, image = pair
    error = (deformable_as_attention(mover, conv, alpha=alpha)(image) - deformable(mover, conv, image)).abs()
    most = 2 * image.abs().max() * conv.weight.abs().flatten(1).sum(1).max()
    assert (error <= most * leaked_mass(alpha, len(conv.kernel_size)) + 1e-9).all()


def test_between_pixels_a_head_is_a_gaussian_and_not_bilinear():
    """Half way between two pixels both weigh one half at every alpha; at a quarter the nearer one wins."""
    mover, conv = nn.Conv1d(1, 1, 1).double(), nn.Conv1d(1, 1, 1, bias=False).double()
    nn.init.zeros_(mover.weight), nn.init.ones_(conv.weight)
    image = torch.tensor([[[0.0, 8.0, 0.0, 0.0]]]).double()
    for offset, expected in ((0.5, 4.0), (0.25, 0.0), (0.75, 8.0)):
        nn.init.constant_(mover.bias, offset)
        at_zero = deformable_as_attention(mover, conv, alpha=64.0)(image)[0, 0, 0]
        assert at_zero.item() == pytest.approx(expected, abs=1e-9)


def test_the_offsets_and_the_weights_train():
    """Of offsets by a wider kernel the convolution trains, and not the query that reads them."""
    wide = deformable_as_attention(nn.Conv2d(2, 18, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1), alpha=1.0)
    wide(torch.randn(2, 2, 5, 6)).square().sum().backward()
    assert wide[0].offsets.weight.grad.abs().sum() > 0
    assert wide[1].query.grad is None
    layer = deformable_as_attention(nn.Conv2d(2, 18, 1), nn.Conv2d(2, 3, 3, padding=1), alpha=1.0)
    layer(torch.randn(2, 2, 5, 6)).square().sum().backward()
    for name in ("query", "query_bias", "weight", "bias"):
        assert layer.get_parameter(name).grad.abs().sum() > 0, name
