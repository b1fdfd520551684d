"""Patch tokens: a convolution as attention on tokens that are whole patches of pixels (Li et al. 2021)."""

import math
from itertools import product

from torch import Tensor, nn

from conv2attn.errors import GeometryError, UnsupportedError, UsageError
from conv2attn.layers.theorem.convolution import Convolution
from conv2attn.theory.basis import Offset, Padding


class SpaceToDepth(nn.Module):
    """Makes every patch of pixels one token: (batch, channels, *sides) to (batch, channels * pixels, *sides / patch).

    The pixels of a patch are row-major within a channel, as in torch.nn.PixelUnshuffle, on one to three axes.

    Args:
        patch: sides of a patch.
    """

    def __init__(self, patch: Offset):
        super().__init__()
        self.patch = tuple(patch)

    def forward(self, image: Tensor) -> Tensor:
        """The tokens.

        Raises:
            GeometryError: a side is not a whole number of patches (C2A121).
        """
        sides = tuple(image.shape[2:])
        if len(sides) != len(self.patch) or any(side % p for side, p in zip(sides, self.patch, strict=True)):
            raise GeometryError(
                "C2A121", f"sides {sides} are not whole patches of {self.patch}", "Pad the image first."
            )
        axes = len(sides)
        split = (n for side, p in zip(sides, self.patch, strict=True) for n in (side // p, p))
        split_axes = image.reshape(*image.shape[:2], *split)
        order = (0, 1, *(3 + 2 * axis for axis in range(axes)), *(2 + 2 * axis for axis in range(axes)))
        return split_axes.permute(order).flatten(1, 1 + axes)

    def extra_repr(self) -> str:
        """The patch."""
        return f"patch={self.patch}"


class DepthToSpace(nn.Module):
    """The inverse of `SpaceToDepth`: as torch.nn.PixelShuffle, on one to three axes."""

    def __init__(self, patch: Offset):
        super().__init__()
        self.patch = tuple(patch)

    def forward(self, tokens: Tensor) -> Tensor:
        """The image."""
        axes, sides = len(self.patch), tokens.shape[2:]
        split_axes = tokens.unflatten(1, (-1, *self.patch))
        order = (0, 1, *(n for axis in range(axes) for n in (2 + axes + axis, 2 + axis)))
        return split_axes.permute(order).reshape(
            tokens.shape[0], -1, *(side * p for side, p in zip(sides, self.patch, strict=True))
        )

    def extra_repr(self) -> str:
        """The patch."""
        return f"patch={self.patch}"


def as_patches(convolution: Convolution, patch: Offset) -> tuple[Convolution, Offset]:
    """The convolution on tokens that computes `convolution` on pixels, and the sides of the patches that it returns.

    Output pixel `p = stride^-1 patch T + a` of token T reads pixel `stride a + delta` of the patch, which lies in the
    token that is `floor((stride a + delta) / patch)` away: for each tap and each a one block of the token's matrix.

    Args:
        patch: sides of a patch of input pixels; a multiple of the stride.
    Raises:
        UnsupportedError: output and input are not as many whole patches at every size, or padding is not by zeros or
            circular (C2A111).
        UsageError: the patch has other axes, or is not positive (C2A007).
    Source: Li et al. 2021, arXiv 2111.01353, Sec. 3.
    """
    padding, axes = convolution.padding, len(convolution.kernel_size)
    if len(patch) != axes or min(patch, default=0) < 1:
        raise UsageError(
            "C2A007",
            f"patch={patch} is not a positive number for each of {axes} axes",
            "Pass a positive number, or one for each axis.",
        )
    spans = [d * (k - 1) for k, d in zip(convolution.kernel_size, convolution.dilation, strict=True)]
    per_axis = zip(patch, convolution.stride, spans, padding.before, padding.after, strict=True)
    for axis, (p, s, span, before, after) in enumerate(per_axis):
        if p % s or not span - s < before + after <= span:
            geometry = f"axis {axis}: patches of {p} with stride {s}, span {span} and padding {before}, {after}"
            raise UnsupportedError(
                "C2A111",
                f"{geometry} do not give an output of whole patches at every size",
                "Choose a patch that is a multiple of the stride, pad to keep the size, or convert without patch.",
            )
    if padding.mode not in ("zeros", "circular") or max(padding.spacing) > 1:
        raise UnsupportedError(
            "C2A111",
            f"padding by {padding.mode} is none on whole patches",
            "Use padding_mode='zeros', or convert without patch.",
        )
    tables = [token_taps(convolution, patch, axis) for axis in range(axes)]
    low = [min(token for token, *_ in table) for table in tables]
    high = [max(token for token, *_ in table) for table in tables]
    kernel = [most - least + 1 for least, most in zip(low, high, strict=True)]
    outputs = tuple(p // s for p, s in zip(patch, convolution.stride, strict=True))
    weight = convolution.weight.new_zeros(convolution.d_out, *outputs, convolution.weight.shape[1], *patch, *kernel)
    every = slice(None)
    for taps in product(*tables):
        tokens, sources, targets, places = zip(*taps, strict=True)
        index = tuple(token - least for token, least in zip(tokens, low, strict=True))
        weight[(every, *targets, every, *sources, *index)] = convolution.weight[(every, every, *places)]
    matrices = weight.flatten(0, axes).flatten(1, 1 + axes)
    bias = None if convolution.bias is None else convolution.bias.repeat_interleave(math.prod(outputs))
    ones = (1,) * axes
    token_padding = Padding(tuple(-least for least in low), tuple(high), padding.mode, ones)
    return Convolution(matrices, bias, ones, ones, token_padding, convolution.groups), outputs


def token_taps(convolution: Convolution, patch: Offset, axis: int) -> list[tuple[int, int, int, int]]:
    """Along one axis, for each pixel of an output patch and each tap: (token, pixel in it, output pixel, tap)."""
    p, s = patch[axis], convolution.stride[axis]
    entries = []
    for target in range(p // s):
        for tap in range(convolution.kernel_size[axis]):
            source = s * target + convolution.dilation[axis] * tap - convolution.padding.before[axis]
            entries.append((source // p, source % p, target, tap))
    return entries
