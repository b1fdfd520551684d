"""Heads whose centre moves with the content: a deformable convolution as self-attention with the terms q.r + v.r.

With `v.r = -alpha |delta - Delta|^2` and `q.r = 2 alpha o(x_q).delta`, for offsets `o(x) = W x + b` of the query's own
channels, the score is `-alpha |delta - (Delta + o(x_q))|^2` and a term of the query alone, which the softmax drops.
"""

from typing import Any, Literal

import torch
from torch import nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.layer import plain_copy
from conv2attn.layers.theorem.construction import position_dtype, sharpness_for
from conv2attn.layers.theorem.convolution import Convolution, read_convolution
from conv2attn.theory.basis import Padding, QuadraticSoftmax, Sites


def deformable_as_attention(
    offsets: nn.Module, convolution: nn.Module, *, alpha: float | Literal["auto"] = "auto", trainable: bool = False
) -> MultiHeadSelfAttention:
    """The self-attention that samples `convolution` where `offsets` says, at the nearest pixel.

    Tap t of the convolution reads, at output o, the pixel at its place plus the offset that `offsets` computes there:
    channels 2t and 2t + 1 for two axes, as in torchvision.ops.deform_conv2d. Beyond the image it reads zero. Where all
    offsets are whole numbers, it differs from the deformable convolution by at most the leak of Lemma 2 around the
    moved centre, which "auto" makes 0 in the dtype. Between pixels attention is a Gaussian around the moved centre:
    the nearest pixel for a large alpha, and not the bilinear mean of Dai et al.

    Args:
        offsets: a 1x1 convolution from the input to `axes * taps` channels; its stride is the convolution's.
        convolution: weight, bias, and geometry; torch.nn.Conv2d, or another number of axes, or torchvision's
            DeformConv2d.
        alpha: sharpness of all heads, or "auto": a power of two at which attention is one-hot in the weight's dtype.
        trainable: let gradients reach centres and sharpness too; those of the offsets are always trained.
    Raises:
        UnsupportedError: offsets of a wider kernel, which are no function of the query's channels, or padding other
            than by zeros and half a kernel, where queries do not stand on their output's pixel (C2A101).
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
    axes, weight = len(sampled.kernel_size), sampled.weight
    centers = torch.tensor(sampled.offsets, device=weight.device, dtype=position_dtype(weight.dtype))
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


def is_deformable(module: nn.Module) -> bool:
    """Whether it is torchvision's DeformConv2d, which need not be importable."""
    kind = type(module)
    return (kind.__module__, kind.__qualname__) == ("torchvision.ops.deform_conv", "DeformConv2d")


def sampled_convolution(module: nn.Module) -> Convolution:
    """The convolution of which a deformable one moves the taps: one of torch.nn, or torchvision's DeformConv2d.

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
    if max(mover.kernel_size) > 1 or not mover.padding.is_identity or mover.groups > 1:
        raise UnsupportedError(
            "C2A101",
            f"offsets by a kernel of {mover.kernel_size} with padding or groups read more than the query's channels",
            "Put what the wider kernel computes into the channels first, and pass a 1x1 convolution behind it.",
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
            f"padding {sampled.padding.before} in front ({sampled.padding.mode}) is not zeros by half a kernel",
            f"Use padding={stands.before} with zeros, so that each query stands on the pixel of its output.",
        )
