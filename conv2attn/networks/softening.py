"""Makes one-hot heads trainable by a lower alpha, with a bound on the change of the outputs."""

import copy
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from numbers import Real
from threading import Lock
from typing import Any, ClassVar, Generic, final
from weakref import WeakSet

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, argument, as_inputs, call_network, check_has_numbers, running
from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.conversion import attention_layers
from conv2attn.networks.conversion.network import Network
from conv2attn.report import Document, Report, Table, counted, document
from conv2attn.theory.basis import QuadraticSoftmax, isotropic
from conv2attn.theory.bounds import convolution_bound, leaked_mass_diagonal, mixing_effect
from conv2attn.theory.bounds.claimed import up

SOFTENING_COLUMNS = ("layer", "alpha before", "alpha", "leak", "difference", "rounding", "measured")
SOFTENING_SPARE = ("alpha before", "rounding", "leak")
ENTERING = Lock()
SOFT: WeakSet[nn.Module] = WeakSet()
"""The encodings whose layers an open `softened` block has softened; a second block on them is refused."""


@final
@dataclass(frozen=True)
class SoftenedLayer:
    """One softened layer: its sharpness before and now, and bounds on the change.

    Args:
        before, alpha: the smallest sharpness of its heads before, and the sharpness of all of them now.
        leak: upper bound on the attention that a head gives to pixels other than the one nearest to its centre.
        difference: upper bound on the change of an output, divided by the largest |input|, padding included, for every
            finite input, in real arithmetic.
        rounding: further change, since both layers round their channel products in the dtype of the weights. Rounding
            of the softmax depends on the grid, and is part of the bound of `certify`.
        measured: the largest change of an output on an example input, divided by the largest |input| of the layer; None
            without an example, or if the layer does not run on it.
    """

    name: str
    before: float
    alpha: float
    leak: float
    difference: float
    rounding: float
    measured: float | None = None


@final
@dataclass(frozen=True, eq=False, repr=False)
class Softening(Report, Generic[Network]):
    """A softened copy of a network, and a row for each attention layer."""

    schema: ClassVar[str] = "conv2attn.softening/1"
    network: Network
    layers: tuple[SoftenedLayer, ...]

    def content(self) -> Any:
        """The layers, without the network."""
        return {"layers": self.layers}


@document.register(Softening)
def _(softening: Softening[Any], verbose: bool = False) -> Document:
    """A row for each layer."""
    sharper = sum(row.alpha > row.before for row in softening.layers)
    summary = f"{counted(len(softening.layers) - sharper, 'layer')} softened"
    summary += f", {sharper} sharpened" if sharper else ""
    width = len(SOFTENING_COLUMNS) - all(row.measured is None for row in softening.layers)
    rows = tuple(astuple(row)[:width] for row in softening.layers)
    return Document((summary,), (Table(SOFTENING_COLUMNS[:width], rows, SOFTENING_SPARE),))


def soften(
    network: Network,
    example_input: Any = None,
    *,
    alpha: float,
    only: Patterns = (),
    skip: Patterns = (),
) -> Softening[Network]:
    """A copy of a network with quadratic heads soft enough to train their centres and sharpness.

    Centres move at an alpha of about 5; at 128 their gradient is exactly 0.

    Args:
        network: with attention layers, such as `convert(model, trainable=True)` makes.
        example_input: arguments of a call, or (channels, *sides), a size for one image of noise; each layer's change is
            then also measured on its input in that run.
        alpha: the new sharpness of every head.
        only, skip: glob patterns of the names of layers to soften, or to leave out.
    Raises:
        UsageError: there is no attention layer, or none that fits a pattern (C2A008), or the network does not run
            (C2A009).
        AlphaError: alpha is not positive and finite (C2A130).
        UnsupportedError: a layer's heads are not quadratic, or read content (C2A603), or its numbers are not finite
            (C2A408).
    Examples:
        >>> import conv2attn, torch
        >>> network = conv2attn.convert(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)))
        >>> conv2attn.soften(network, alpha=5)
        <Softening: 1 layer softened>
    """
    check_has_numbers(network)
    check_sharpness(alpha)
    softened = copy.deepcopy(network)
    layers = layers_to_soften(softened)
    selection = Selection.of(only, skip)
    selection.check([name or "(root)" for name in layers], "attention layer")
    chosen = {name: layer for name, layer in layers.items() if selection.wants(name or "(root)")}
    if not chosen:
        raise UsageError("C2A008", "every attention layer is skipped", "Leave one in.")
    rows = tuple(softened_layer(name, layer, alpha) for name, layer in chosen.items())
    if example_input is not None:
        changes = measured(network, softened, as_inputs(network, example_input))
        rows = tuple(replace(row, measured=changes.get(name)) for name, row in zip(chosen, rows, strict=True))
    return Softening(softened, rows)


