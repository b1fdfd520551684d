"""Recover is the inverse of convert, bit for bit, and least squares where attention is soft."""

from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from attentions import OFFSETS
from changes import changed
from hypothesis import given
from suite import convolutions, images_for
from torch import nn

from conv2attn import MultiHeadSelfAttention, convert, recover
from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention import Encoding
from conv2attn.layers.theorem import read_convolution
from conv2attn.span import rows_of
from conv2attn.theory.basis import Padding, Sites

same_warns = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def same_parameters(ours, theirs):
    """Whether two layers have the same parameters bit for bit, the sign of zeros too."""
    ours, theirs = dict(ours.named_parameters()), dict(theirs.named_parameters())
    bits = all(
        torch.equal(p, theirs[name]) and torch.equal(p.signbit(), theirs[name].signbit()) for name, p in ours.items()
    )
    return ours.keys() == theirs.keys() and bits


def joined(module):
    """Parameters of a recovered module, padding in front of it counted as its own."""
    if not isinstance(module, nn.Sequential):
        return read_convolution(module)
    pads, convolution = module[:-1], read_convolution(module[-1])
    amounts = [sum(each) for each in zip(*(pad.padding for pad in pads), strict=True)]
    axes = len(amounts) // 2
    before, after = (tuple(amounts[2 * a + end] for a in reversed(range(axes))) for end in (0, 1))
    return before, after, convolution


@same_warns
@given(convolutions(dtypes=(torch.float32, torch.float64)), st.data())
def test_converting_and_recovering_gives_the_convolution_back(conv, data):
    """The same parameters, and the same numbers: sums of whole ones are exact."""
    with torch.no_grad():
        conv.weight.flatten()[:1] = -0.0
    layer, image = convert(conv), data.draw(images_for(conv, batches=(1, 2)))
    found = recover(layer)
    assert (found.share, found.residual) == (1, 0)
    assert torch.equal(found.module(image), conv(image))
    if isinstance(found.module, nn.Sequential):
        before, after, convolution = joined(found.module)
        assert (before, after) == (layer.image_padding.before, layer.image_padding.after)
        assert torch.equal(convolution.weight, read_convolution(conv).weight)
        return
    ours, theirs = read_convolution(found.module), read_convolution(conv)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.weight.signbit(), theirs.weight.signbit())
    again = convert(found.module)
    assert (again.image_padding, again.sites, again.groups) == (layer.image_padding, layer.sites, layer.groups)
    if max(layer.image_padding.spacing) > 1 or not conv.transposed:
        assert type(found.module) is type(conv)
        assert same_parameters(found.module, conv)


WITHIN = Sites((1, 1), (1, 0), (1, 1))


def hard_layer(padding, encoding="quadratic", sites=WITHIN):
    """A hard layer of integers with any padding and sites."""
    centers = torch.tensor([[-1, 0], [0, 0], [1, 1]], dtype=torch.float64)
    layer = MultiHeadSelfAttention(
        2, 3, Encoding.of(encoding, centers, 1024.0), value=False, dtype=torch.float64, padding=padding, sites=sites
    )
    with torch.no_grad():
        for parameter in (layer.output, layer.bias):
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    return layer


@pytest.mark.parametrize(
    "padding",
    [
        Padding.none(2),
        Padding((2, 0), (0, 1)),
        Padding((1, 2), (0, -1), "reflect"),
        Padding((0, 3), (2, 1), "circular"),
        Padding((-1, 2), (1, 0), "replicate"),
        Padding((-1, -1), (-1, -1)),
        Padding((1, 0), (1, 1), spacing=(2, 3)),
        Padding((2, 1), (-1, -2), spacing=(2, 3)),
    ],
    ids=repr,
)
def test_uneven_and_negative_padding_is_a_layer_in_front_or_behind(padding):
    layer = hard_layer(padding, sites=WITHIN if any(padding.before) else Sites.everywhere(2))
    x = torch.randint(-4, 5, (2, 2, 7, 8)).double()
    assert torch.equal(recover(layer).module(x), layer(x))


def test_the_padding_of_the_layer_counts_and_taps_beyond_it_are_refused():
    layer = convert(nn.Conv2d(2, 3, 3, padding=1).double())
    layer.image_padding = Padding((1, 1), (1, 1), "replicate")
    assert recover(layer).module.padding_mode == "replicate"
    layer = convert(nn.Conv2d(2, 3, 3, padding=1).double())
    changed(layer, "center", lambda numbers: numbers.mul_(2))
    with pytest.raises(UnsupportedError, match="look beyond the zeros padding"):
        recover(layer)


