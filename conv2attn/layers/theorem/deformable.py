"""Heads whose centre moves with the content: a deformable convolution as self-attention with the terms q.r + v.r.

With `v.r = -alpha |delta - Delta|^2` and `q.r = 2 alpha o(x_q).delta`, for offsets `o(x) = W x + b` of the query's own
channels, the score is `-alpha |delta - (Delta + o(x_q))|^2` plus a term of the query alone, which cancels in the
softmax.
"""

import copy
from dataclasses import replace
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.layer import plain_copy
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.layers.theorem.construction import sharpness_for
from conv2attn.layers.theorem.convolution import Convolution, read_convolution
from conv2attn.theory.basis import Padding, QuadraticSoftmax, Sites


def deformable_as_attention(
    offsets: nn.Module, convolution: nn.Module, *, alpha: float | Literal["auto"] = "auto", trainable: bool = False
) -> MultiHeadSelfAttention | nn.Sequential:
    """The self-attention that samples `convolution` at the pixels nearest to the positions given by `offsets`.

    Tap t of the convolution reads, at output o, the pixel at its place plus the offset computed there by `offsets`:
    channels 2t and 2t + 1 for two axes, as in torchvision.ops.deform_conv2d. Beyond the image it reads zero. If all
    offsets are integers, the attention differs from the deformable convolution by at most the leak of Lemma 2 around
    the moved centre, which is 0 in the dtype for alpha "auto". Between pixels attention is a Gaussian around the moved
    centre, which selects the nearest pixel for a large alpha, unlike the bilinear mean of Dai et al.

    Offsets by a kernel wider than 1x1 do not depend on the query's channels alone. Then a copy of their layer first
    appends them to the image as channels, which the attention reads.

    Args:
        offsets: a convolution from the input to `axes * taps` channels; 1x1 with the convolution's stride, or any
            convolution that keeps the sides of the image, if stride and groups of both are 1.
        convolution: weight, bias, and geometry; torch.nn.Conv2d, or another number of axes, or torchvision's
            DeformConv2d.
        alpha: sharpness of all heads, or "auto": a power of two at which attention is one-hot in the weight's dtype.
        trainable: let gradients reach centres and sharpness too; the offsets always train.
    Raises:
        UnsupportedError: offsets of a wider kernel that has a stride, groups or other sides, or padding other than
            zeros by half a kernel, so that queries are not at their output's pixel (C2A101).
        UsageError: the channels do not fit (C2A007), or alpha is not positive and finite (C2A130).
    Examples:
        >>> import torch
        >>> from conv2attn.layers.theorem import deformable_as_attention
        >>> offsets, conv = torch.nn.Conv2d(3, 2 * 9, 1), torch.nn.Conv2d(3, 4, 3, padding=1)
        >>> deformable_as_attention(offsets, conv)(torch.ones(1, 3, 6, 7)).shape
        torch.Size([1, 4, 6, 7])

    Source: Dai et al. 2017, Eq. (2); Cordonnier et al. 2020, Eq. (8), its second and fourth term; claim DEFORM of
    proofs/.
    """
    mover, sampled = read_convolution(offsets), sampled_convolution(convolution)
    check_deformable(mover, sampled)
    if is_function_of_channels(mover):
        return moving_heads(mover, sampled, alpha, trainable)
    axes, moved = len(sampled.kernel_size), mover.d_out
    # The offsets become channels of the image: the query selects them by an identity, and the kernel gives them zeros.
    picking = torch.eye(moved, device="cpu").to(mover.weight).reshape(moved, moved, *[1] * axes)
    unread = mover.weight.new_zeros(moved, sampled.d_in, *[1] * axes)
    nothing = sampled.weight.new_zeros(sampled.d_out, moved, *sampled.kernel_size)
    ones, zeros = (1,) * axes, (0,) * axes
    reading = Convolution(torch.cat([unread, picking], 1), None, ones, ones, Padding(zeros, zeros), 1)
    wider = replace(sampled, weight=torch.cat([sampled.weight.detach(), nothing], 1))
    layer = moving_heads(reading, wider, alpha, trainable)
    # These select channels and must stay as they are; the offsets train in their own layer.
    for parameter in (layer.query, layer.query_bias):
        assert parameter is not None
        parameter.requires_grad_(False)
    return nn.Sequential(WithOffsets(copy.deepcopy(offsets), axes), layer)


