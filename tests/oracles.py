"""Oracles: torch's convolution in float64, loops over Python numbers, and derived tolerances."""

import copy
import itertools
import math

import torch
from softmax_rounding import softmax_error

from conv2attn.theory.bounds import convolution_bound


def convolve(conv, image, dtype=None):
    """The output of `conv` on `image` in float64 on the CPU; on whole numbers within the budget this is exact."""
    exact = copy.deepcopy(conv).cpu().double()(image.cpu().double()).detach()
    return exact if dtype is None else exact.to(dtype).to(image.device)


def magnitudes(conv, image):
    """`|W| * |X| + |b|` in float64."""
    sizes = copy.deepcopy(conv).cpu().double()
    with torch.no_grad():
        for parameter in sizes.parameters():
            parameter.abs_()
        return sizes(image.cpu().double().abs())


def rounding_allowed(conv, image, casts=2):
    """Bound on |a layer computed directly in the image's dtype - `convolve`|: `gamma_n (|W| * |X| + |b|)` for both.

    `casts` is how often a partial sum is stored on the way, which counts in half precision.
    """
    terms = conv.in_channels // conv.groups * math.prod(conv.kernel_size)
    sizes = magnitudes(conv, image)
    total = torch.zeros_like(sizes)
    for name in (str(image.dtype).removeprefix("torch."), "float64", "float64"):
        bound = convolution_bound(terms, name, casts=casts)
        total += bound.factor * sizes + bound.absolute
    return total


def deformed(image, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    """Eqs. (2) to (4) of Dai et al. 2017: linear sampling at moved taps, zero beyond the image; one offset group."""
    sides, axes, total = image.shape[2:], range(image.ndim - 2), 0
    outputs = torch.meshgrid(*(torch.arange(side) for side in offset.shape[2:]), indexing="ij")
    for number, tap in enumerate(itertools.product(*map(range, weight.shape[2:]))):
        moves = offset[:, len(sides) * number :].unbind(1)
        at = [outputs[a] * stride[a] - padding[a] + dilation[a] * tap[a] + moves[a] for a in axes]
        read = 0
        for corner in itertools.product((0, 1), repeat=len(sides)):
            place = [x.floor() + step for x, step in zip(at, corner, strict=True)]
            share, pixel = 1, 0
            for x, p, side in zip(at, place, sides, strict=True):
                share = share * (1 - (x - p).abs()) * ((p >= 0) & (p < side))
                pixel = pixel * side + p.clamp(0, side - 1).long()
            pixels = image.flatten(2).gather(2, pixel.flatten(1)[:, None].expand(-1, image.shape[1], -1))
            read = read + pixels.unflatten(2, pixel.shape[1:]) * share[:, None]
        read = read if mask is None else read * mask[:, number, None]
        groups = image.shape[1] // weight.shape[1]
        taps = weight[(..., *tap)].unflatten(0, (groups, -1))
        total = total + torch.einsum("goc,bgc...->bgo...", taps, read.unflatten(1, (groups, -1))).flatten(1, 2)
    return total if bias is None else total + bias.view(-1, *[1] * len(sides))


def soft_allowed(layer, image, extra=0.0):
    """Bound on the difference of two orders of evaluating a soft layer in float64, one axis after another at worst.

    `extra` is an error of the scores beside their own rounding.
    """
    axes, keys = layer.dimensions, math.prod(layer.image_padding.sides(tuple(image.shape[2:])))
    reach = max(layer.image_padding.sides(tuple(image.shape[2:]))) + abs(layer.encoding.center).max().item()
    score_error = extra + 8 * 2.0**-53 * abs(layer.encoding.alpha).max().item() * axes * reach**2
    off, mean = softmax_error(keys, "float64", score_error), convolution_bound(keys, "float64", bias=False)
    mixing = off + (1 + off) * mean.factor
    read = (1 + axes) * (mixing * image.abs().max().item() + mean.absolute)
    taps = layer.weights.taps().detach()
    weight = taps.abs().sum((0, 2)).max().item()
    rounding = convolution_bound(taps[:, 0].numel() + 1, "float64").factor
    bias = 0.0 if layer.bias is None else layer.bias.abs().max().item()
    return 2 * (weight * read + rounding * (weight * (image.abs().max().item() + read) + bias))