def layers_to_soften(network: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers of a network by name.

    Raises:
        UsageError: there is no attention layer (C2A008).
    """
    layers = attention_layers(network)
    if not layers:
        raise UsageError(
            "C2A008",
            f"{type(network).__name__} has no attention layer to soften",
            "Convert the network first: conv2attn convert FILE.",
        )
    return layers


@torch.no_grad()
def measured(hard: nn.Module, soft: nn.Module, inputs: Any) -> dict[str, float]:
    """By layer, the largest difference between the hard and the soft layer's output, divided by the largest |input|.

    Layers that do not run, or give no finite number, are left out.
    """
    soft = copy.deepcopy(soft).eval()
    before, shares = attention_layers(hard), defaultdict[str, list[float]](list)
    names = {layer: name for name, layer in attention_layers(soft).items()}

    def compare(layer: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        assert isinstance(layer, MultiHeadSelfAttention)
        name = names[layer]
        passed = argument(args, kwargs, 0, "input")
        change, largest = (each.abs().max() for each in (before[name](*args, **kwargs) - output, passed))
        shares[name].append((change / largest).item() if change else 0.0)

    hooks = [layer.register_forward_hook(compare, with_kwargs=True) for layer in names]
    try:
        with running(soft, inputs):
            call_network(soft, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: max(changes) for name, changes in shares.items() if all(map(math.isfinite, changes))}


def is_positive(number: Any) -> bool:
    """Whether `number` is a positive finite number."""
    return isinstance(number, Real) and not isinstance(number, bool) and 0 < float(number) < math.inf


def check_sharpness(alpha: Any) -> None:
    """Raises: AlphaError: alpha, or its value in float32, is not a positive finite number (C2A130)."""
    if not is_positive(alpha) or not 0 < torch.tensor(float(alpha), dtype=torch.float32).item() < math.inf:
        raise AlphaError("C2A130", f"alpha={alpha!r} is not a positive finite number", "Pass a positive finite number.")


def softened_layer(name: str, layer: MultiHeadSelfAttention, alpha: float) -> SoftenedLayer:
    """Lowers the sharpness of one layer in place."""
    heads = sharp_heads(name, layer)
    if layer.weights.numbers == 0:
        reason = f"{name or layer.name}: no bound is known for attention whose weights are an argument of each call"
        raise UnsupportedError("C2A603", reason, "Leave the layer out with --skip.")
    if not all(bool(each.isfinite().all()) for each in (layer.weights.taps(), heads.center, heads.alpha)):
        reason = f"{name or layer.name}: a weight, a centre or an alpha is not finite"
        raise UnsupportedError("C2A408", reason, "Train or load it again.")
    if layer.has_content and not layer.has_silent_content:
        raise UnsupportedError(
            "C2A603",
            f"{name or layer.name}: no bound is known for heads that read content",
            "Leave the layer out with --skip.",
        )
    before = heads.alpha.min().item()
    weights = largest_weight_sum(layer)
    centers = sorted(set(map(tuple, heads.center.tolist())))
    leak_before = weights * mixing_effect(leak_of(before, centers), 1.0)
    rounding = rounding_of(layer, weights)
    layer.encoding.learn(like=layer.like).assign(alpha=alpha)
    layer.prepare()
    alpha = layer.encoding.alpha.min().item()
    leak = leak_of(alpha, centers)
    difference = up(Fraction(weights) * Fraction(mixing_effect(leak, 1.0)) + Fraction(leak_before))
    return SoftenedLayer(name or layer.name, before, alpha, leak, difference, rounding)


def sharp_heads(name: str, layer: MultiHeadSelfAttention) -> QuadraticSoftmax:
    """The quadratic heads of a layer, as views of its tensors.

    Raises:
        UnsupportedError: the heads have no sharpness (C2A603).
    """
    heads = isotropic(layer.positions)
    if heads is None:
        raise UnsupportedError(
            "C2A603",
            f"{name or layer.name}: its heads have no sharpness to lower",
            "Convert with encoding='quadratic' first, or leave the layer out with --skip.",
        )
    return heads


def rounding_of(layer: MultiHeadSelfAttention, weights: float) -> float:
    """Upper bound on the rounding of two channel products in an output, divided by the largest |input|.

    The bias is excluded; `weights` bounds the sums of |weights|.
    """
    terms = layer.heads * (layer.d_in // layer.groups + (layer.d_head if layer.value is not None else 0))
    product_bound = convolution_bound(max(1, terms), str(layer.like.dtype).removeprefix("torch."))
    return up(2 * Fraction(weights) * Fraction(product_bound.factor))


def leak_of(alpha: float, centers: list[tuple[float, ...]]) -> float:
    """The largest leak of heads with these centres: the share of attention off the pixel nearest to the centre."""
    fractions = {tuple(abs(x - round(x)) for x in center) for center in centers}
    return max(leaked_mass_diagonal([alpha] * len(shift), list(shift)) for shift in fractions)


def largest_weight_sum(layer: MultiHeadSelfAttention) -> float:
    """The largest sum of |weights| of an output channel over heads and inputs, rounded up."""
    taps = layer.weights.taps().detach().cpu().double().abs()
    sums = taps.sum((0, 2))
    count = taps.shape[0] * (taps.shape[2] + (layer.d_head if layer.value is not None else 0))
    return up(Fraction(sums.max().item()) * (1 + Fraction(count + 1, 2**52)))


@contextmanager
def softened(network: Network, alpha: float) -> Iterator[Network]:
    """Within the block, every quadratic head of `network` has this sharpness; it is restored afterwards.

    Weights and centres may be trained within the block, and keep the result. Other threads that use the network
    meanwhile also use the soft heads.

    Raises:
        UsageError: no attention layer (C2A008), or another block, in this thread or another one, has softened a layer
            and has not ended (C2A004).
        AlphaError: alpha is not positive and finite (C2A130).
        UnsupportedError: a layer's heads have no sharpness (C2A603).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(3, 4, 3))
        >>> with conv2attn.softened(layer, alpha=5):
        ...     float(layer.encoding.alpha.max())
        5.0
        >>> float(layer.encoding.alpha.max())
        128.0
    """
    check_has_numbers(network)
    check_sharpness(alpha)
    layers = layers_to_soften(network)
    for name, layer in layers.items():
        sharp_heads(name, layer)
    encodings = {layer.encoding for layer in layers.values()}
    with ENTERING:
        if not SOFT.isdisjoint(encodings):
            reason = f"{type(network).__name__} is within another block that softens it"
            raise UsageError("C2A004", reason, "Let that block end first, or soften a copy.")
        SOFT.update(encodings)
    sharpness = {name: layer.encoding.alpha for name, layer in layers.items()}
    alphas = {name: each.detach().clone() if isinstance(each, Tensor) else each for name, each in sharpness.items()}
    try:
        for layer in layers.values():
            layer.encoding.assign(alpha=alpha)
            layer.prepare()
        yield network
    finally:
        for name, layer in layers.items():
            layer.encoding.assign(alpha=alphas[name])
            layer.prepare()
        SOFT.difference_update(encodings)
