"""Two layers as values of `Basis`, so that they are compared without trying any input."""

from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import EnumeratedEncoding, GeneralisedEncoding, MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.attention.hardness import FORMATS
from conv2attn.attention.recipe import score_dtype
from conv2attn.basis import (
    Basis,
    EnumeratedSoftmax,
    GeneralisedSoftmax,
    QuadraticSoftmax,
    Shift,
    Weights,
    as_basis,
    offsets,
)
from conv2attn.equivalence.covariances import not_one_hot
from conv2attn.equivalence.monkeypatched import monkeypatch_of
from conv2attn.errors import UnsupportedError
from conv2attn.models.conversion.replacement import present
from conv2attn.models.conversion.sharing import TRANSPOSED
from conv2attn.theorem import Convolution


@final
@dataclass(frozen=True, eq=False)
class Pair:
    """Two layers to compare.

    `scattered` says which of them torch computes as a transposed convolution: by adding up the taps of an output in the
    format in which it is stored.
    """

    original: Basis
    converted: Basis
    scattered: tuple[bool, bool] = (False, False)

    @cached_property
    def magnitudes(self) -> tuple[Tensor, Tensor]:
        """For each output channel of either layer, the sum of |W_out| |W_val| over terms and input channels."""
        return magnitudes(self.original), magnitudes(self.converted)

    @staticmethod
    def of(original: nn.Module, converted: nn.Module) -> "Pair":
        """The bases of two layers.

        Raises:
            UnsupportedError: as `comparable_basis`.
        """
        layers = original, converted
        scattered = tuple(isinstance(layer, TRANSPOSED) for layer in layers)
        return Pair(comparable_basis(original), comparable_basis(converted), (scattered[0], scattered[1]))


@singledispatch
def comparable_basis(layer: Any, weights: Weights | None = None) -> Basis:
    """The basis of a convolution or a position-only attention as it is now, with `weights` instead of its own if given.

    A factor that is an identity is left out, and the centres of the heads are those that the scores are computed from.
    Heads with full covariances that are one-hot as computed are shifts.

    Raises:
        UnsupportedError: it is neither, or its code was replaced (C2A101, C2A105, C2A106), or a centre is not finite
            (C2A408).
    """
    with present(layer) as convolution:
        return comparable_basis(convolution)


@comparable_basis.register
def _(convolution: Convolution, weights: Weights | None = None) -> Basis:
    basis = as_basis(convolution)
    return Basis(basis.operators, without_identities(basis.weights), basis.padding, basis.sites)


@comparable_basis.register
def _(layer: MultiHeadSelfAttention, weights: Weights | None = None) -> Basis:
    if reason := monkeypatch_of(layer):
        raise UnsupportedError("C2A106", f"{layer.name}: {reason}, so what it computes is not known")
    if layer.has_content:
        raise UnsupportedError("C2A101", f"{layer.name}: attention that depends on the content is no convolution")
    encoding, used = layer.encoding, weights or layer.weights
    if type(encoding) not in (QuadraticEncoding, EnumeratedEncoding, GeneralisedEncoding):
        raise UnsupportedError(
            "C2A101", f"{layer.name}: attention by {type(encoding).__name__} is not known to be hard"
        )
    assert isinstance(encoding, QuadraticEncoding | EnumeratedEncoding | GeneralisedEncoding)
    center, sharpness = (value.detach() for value in encoding.operators().values)
    if not bool(center.isfinite().all()):
        raise UnsupportedError("C2A408", f"{layer.name}: a centre is not finite")
    if isinstance(encoding, GeneralisedEncoding) and not bool(sharpness.isfinite().all()):
        raise UnsupportedError("C2A408", f"{layer.name}: a covariance is not finite")
    if any(len(factor) != len(center) for factor in (used.value, used.output) if factor is not None):
        raise UnsupportedError("C2A105", f"{layer.name}: there are {len(center)} centres, and not as many heads")
    operators: Any = EnumeratedSoftmax(center.double(), sharpness)
    computed = score_dtype(used.stored.dtype)
    if isinstance(encoding, QuadraticEncoding):
        operators = QuadraticSoftmax(center.to(computed), sharpness)
    if isinstance(encoding, GeneralisedEncoding):
        operators = GeneralisedSoftmax(center.to(computed), sharpness.to(computed))
    basis = Basis(operators, without_identities(used), layer.padding, layer.sites)
    hard = isinstance(encoding, GeneralisedEncoding) and not not_one_hot(basis)
    return replace(basis, operators=Shift(offsets(operators))) if hard else basis


def without_identities(weights: Weights) -> Weights:
    """Equal channel matrices, detached, in one factor where the other is an identity: then no sum is formed."""
    value, output, bias = (None if w is None else w.detach() for w in (weights.value, weights.output, weights.bias))
    taps = None if value is None or output is None else taps_beside_identity(value, output, weights.groups)
    return Weights(value, output, bias, weights.groups) if taps is None else Weights(None, taps, bias, weights.groups)


def taps_beside_identity(value: Tensor, output: Tensor, groups: int) -> Tensor | None:
    """`W_val W_out` of each head if one factor is an identity, padded with zeros or not; else None."""
    width, d_in, d_out = value.shape[1] // groups, value.shape[2], output.shape[1] // groups
    if width >= d_in and torch.equal(value, torch.eye(width, d_in).repeat(len(value), groups, 1).to(value)):
        return output[:, :, :d_in]
    if width >= d_out and torch.equal(output, torch.eye(d_out, width).repeat(len(output), groups, 1).to(output)):
        return value.unflatten(1, (groups, -1))[:, :, :d_out].flatten(1, 2)
    return None


def taps_of(basis: Basis) -> Tensor | None:
    """`W_val W_out` of each term where this takes no product, (terms, d_out, d_in / groups); else None."""
    weights = basis.weights
    return weights.taps() if weights.value is None or weights.output is None else None


def format_of_weights(basis: Basis) -> str:
    """The name of the format of the weights."""
    return FORMATS[basis.weights.stored.dtype]


def channels(basis: Basis) -> tuple[int, int]:
    """Numbers of input and of output channels."""
    return basis.weights.d_in, basis.weights.d_out


def working_heads(basis: Basis) -> list[int]:
    """The terms that do anything: one with a factor of zeros adds nothing, wherever it reads."""
    factors = [w for w in (basis.weights.value, basis.weights.output) if w is not None]
    used = torch.stack([factor.flatten(1).any(1) for factor in factors]).all(0)
    return [int(head) for head in used.nonzero()]


def magnitudes(basis: Basis) -> Tensor:
    """For each output channel, the sum of |W_out| |W_val| over terms and input channels, in float64."""
    value, output, groups = basis.weights.value, basis.weights.output, basis.weights.groups
    if value is None or output is None:
        return basis.weights.stored.cpu().double().abs().sum((0, 2))
    inner = value.cpu().double().abs().sum(2).unflatten(1, (groups, -1))
    outer = output.cpu().double().abs().unflatten(1, (groups, -1))
    return torch.einsum("hgok,hgk->go", outer, inner).flatten()
