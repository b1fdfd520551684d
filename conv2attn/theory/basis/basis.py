"""`Basis`, the description of a layer: a geometry, a family of token mixings with a channel matrix each, and a bias."""

import math
import sys
from dataclasses import dataclass
from functools import reduce, singledispatch
from importlib import import_module
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis.grid import Offset, Sides, Sites
from conv2attn.theory.basis.operator import Operator, moved_to
from conv2attn.theory.basis.operators import Composition, apply, as_matrix, combine, offsets, output_sides, terms
from conv2attn.theory.basis.padding import Padding
from conv2attn.theory.basis.weights import Weights


@final
@dataclass(frozen=True)
class Form:
    """Which positions a layer reads at every size: output o of a term reads position `start + o * stride`.

    Pixel i of an axis is at position `i * spacing`. An axis with `side` pixels has
    `floor((spacing * (side - 1) + room) / stride) + 1` outputs. Two layers with equal forms, and equal sums of weights
    at equal starts, are equal maps at every size, except for the values that their paddings put beyond the pixels.

    Args:
        stride: positions from one output to the next, for every axis.
        room: the number of keys that padding adds to an axis, minus the number of keys without a query.
        spacing: positions from one pixel to the next; above 1 if zeros are stuffed between pixels.
    """

    stride: Offset
    room: Offset
    spacing: Offset

    @staticmethod
    def of(padding: Padding, sites: Sites) -> "Form":
        """The form of a layer with queries at `sites` of an image that is padded by `padding`."""
        # Padding gives an axis more keys, and the sites leave some keys without a query. Only the difference matters:
        # a layer that pads less and starts earlier may have an equal form.
        gained = [b + a for b, a in zip(padding.before, padding.after, strict=True)]
        spent = [b + a for b, a in zip(sites.before, sites.after, strict=True)]
        return Form(sites.stride, tuple(g - s for g, s in zip(gained, spent, strict=True)), padding.spacing)

    def reaches_out(self, start: Offset) -> bool:
        """Whether a term with this start reads a position beyond the pixels, for some output at some size."""
        # Output 0 reads `start`. At a size that leaves no remainder, the last output reads `start + room` beyond the
        # last pixel. All other outputs lie between the two.
        return any(s < 0 or s + room > 0 for s, room in zip(start, self.room, strict=True))


@final
@dataclass(frozen=True, eq=False)
class Basis:
    """`y = sum_k P_k x M_k^T + b` with `P_k = S O_k D` (Andreoli 2019, Eq. 8).

    D pads the image, `O_k` mixes the tokens of the padded grid, and S selects the queries. The padded sides and the
    sites of the queries are affine in the sides of the image, so one basis describes a layer at every size.

    Args:
        operators: the family of all `O_k`: the shifts of a convolution, the softmaxes of an attention.
        weights: the `M_k` in factors, and the bias.
        padding: D.
        sites: S.
    """

    operators: Operator
    weights: Weights
    padding: Padding
    sites: Sites

    @property
    def mixing(self) -> Composition:
        """The family of the `P_k`."""
        return Composition((self.sites, self.operators, self.padding))

    @property
    def form(self) -> Form:
        """The form of the layer, which says what its outputs read at every size."""
        return Form.of(self.padding, self.sites)

    @property
    def starts(self) -> tuple[Offset, ...]:
        """For every operator of a family with targets, the position that output 0 reads; the first pixel is at 0."""
        first = [b - p for b, p in zip(self.sites.before, self.padding.before, strict=True)]
        return tuple(tuple(f + o for f, o in zip(first, offset, strict=True)) for offset in offsets(self.operators))


def basis_of(operators: Operator, weights: Weights, dimensions: int) -> Basis:
    """A basis without padding, in which the operators map the grid of the image to the grid of the output."""
    return Basis(operators, weights, Padding.none(dimensions), Sites.everywhere(dimensions))


LIBRARY_READERS = {
    "torch_geometric": "conv2attn.layers.framework.geometric",
    "torch": "conv2attn.layers.theorem.convolution",
}
"""For each library, the module whose rules read its layers. It is imported when the first such layer is read."""


@singledispatch
def as_basis(layer: object, *structure: Any) -> Basis:
    """The basis of a linear layer: the operators of a convolution are shifts, those of an attention are softmaxes.

    A graph layer of torch_geometric needs its graph as `structure`: a `Graph`, data of torch_geometric, or an
    edge_index. The largest node in an edge_index counts as the last node of the graph.

    Raises:
        UnsupportedError: no rule reads this kind of layer (C2A101).
    Examples:
        >>> import conv2attn, torch
        >>> conv2attn.as_basis(torch.nn.Conv2d(3, 4, (1, 3))).operators
        Shift(offsets=((0, -1), (0, 0), (0, 1)))
    """
    # The rules of another library register when their module is imported, so conv2attn works without that library. If
    # the second call finds no rule either, the module is in sys.modules by then, and the error below is raised.
    libraries = [kind.__module__.partition(".")[0] for kind in type(layer).__mro__]
    for home in (home for library, home in LIBRARY_READERS.items() if library in libraries):
        if home not in sys.modules:
            import_module(home)
            return as_basis(layer, *structure)
    raise UnsupportedError(
        "C2A101",
        f"{type(layer).__name__} cannot be read as a basis convolution",
        "Pass a convolution of torch.nn, an attention layer of conv2attn, or a Basis.",
    )


