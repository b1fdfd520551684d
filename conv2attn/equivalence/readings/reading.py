"""A convolution and a position-only attention, read into one form that is compared without trying any input."""

from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import final

import torch
from torch import Tensor, nn

from conv2attn.attention import EnumeratedEncoding, MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.attention.hardness import FORMATS
from conv2attn.basis import Offset, Padding, Weights
from conv2attn.equivalence.readings.genuine import foreign
from conv2attn.equivalence.readings.geometry import Geometry, start
from conv2attn.equivalence.readings.positions import Positions
from conv2attn.errors import UnsupportedError
from conv2attn.models.conversion.replacement import present
from conv2attn.models.conversion.sharing import TRANSPOSED
from conv2attn.theorem import Convolution


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """Heads or taps: `starts` says which pixel each copies to output 0, `weights` what it does with it.

    `taps` are the products of value and output where these are plain to see, one factor being an identity. `positions`
    says what the heads attend to; a convolution has none. `partial_sums` are the roundings to the stored format on the
    way of one product, but for the product's own and the bias's.
    """

    geometry: Geometry
    padding: Padding
    offsets: tuple[Offset, ...]
    starts: tuple[Offset, ...]
    weights: Weights
    taps: Tensor | None
    channels: tuple[int, int]
    positions: Positions | None = None
    partial_sums: int = 0

    @property
    def strays(self) -> tuple[int, ...]:
        """The heads whose target is no key for some query of some grid."""
        return self.positions.strays if self.positions else ()

    @property
    def working(self) -> list[int]:
        """The heads that do anything: those with a factor of zeros add nothing, wherever they attend."""
        factors = [w for w in (self.weights.value, self.weights.output) if w is not None]
        used = torch.stack([factor.flatten(1).any(1) for factor in factors]).all(0)
        return [int(head) for head in used.nonzero()]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next(w.dtype for w in (self.weights.output, self.weights.value) if w is not None)

    @property
    def format(self) -> str:
        """The format of the weights."""
        return FORMATS[self.dtype]

    @cached_property
    def magnitudes(self) -> Tensor:
        """For each output channel, the sum of |W_out| |W_val| over heads and input channels, in float64."""
        value, output, groups = self.weights.value, self.weights.output, self.weights.groups
        if value is None or output is None:
            factor = output if value is None else value
            assert factor is not None
            return factor.cpu().double().abs().sum((0, 2))
        inner = value.cpu().double().abs().sum(2).unflatten(1, (groups, -1))
        outer = output.cpu().double().abs().unflatten(1, (groups, -1))
        return torch.einsum("hgok,hgk->go", outer, inner).flatten()


@singledispatch
def reading_of(layer: nn.Module, weights: Weights | None = None) -> Reading:
    """`layer` in the form that is compared, with `weights` instead of its own if given.

    Raises:
        UnsupportedError: it is neither a convolution nor position-only attention.
    """
    with present(layer) as convolution:
        return reading_of_convolution(convolution, transposed=isinstance(layer, TRANSPOSED))


def reading_of_convolution(convolution: Convolution, *, transposed: bool = False) -> Reading:
    """The form of a convolution; torch adds the taps of a `transposed` one in the format in which they are stored."""
    padding, sites, taps = convolution.padding, convolution.sites, convolution.taps().detach()
    bias = None if convolution.bias is None else convolution.bias.detach()
    starts = tuple(start(padding, sites, offset) for offset in convolution.offsets)
    weights = Weights(None, taps, bias, convolution.groups)
    channels = convolution.d_in, convolution.d_out
    geometry, partial_sums = Geometry.of(padding, sites), len(starts) if transposed else 0
    return Reading(geometry, padding, convolution.offsets, starts, weights, taps, channels, partial_sums=partial_sums)


@reading_of.register
def _(layer: MultiHeadSelfAttention, weights: Weights | None = None) -> Reading:
    if reason := foreign(layer):
        raise UnsupportedError("C2A106", f"{layer.name}: {reason}, so what it computes is not known")
    if layer.has_content:
        raise UnsupportedError("C2A101", f"{layer.name}: attention that depends on the content is no convolution")
    encoding, sites, padding = layer.encoding, layer.sites, layer.padding
    if type(encoding) not in (QuadraticEncoding, EnumeratedEncoding):
        raise UnsupportedError(
            "C2A101", f"{layer.name}: attention by {type(encoding).__name__} is not known to be hard"
        )
    assert isinstance(encoding, QuadraticEncoding | EnumeratedEncoding)
    used = weights or layer.weights
    held = [factor for factor in (used.value, used.output) if factor is not None]
    positions = Positions.of(encoding, sites, held[0].dtype, layer.name)
    if any(len(factor) != len(positions.offsets) for factor in held):
        count = len(positions.offsets)
        raise UnsupportedError("C2A105", f"{layer.name}: there are {count} centres, and not as many heads")
    return Reading(
        Geometry.of(padding, sites),
        padding,
        positions.offsets,
        tuple(start(padding, sites, offset) for offset in positions.offsets),
        detached(used),
        plain_taps(used),
        (layer.d_in, layer.d_out),
        positions,
    )


def detached(weights: Weights) -> Weights:
    """The same numbers without their gradients."""
    value, output, bias = (
        None if each is None else each.detach() for each in (weights.value, weights.output, weights.bias)
    )
    return Weights(value, output, bias, weights.groups)


def plain_taps(weights: Weights) -> Tensor | None:
    """`W_val W_out` of each head if one factor is an identity, which makes it exact; else None."""
    value, output, groups = weights.value, weights.output, weights.groups
    if value is None or output is None:
        return weights.taps().detach()
    value, output = value.detach(), output.detach()
    width, d_in = value.shape[1] // groups, value.shape[2]
    if width >= d_in and torch.equal(value, torch.eye(width, d_in).repeat(len(value), groups, 1).to(value)):
        return output[:, :, :d_in]
    rows = output.shape[1] // groups
    if width >= rows and torch.equal(output, torch.eye(rows, width).repeat(len(output), groups, 1).to(output)):
        return value.unflatten(1, (groups, -1))[:, :, :rows].flatten(1, 2)
    return None