def softened(alpha, conv=None):
    """A converted layer whose heads are soft."""
    layer = convert(conv or nn.Conv2d(2, 3, 3, padding=1).double())
    with torch.no_grad():
        layer.encoding.assign(alpha=alpha)
    return layer


def test_soft_layers_come_nearer_to_their_convolution():
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    found = [recover(softened(alpha, conv), grid=(6, 7)) for alpha in (0.5, 1.0, 3.0, 20.0)]
    shares = [each.share for each in found]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.9
    assert shares[-1] > 1 - 1e-6
    left = [each.residual for each in found[1:]]
    assert left == sorted(left, reverse=True)
    assert torch.allclose(found[-1].module.weight, conv.weight, atol=1e-7)
    assert torch.equal(found[-1].module.bias, conv.bias)
    assert found[0].module.padding == (1, 1)


def test_the_nearest_is_nearest_on_three_dilated_kernels_a_side_by_default():
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    asked = {"kernel_size": (3, 2), "dilation": (1, 2)}
    found, on_a_grid = (recover(softened(1.0, conv), **asked, **grid) for grid in ({}, {"grid": (9, 12)}))
    assert (found.share, found.residual) == (on_a_grid.share, on_a_grid.residual)


@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), (1, 1)), ((1, 2), (1, 1)), ((2, 2), (2, 1))])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_no_other_taps_are_nearer(kernel, dilation, dtype):
    layer, grid, keys = softened(0.7, nn.Conv2d(2, 3, 3, padding=1).to(dtype)), (5, 6), (7, 8)
    found = recover(layer, kernel_size=kernel, dilation=dilation, grid=grid)
    convolution = found.module[-1] if isinstance(found.module, nn.Sequential) else found.module
    taps = convolution.weight.detach().double().flatten(2).permute(2, 0, 1)
    along = [[d * (t - (k - 1) // 2) for t in range(k)] for k, d in zip(kernel, dilation, strict=True)]
    attention = torch.from_numpy(rows_of("soft", layer, grid).read(0, np.arange(30)))
    dense = (
        torch.einsum("hqk,oih->oqik", attention, layer.weight.detach().double().flatten(2))
        .unflatten(-1, keys)
        .unflatten(1, grid)
    )
    left, whole, count, sums = 0.0, 0.0, 0, torch.zeros_like(taps)
    for row, column in product(range(5), range(6)):
        places = [(row + 1 + i, column + 1 + j) for i, j in product(*along)]
        if all(0 <= r < 7 and 0 <= c < 8 for r, c in places):
            ours = dense[:, row, column]
            theirs = torch.zeros_like(ours)
            for t, (r, c) in enumerate(places):
                theirs[:, :, r, c], sums[t] = taps[t], sums[t] + ours[:, :, r, c]
            left, whole, count = left + (ours - theirs).square().sum(), whole + ours.square().sum(), count + 1
    assert convolution.weight.dtype == dtype
    assert torch.equal((sums / count).to(dtype).double(), taps) or dtype == torch.float64
    assert torch.allclose(sums / count, taps, atol=1e-12 if dtype == torch.float64 else 1e-2)
    assert found.residual == pytest.approx(float(left.sqrt()), rel=1e-9)
    assert found.share == pytest.approx(float(1 - left / whole), rel=1e-9)


def test_soft_transposed_and_unpadded_layers_have_a_nearest_convolution():
    transposed = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1).double()
    found = recover(softened(30.0, transposed), grid=(4, 5))
    assert isinstance(found.module, nn.ConvTranspose2d)
    assert found.share > 1 - 1e-9
    encoding = Encoding.of("quadratic", torch.tensor(OFFSETS, dtype=torch.float64), 30.0)
    bare = recover(MultiHeadSelfAttention(2, 3, encoding, dtype=torch.float64), grid=(5, 6))
    assert bare.module.padding_mode == "replicate"
    assert bare.share > 1 - 1e-9


def depending_on_the_image():
    return MultiHeadSelfAttention(1, 1, convert(nn.Conv2d(1, 1, 3)).encoding, d_key=3, terms="qk+vr")
