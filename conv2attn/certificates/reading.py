"""A convolution and a hard attention, read into one form that can be compared without trying any input."""

from dataclasses import dataclass
from functools import singledispatch
from typing import final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding, Weights
from conv2attn.attention.hardness import FORMATS, on_pixels
from conv2attn.basis import Offset, Padding, Sites
from conv2attn.errors import UnsupportedError
from conv2attn.theorem import Convolution, read


@final
@dataclass(frozen=True)
class Geometry:
    """For inputs of every size: output o of tap t copies input pixel `start[t] + o * stride`, in units of 1 / spacing.

    There are `floor((spacing * (side - 1) + room) / stride) + 1` outputs along an axis; the mode says what lies beyond
    the pixels. Equal forms are equal maps at every size.
    """

    stride: Offset
    room: Offset
    mode: str
    spacing: Offset

    @staticmethod
    def of(padding: Padding, sites: Sites) -> "Geometry":
        """The form of queries at `sites` of an image under `padding`."""
        gained = [b + a for b, a in zip(padding.before, padding.after, strict=True)]
        spent = [b + a for b, a in zip(sites.before, sites.after, strict=True)]
        room = tuple(g - s for g, s in zip(gained, spent, strict=True))
        mode = padding.mode if any(padding.before) or any(padding.after) else "zeros"
        return Geometry(sites.stride, room, mode, padding.spacing)


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """Heads or taps: `starts` says which pixel each copies to output 0, `taps` (terms, d_out, d_in / groups) how.

    `taps` is None where the product of value and output is not exact to form. `alphas` is empty for a convolution.
    `strays` are the terms whose key can lie off the padded grid, `between` those centred between pixels.
    """

    geometry: Geometry
    offsets: tuple[Offset, ...]
    starts: tuple[Offset, ...]
    taps: Tensor | None
    bias: Tensor | None
    groups: int
    alphas: tuple[float, ...] = ()
    strays: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    leak_axes: int = 0

    @property
    def dtype(self) -> str:
        """The format of the weights."""
        held = self.taps if self.taps is not None else self.bias
        return FORMATS[held.dtype] if held is not None else "float32"


@singledispatch
def reading_of(layer: nn.Module) -> Reading:
    """`layer` in the form that is compared.

    Raises:
        UnsupportedError: it is neither a convolution nor position-only attention.
    """
    return reading_of_convolution(read(layer))


def reading_of_convolution(convolution: Convolution) -> Reading:
    """The form of a convolution."""
    padding, sites = convolution.padding, convolution.sites
    starts = tuple(start(padding, sites, offset) for offset in convolution.offsets)
    taps = convolution.taps().detach()
    bias = None if convolution.bias is None else convolution.bias.detach()
    return Reading(Geometry.of(padding, sites), convolution.offsets, starts, taps, bias, convolution.groups)


@reading_of.register
def _(layer: MultiHeadSelfAttention) -> Reading:
    if layer.has_content:
        raise UnsupportedError("C2A101", f"{layer.name}: attention that depends on the content is no convolution")
    centers = layer.encoding.center.tolist()
    offsets = tuple(tuple(round(x) for x in center) for center in centers)
    sites = layer.sites
    strays = [
        head
        for head, offset in enumerate(offsets)
        if not all(-b <= o <= a for b, o, a in zip(sites.before, offset, sites.after, strict=True))
    ]
    weights = Weights(layer.value, layer.output, layer.bias, layer.groups)
    return Reading(
        Geometry.of(layer.padding, sites),
        offsets,
        tuple(start(layer.padding, sites, offset) for offset in offsets),
        exact_taps(weights),
        None if layer.bias is None else layer.bias.detach(),
        layer.groups,
        tuple(layer.encoding.alpha.tolist()),
        tuple(strays),
        tuple(head for head, center in enumerate(centers) if not on_pixels([center])),
        layer.dimensions if isinstance(layer.encoding, QuadraticEncoding) else 1,
    )


def start(padding: Padding, sites: Sites, offset: Offset) -> Offset:
    """Where output 0 reads through `offset`, from the first pixel."""
    return tuple(b + o - p for b, o, p in zip(sites.before, offset, padding.before, strict=True))


def exact_taps(weights: Weights) -> Tensor | None:
    """`W_val W_out` of each head if one factor is an identity, which makes it exact; else None."""
    value, output, groups = weights.value, weights.output, weights.groups
    if value is None or output is None:
        return weights.taps().detach()
    value, output = value.detach(), output.detach()
    if same_bits(value, torch.eye(value.shape[1] // groups, value.shape[2]).repeat(len(value), groups, 1).to(value)):
        return output[:, :, : value.shape[2]]
    rows = output.shape[1] // groups
    if same_bits(output, torch.eye(rows, output.shape[2]).repeat(len(output), groups, 1).to(output)):
        return value.unflatten(1, (groups, -1))[:, :, :rows].flatten(1, 2)
    return None


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and values, bit for bit, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
