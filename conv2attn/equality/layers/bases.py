"""Two layers as values of `Basis`, so that they are compared without trying any input."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.layers.exact_sums import differences_of_sums
from conv2attn.equality.twins.monkeypatches import monkeypatch_of
from conv2attn.errors import AlphaError, UnsupportedError
from conv2attn.layers.attention import ENGINES, MultiHeadSelfAttention
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.measured_arithmetic import thread_flushes
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.layers.theorem import Convolution
from conv2attn.networks.conversion.computed_weights import current_convolution, evaluated_weight, weight_changes
from conv2attn.theory.basis import (
    Basis,
    EnumeratedSoftmax,
    GeneralisedSoftmax,
    Offset,
    Operator,
    Positions,
    QuadraticSoftmax,
    Shift,
    Sites,
    Weights,
    as_basis,
    isotropic,
    offsets,
)
from conv2attn.theory.bounds import Head, one_hot_threshold, smallest_eigenvalue_at_least
from conv2attn.theory.bounds.formats import accumulator_of
from conv2attn.theory.bounds.sum_rounding import gamma

UNKNOWN_SHIFT = 1.0  # the shift of a head with unknown leak


def heads_of(basis: Basis) -> tuple[Head, ...]:
    """The softmax heads of a basis whose centres are finite; a family of shifts has none."""
    return soft_heads(basis.operators, basis.sites)


def heads_out_of_bounds(basis: Basis) -> list[int]:
    """The heads whose target is off the padded grid for some query and grid, so that they read the nearest key."""
    return [number for number, head in enumerate(heads_of(basis)) if head.outside]


@singledispatch
def soft_heads(operators: object, sites: Sites) -> tuple[Head, ...]:
    """The heads of a family of operators for queries at `sites`."""
    raise UnsupportedError(
        "C2A110", f"soft_heads has no rule for {type(operators).__name__}", "Register a rule for soft_heads."
    )


@soft_heads.register
def _(operators: Shift, sites: Sites) -> tuple[Head, ...]:
    return ()


@soft_heads.register
def _(operators: QuadraticSoftmax, sites: Sites) -> tuple[Head, ...]:
    heads = zip(operators.center.tolist(), offsets(operators), operators.alpha.tolist(), strict=True)
    return tuple(
        soft_head(alpha, [abs(x - round(x)) for x in center], distance_outside(sites, offset))
        for center, offset, alpha in heads
    )


@soft_heads.register
def _(operators: EnumeratedSoftmax, sites: Sites) -> tuple[Head, ...]:
    """On a line, the enumeration counts pixels; with several axes, leaks are known only for pixels inside the grid."""
    # Pixels are enumerated row by row, so with several axes a difference of numbers is not a distance. Then only a head
    # on a pixel of the grid is known: its own key has the only score of zero.
    if operators.center.shape[1] == 1:
        return soft_heads(QuadraticSoftmax(operators.center, operators.alpha), sites)
    heads = zip(operators.center.tolist(), offsets(operators), operators.alpha.tolist(), strict=True)
    soft = []
    for center, offset, alpha in heads:
        outside = any(distance_outside(sites, offset))
        on_a_pixel = center == list(offset) and not outside
        shift, distance = (0.0, 0.0) if on_a_pixel else (UNKNOWN_SHIFT, math.inf)
        soft.append(Head(alpha, (shift,), distance, outside, box=False))
    return tuple(soft)


@soft_heads.register
def _(operators: GeneralisedSoftmax, sites: Sites) -> tuple[Head, ...]:
    """Heads whose leak is unknown, with an alpha that bounds the rounding of their scores.

    A score is rounded by at most `(3 axes + 4) u |root|_F^2 |n|^2 / 2`. The bound for a quadratic head, `4 u alpha
    |n|^2`, is at least as large if `alpha = (axes + 1) |root|_F^2 / 2`.
    """
    axes = operators.center.shape[1]
    steepest = (operators.root.cpu().double().square().sum((1, 2)) * (axes + 1) / 2).tolist()
    heads = zip(steepest, offsets(operators), strict=True)
    return tuple(soft_head(alpha, [UNKNOWN_SHIFT] * axes, distance_outside(sites, offset)) for alpha, offset in heads)


def soft_head(alpha: float, shifts: Iterable[float], outside: Iterable[float]) -> Head:
    """The head with these shifts and distances off the grid, one per axis of its scores."""
    shifts, outside = tuple(shifts), tuple(outside)
    # A few squares and sums in float64, rounded up by far more than their error.
    distance = sum((over + shift) ** 2 for over, shift in zip(outside, shifts, strict=True)) * (1 + 2.0**-40)
    return Head(alpha, shifts, distance, any(outside))


def distance_outside(sites: Sites, offset: Offset) -> tuple[int, ...]:
    """For each axis, the distance of the outermost query's target from the grid, on every grid."""
    return tuple(
        max(0, -before - o, o - after) for before, o, after in zip(sites.before, offset, sites.after, strict=True)
    )