@as_basis.register
def _(layer: Basis) -> Basis:
    return layer


def field(basis: Basis, sides: Sides) -> Tensor:
    """The bias as a field (d_out, *queries), or as a tensor that broadcasts to it."""
    bias, axes = basis.weights.bias, len(output_sides(basis.mixing, sides))
    if bias is None:
        return basis.weights.stored.new_zeros(basis.weights.d_out, *[1] * axes)
    return bias if bias.ndim > 1 else bias.reshape(-1, *[1] * axes)


def as_affine_map(basis: Basis, sides: Sides) -> tuple[Tensor, Tensor]:
    """The matrix (d_out * queries, d_in * keys) and the bias vector of the map at one size, float64 on the CPU."""
    basis = moved_to(basis, "cpu")
    whole = torch.einsum("toi,tqk->oqik", basis.weights.dense().double(), as_matrix(basis.mixing, sides))
    queries = output_sides(basis.mixing, sides)
    bias = field(basis, sides).double().expand(basis.weights.d_out, *queries)
    return whole.reshape(basis.weights.d_out * math.prod(queries), -1), bias.reshape(-1)


def evaluate(basis: Basis, image: Tensor) -> Tensor:
    """`sum_k P_k x M_k^T + b` for image (batch, d_in, *sides): (batch, d_out, *queries).

    Raises:
        UsageError: channels or terms do not fit (C2A120, C2A122).
    Source: Andreoli 2019, Fig. 1; the two sides of its triangle are the two orders of evaluation.
    """
    sides, weights = tuple(image.shape[2:]), basis.weights
    if image.shape[1] != weights.d_in:
        reason = f"an image of {image.shape[1]} channels, but the layer reads {weights.d_in}"
        raise UsageError("C2A120", reason, "Pass an image with that many channels.")
    if terms(basis.mixing) != len(weights.stored):
        counts = f"{terms(basis.mixing)} operators for {len(weights.stored)} channel matrices"
        raise UsageError("C2A122", f"a basis of {counts}", "Pass as many operators as there are channel matrices.")
    # Mixing tokens costs the same for every channel, so it runs where there are fewer channels: after the channel
    # matrices if the layer has fewer outputs than inputs, otherwise before them.
    rule = channels_first if weights.d_out < weights.d_in and len(weights.stored) else mixing_first
    return rule(basis, image, sides) + field(basis, sides)


def mixing_first(basis: Basis, image: Tensor, sides: Sides) -> Tensor:
    """Computes `P_k x` for all k, then applies the channel matrices."""
    mixed, groups = apply(basis.mixing, image, sides), basis.weights.groups
    if groups == 1 and len(mixed):
        # One term after another: an einsum over all terms would copy all of them at once.
        return reduce(Tensor.add, map(in_channels, mixed, basis.weights.taps()))
    taps = basis.weights.taps().unflatten(1, (groups, -1))
    return torch.einsum("tbgi...,tgoi->bgo...", mixed.unflatten(2, (groups, -1)), taps).flatten(1, 2)


def channels_first(basis: Basis, image: Tensor, sides: Sides) -> Tensor:
    """Computes `x M_k^T` for all k, then mixes the tokens."""
    taps, groups = basis.weights.taps(), basis.weights.groups
    if groups == 1:
        return combine(basis.mixing, torch.stack([in_channels(image, tap) for tap in taps]), sides)
    grouped, taps = image.unflatten(1, (groups, -1)), taps.unflatten(1, (groups, -1))
    return combine(basis.mixing, torch.einsum("bgi...,tgoi->tbgo...", grouped, taps).flatten(2, 3), sides)


def in_channels(image: Tensor, tap: Tensor) -> Tensor:
    """`x M^T` of one term: (batch, d_out, *sides). The order of the axes in memory is kept."""
    return torch.nn.functional.linear(image.movedim(1, -1), tap).movedim(-1, 1)


def compose(second: Basis, first: Basis, sides: Sides) -> Basis:
    """`second` after `first` as one basis, for inputs with these sides. It is exact at the borders too.

    Its terms are `(P''_j P'_k, M''_j M'_k)` for all j, k, in that order, and its bias is the field
    `b'' + sum_j (P''_j b') M''_j^T`, which varies over the queries where `second` pads with zeros.

    Raises:
        UsageError: the channels do not fit (C2A120).
    Source: Andreoli 2019, Proposition 3.
    """
    outer, inner = second.weights, first.weights
    if outer.d_in != inner.d_out:
        reason = f"the second layer reads {outer.d_in} channels, the first gives {inner.d_out}"
        remedy = "Pass a first layer that gives as many channels as the second reads."
        raise UsageError("C2A120", reason, remedy)
    # `Composition` numbers its terms by j first, then k, and the channel matrices follow it.
    taps = torch.einsum("joc,kci->jkoi", outer.dense(), inner.dense()).flatten(0, 1)
    between = output_sides(first.mixing, sides)
    # The first bias arrives through the second operators: less of it where the second layer pads with zeros.
    carried = apply(second.mixing, field(first, sides).expand(inner.d_out, *between), between)
    bias = field(second, between) + torch.einsum("toc,tc...->o...", outer.dense(), carried)
    return basis_of(Composition((second.mixing, first.mixing)), Weights(None, taps, bias), len(sides))