@final
class WithOffsets(nn.Module):
    """Appends the offsets that a layer computes from an image to it as channels."""

    def __init__(self, offsets: nn.Module, axes: int):
        super().__init__()
        self.offsets, self.axes = offsets, axes

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, *sides) to (batch, channels and offsets, *sides)."""
        return torch.cat([image, self.offsets(image)], image.ndim - self.axes - 1)


def moving_heads(
    mover: Convolution, sampled: Convolution, alpha: float | Literal["auto"], trainable: bool
) -> MultiHeadSelfAttention:
    """The attention with one head per tap, whose centres a 1x1 convolution of the query's channels moves."""
    axes, weight = len(sampled.kernel_size), sampled.weight
    centers = torch.tensor(sampled.offsets, device=weight.device, dtype=score_dtype(weight.dtype))
    sharpness = sharpness_for(alpha, weight.dtype)
    outside = [sampled.padding.before, sampled.padding.after, sampled.sites.before, sampled.sites.after]
    before, after, first, last = (tuple(n + 1 for n in each) for each in outside)  # zeros for centres beyond the image
    layer = MultiHeadSelfAttention(
        sampled.d_in,
        sampled.d_out,
        Encoding(QuadraticSoftmax.of(centers, sharpness)).learn(trainable),
        kernel_size=sampled.kernel_size,
        terms="qr+vr",
        affine=True,
        bias=sampled.bias is not None,
        groups=sampled.groups,
        padding=Padding(before, after),
        sites=Sites(sampled.stride, first, last),
        dtype=weight.dtype,
        device=weight.device,
    )
    moves = mover.weight.detach().flatten(1).unflatten(0, (-1, axes))  # (heads, axes, d_in)
    still = mover.weight.new_zeros(mover.d_out) if mover.bias is None else mover.bias.detach()
    layer.query = nn.Parameter(2 * sharpness * nn.functional.pad(moves, (0, 0, 1, 0)))  # |delta|^2 comes first in r
    layer.query_bias = nn.Parameter(2 * sharpness * nn.functional.pad(still.unflatten(0, (-1, axes)), (1, 0)))
    layer.weight = nn.Parameter(plain_copy(weight))
    layer.bias = None if sampled.bias is None else nn.Parameter(plain_copy(sampled.bias))
    return layer


def is_function_of_channels(mover: Convolution) -> bool:
    """Whether offsets depend on the channels of one pixel alone."""
    return max(mover.kernel_size) == 1 and mover.padding.is_identity and mover.groups == 1


def may_stand_beside(mover: Convolution, sampled: Convolution) -> bool:
    """Whether offsets have the sides of the image, so that they may become channels of it."""
    spans = tuple(d * (k - 1) for d, k in zip(mover.dilation, mover.kernel_size, strict=True))
    around = tuple(b + a for b, a in zip(mover.padding.before, mover.padding.after, strict=True))
    plain = max(*mover.stride, *sampled.stride, sampled.groups, *mover.padding.spacing) == 1
    return plain and around == spans


def is_deformable(module: nn.Module) -> bool:
    """Whether a module is torchvision's DeformConv2d, without importing torchvision."""
    kind = type(module)
    return (kind.__module__, kind.__qualname__) == ("torchvision.ops.deform_conv", "DeformConv2d")


def sampled_convolution(module: nn.Module) -> Convolution:
    """The convolution whose taps are moved, from a layer of torch.nn or torchvision's DeformConv2d.

    Raises:
        UnsupportedError, UsageError: as `read_convolution`.
    """
    if not is_deformable(module):
        return read_convolution(module)
    layer: Any = module
    return Convolution(
        layer.weight, layer.bias, layer.stride, layer.dilation, Padding(layer.padding, layer.padding), layer.groups
    )


def check_deformable(mover: Convolution, sampled: Convolution) -> None:
    """Checks that the offsets of a deformable convolution are a function of the query's channels.

    Raises:
        UnsupportedError, UsageError: as `deformable_as_attention`.
    """
    taps, axes = len(sampled.offsets), len(sampled.kernel_size)
    if not is_function_of_channels(mover) and not may_stand_beside(mover, sampled):
        raise UnsupportedError(
            "C2A101",
            f"offsets by a kernel of {mover.kernel_size} with stride {mover.stride} do not have the image's sides",
            "Let them keep the sides of the image, with a stride and groups of 1 in both layers.",
        )
    if (mover.d_in, mover.d_out) != (sampled.d_in, axes * taps) or mover.stride != sampled.stride:
        reason = f"offsets {mover.d_in}->{mover.d_out} with stride {mover.stride}"
        raise UsageError(
            "C2A007",
            f"{reason} do not move {taps} taps along {axes} axes of {sampled.d_in} channels at {sampled.stride}",
            f"Pass a 1x1 convolution to {axes * taps} channels with the stride of the convolution.",
        )
    stands = Sites.of_kernel(sampled.kernel_size, sampled.stride, sampled.dilation)
    if sampled.padding.mode != "zeros" or sampled.padding.before != stands.before or max(sampled.padding.spacing) > 1:
        raise UnsupportedError(
            "C2A101",
            f"padding {sampled.padding.before} ({sampled.padding.mode}) is not zeros by half a kernel",
            f"Use padding={stands.before} with zeros, so that each query is at the pixel of its output.",
        )