LONGEST_DISPLACEMENT = 2.0**25  # sides are below 2^24
MARGIN = 1 - 2.0**-20  # chosen: far more than the few float64 roundings of a gap


@singledispatch
def not_one_hot(heads: Operator, basis: Basis) -> str:
    """The reason why heads with full covariances may not compute exact shifts; empty if they do."""
    return ""


@not_one_hot.register
def _(heads: GeneralisedSoftmax, basis: Basis) -> str:
    kind = FORMAT_NAMES[basis.weights.stored.dtype]
    for head, (target, center, root) in enumerate(zip(offsets(heads), *heads.values, strict=True)):
        label = f"head {head}, with a full covariance, "
        if center.tolist() != list(target):
            return f"{label}is centred between pixels"
        if any(distance_outside(basis.sites, target)):
            return f"{label}has targets off the grid, where it does not read the nearest key"
        gap = gap_of(root.cpu().double(), kind)
        if not gap >= one_hot_threshold(kind):
            return f"{label}is not known to be one-hot: its sharpness is at least {gap:.3g}"
    return ""


def gap_of(root: torch.Tensor, format_name: str) -> float:
    """A lower bound g on the sharpness: a key n pixels from the target has a computed score of at most `-g |n|^2`; 0 if
    unknown.

    The target is a pixel, and its score is 0. The score of another key is `-1/2 |root n|^2`, with exact root and n.
    Each entry of `root n` has an error of at most `gamma_axes |row| |n|`, so the vector is at least as long as `(s -
    gamma_axes |root|_F) |n|`, with s the smallest singular value; the squares, their sum and the half have a relative
    error of `gamma_(axes + 2)`. No entry overflows.

    Source: Higham 2002, Lemma 3.1 and Eq. 3.12.
    """
    axes, inner = len(root), accumulator_of(format_name)
    unit, largest = inner.unit_roundoff, root.square().sum().item()
    # Beyond it a score may overflow to -inf, and a row of -inf alone has no softmax.
    if not largest * LONGEST_DISPLACEMENT**2 <= inner.largest:
        return 0.0
    gram: Any = (root.mT @ root).tolist()
    try:
        # The Gram matrix was rounded in float64, which moves each eigenvalue by no more than this (Weyl).
        least = smallest_eigenvalue_at_least(gram) - axes * 2.0**-50 * largest
    except AlphaError:
        return 0.0
    length = math.sqrt(max(0.0, least)) - gamma(axes, unit) * math.sqrt(largest)
    return max(0.0, length) ** 2 / 2 * (1 - gamma(axes + 2, unit)) * MARGIN


@final
@dataclass(frozen=True, eq=False)
class Pair:
    """Two layers to compare.

    `scattered` marks layers that torch computes as a transposed convolution, adding up the taps of an output in the
    storage format. `engines` lists the engines that may compute each layer.
    """

    original: Basis
    converted: Basis
    scattered: tuple[bool, bool]
    engines: tuple[tuple[str, ...], tuple[str, ...]]

    @cached_property
    def magnitudes(self) -> tuple[Tensor, Tensor]:
        """For each layer and output channel, the sum of |W_out| |W_val| over terms and input channels."""
        return magnitudes(self.original), magnitudes(self.converted)

    @cached_property
    def places(self) -> tuple[Offset, ...]:
        """All starts of both layers."""
        return tuple(dict.fromkeys((*self.original.starts, *self.converted.starts)))

    @cached_property
    def gaps(self) -> Tensor:
        """The differences of the sums of their taps at each of the `places`; see `differences_of_sums`."""
        return differences_of_sums(self.original, self.converted, self.places)


def engines_of(layer: nn.Module | None) -> tuple[str, ...]:
    """The engines that may compute a layer: "auto" for a convolution, otherwise the engine that is set; "auto" with
    content terms chooses one of two."""
    if not isinstance(layer, MultiHeadSelfAttention):
        return ("auto",)
    chosen = ENGINES[layer.engine].choose is not None
    return ("dense", "sdpa") if layer.has_content and chosen else (layer.engine,)


@singledispatch
def comparable_basis(layer: Any, weights: Weights | None = None) -> Basis:
    """The current basis of a convolution or a position-only attention, with `weights` instead of its own if passed.

    Centres have the dtype in which scores are computed. Heads with full covariances become shifts if their computed
    attention is one-hot.

    Raises:
        UnsupportedError: the layer is neither, its code was replaced, its weight changes at each call (C2A101, C2A105,
            C2A106), or a centre is not finite (C2A408).
    """
    check_weight(layer)
    with current_convolution(layer) as convolution:
        return comparable_basis(convolution)


@comparable_basis.register
def _(convolution: Convolution, weights: Weights | None = None) -> Basis:
    basis = as_basis(convolution)
    return Basis(basis.operators, detached(basis.weights), basis.padding, basis.sites)


@comparable_basis.register
def _(layer: MultiHeadSelfAttention, weights: Weights | None = None) -> Basis:
    check_weight(layer)
    missing = weights is None and all(getattr(layer, name, None) is None for name in ("weight", "value", "output"))
    if reason := monkeypatch_of(layer) or "weight is missing" * missing:
        raise UnsupportedError(
            "C2A106",
            f"{layer.name}: {reason}, so what it computes is not known",
            "Remove the hooks and parametrisations of that layer, or compare another copy.",
        )
    if layer.has_content and not layer.has_silent_content:
        raise UnsupportedError(
            "C2A101",
            f"{layer.name}: attention that depends on the content is not a convolution",
            "Ask how far it is from a convolution: conv2attn heads FILE.",
        )
    with evaluated_weight(layer):
        heads, used = layer.positions, weights or layer.weights
    operators = as_scored(heads, score_dtype(used.stored.dtype))
    covariant = isotropic(heads) is None and heads.precision() is not None
    if operators is None or heads.centers is None:
        raise UnsupportedError(
            "C2A101",
            f"{layer.name}: attention by {heads.name} positions is not known to be hard",
            "Convert with encoding='quadratic' or 'enumerated'.",
        )
    if not bool(heads.centers.isfinite().all()):
        raise UnsupportedError("C2A408", f"{layer.name}: a centre is not finite", "Train or load it again.")
    if covariant and not all(bool(value.isfinite().all()) for value in heads.values):
        raise UnsupportedError("C2A408", f"{layer.name}: a covariance is not finite", "Train or load it again.")
    if any(len(factor) != heads.heads for factor in (used.value, used.output) if factor is not None):
        raise UnsupportedError(
            "C2A105",
            f"{layer.name}: there are {heads.heads} centres, and not as many heads",
            "Make the encoding again with one centre for each head.",
        )
    basis = Basis(operators, detached(used), layer.image_padding, layer.sites)
    hard = covariant and not not_one_hot(operators, basis)
    return replace(basis, operators=Shift(offsets(operators))) if hard else basis


def check_weight(layer: nn.Module) -> None:
    """Refuses a layer whose weight changes at each call.

    Raises:
        UnsupportedError: the weight changes (C2A106).
    """
    if weight_changes(layer):
        why = "in training mode each call of a spectral norm changes the weight: compare in evaluation mode"
        raise UnsupportedError("C2A106", why, "Call eval() on both networks first.")


@singledispatch
def as_scored(heads: Positions, dtype: torch.dtype) -> Positions | None:
    """The heads with the numbers from which scores in `dtype` are computed; None for a family not known to be hard."""
    return None


@as_scored.register
def _(heads: QuadraticSoftmax, dtype: torch.dtype) -> Positions:
    return QuadraticSoftmax(heads.center.detach().to(dtype), heads.alpha.detach())


@as_scored.register
def _(heads: EnumeratedSoftmax, dtype: torch.dtype) -> Positions:
    return EnumeratedSoftmax(heads.center.detach().double(), heads.alpha.detach())


@as_scored.register
def _(heads: GeneralisedSoftmax, dtype: torch.dtype) -> Positions:
    return GeneralisedSoftmax(heads.center.detach().to(dtype), heads.root.detach().to(dtype))


def detached(weights: Weights) -> Weights:
    """The channel matrices, detached from the graph of gradients."""
    value, output, bias = (None if w is None else w.detach() for w in (weights.value, weights.output, weights.bias))
    return Weights(value, output, bias, weights.groups)


def format_of_weights(basis: Basis) -> str:
    """The name of the format of the weights."""
    return FORMAT_NAMES[basis.weights.stored.dtype]


def channels(basis: Basis) -> tuple[int, int]:
    """Numbers of input and of output channels."""
    return basis.weights.d_in, basis.weights.d_out


def working_heads(basis: Basis) -> list[int]:
    """The terms with an effect: a factor of zeros adds nothing, wherever it reads."""
    factors = [w for w in (basis.weights.value, basis.weights.output) if w is not None]
    # NaN is not equal to zero, so a head with one counts as working.
    used = torch.stack([~(factor.abs().sum((1, 2)) == 0) for factor in factors]).all(0)
    return [int(head) for head in used.nonzero()]


def magnitudes(basis: Basis) -> Tensor:
    """For each output channel, the sum of |W_out| |W_val| over terms and input channels, in float64."""
    value, output, groups = basis.weights.value, basis.weights.output, basis.weights.groups
    if value is None or output is None:
        return basis.weights.stored.cpu().double().abs().sum((0, 2))
    inner = value.cpu().double().abs().sum(2).unflatten(1, (groups, -1))
    outer = output.cpu().double().abs().unflatten(1, (groups, -1))
    return torch.einsum("hgok,hgk->go", outer, inner).flatten()


@contextmanager
def gradual_underflow() -> Iterator[bool]:
    """Within the block this thread keeps subnormal numbers; yields whether it flushes them outside."""
    flushing = thread_flushes()
    torch.set_flush_denormal(False)
    try:
        yield flushing
    finally:
        torch.set_flush_denormal(flushing)
