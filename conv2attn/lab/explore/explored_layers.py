"""Describes the attention layers of a network on one image by numbers, from which the page computes outputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection
from conv2attn.errors import GeometryError, UnsupportedError, UsageError
from conv2attn.lab.explore.packing import FACTS_SIDE, Budget, PageObject, facts_of_heads
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.copies import copy_network
from conv2attn.networks.layers import attention_layers, layer_inputs
from conv2attn.theory.basis import AttentionGrid, Operator, Sites, isotropic

MOST_HEADS = 256
IN_WORDS = {"qk": "q·k", "qr": "q·r", "uk": "u·k", "vr": "v·r"}
"""The terms of Eq. (8) as the page names them."""


@final
@dataclass(frozen=True)
class Explored:
    """The layers that a page shows, and why it does not show the others.

    Args:
        layers: one JSON object per layer, in the order in which they ran.
        left_out: one sentence per layer that is not shown.
        picture: a description of the pictures of the layers.
        photo: the image itself, in colour.
    """

    layers: tuple[PageObject, ...]
    left_out: tuple[str, ...]
    picture: str
    photo: PageObject | None = None


@final
@dataclass(frozen=True)
class Shown:
    """The part of attention to show; by default the attention of all terms together.

    Args:
        terms: names of terms of Eq. (8), shown for layers that read content and have them all; () for all terms of the
            layer.
        softmax: whether to show attention, after the softmax, or scores.
    """

    terms: tuple[str, ...] = ()
    softmax: bool = True


@torch.no_grad()
def explored_layers(
    network: nn.Module,
    images: Tensor,
    only: Patterns = (),
    budget: Budget | None = None,
    shown: Shown = Shown(),
) -> Explored:
    """The attention layers of `network` and their inputs on `images` (count, channels, rows, columns).

    With several images, attention and inputs are averaged.

    Args:
        only: glob patterns of the names to show; by default all.
        budget: the bytes that are free on the page.
    Raises:
        UnsupportedError: no layer can be shown (C2A110).
        UsageError: the network does not take the image (C2A120).
    """
    layers, selection, budget = attention_layers(network), Selection.of(only), budget or Budget()
    with refusing_image(images):
        inputs = layer_inputs(network, lambda: network.eval()(images))
    unrun = [f"{name}: the network did not run it" for name in layers if selection.wants(name) and name not in inputs]
    wanted = [name for name in inputs if selection.wants(name) and set(shown.terms) <= set(layers[name].terms.names)]
    objects = [layer_object(name, layers[name], inputs[name], budget, shown) for name in wanted]
    visible, left_out = shown_layers([*unrun, *objects], "Name a layer with attention on a grid by --only.")
    return Explored(visible, left_out, "as it reaches the layer: the mean over its channels")


def shown_layers(objects: Sequence[PageObject | str], remedy: str) -> tuple[tuple[PageObject, ...], tuple[str, ...]]:
    """The layers among `objects`, and the sentences with reasons for the others.

    Raises:
        UnsupportedError: there is no layer (C2A110).
    """
    layers = tuple(each for each in objects if not isinstance(each, str))
    left_out = tuple(each for each in objects if isinstance(each, str))
    if not layers:
        reason = "; ".join(left_out) or "the network has no attention layer of such a name"
        raise UnsupportedError("C2A110", reason, remedy)
    return layers, left_out


@contextmanager
def refusing_image(image: Tensor) -> Iterator[None]:
    """Turns torch's errors within the block into a UsageError.

    Raises:
        UsageError: the network does not take `image` (C2A120).
    """
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        size, reason = "x".join(map(str, image.shape[1:])), (str(error) or type(error).__name__).splitlines()[0]
        text = f"the network does not take an image of {size}: {reason}"
        raise UsageError("C2A120", text, "Pass other --inputs.") from error


def layer_object(
    name: str, layer: MultiHeadSelfAttention, layer_input: Tensor, budget: Budget, shown: Shown
) -> PageObject | str:
    """A layer as a JSON object, or a sentence with the reason why it is not shown."""
    if layer.dimensions != 2 or layer.heads > MOST_HEADS:
        limits = f"the page shows layers of 2 axes and up to {MOST_HEADS} heads"
        return f"{name}: it has {layer.dimensions} axes and {layer.heads} heads; {limits}"
    images, basis = layer.batched(layer_input), layer.basis()
    image = images.mean(0, keepdim=True)
    stored = (*layer.parameters(), *layer.buffers(), *layer.positions.values)
    if not all(bool(each.isfinite().all()) for each in stored):
        return f"{name or 'the layer'}: its weights are not finite"
    padded = basis.padding.pad(image)[0]
    grid = AttentionGrid((padded.shape[1], padded.shape[2]), basis.sites)
    attention = attention_of(layer, images, grid, budget, shown)
    picture = budget.pack(grey(padded), "u8")
    if isinstance(attention, str):
        return f"{name or 'the layer'}: {attention}"
    if attention is None or picture is None:
        return f"{name}: its arrays do not fit on a page of less than 5 MB"
    converted = is_convolution(basis.operators, grid)
    return {
        "name": name or "the layer",
        "heads": layer.heads,
        "channels": [layer.d_in, layer.d_out],
        "keys": [*grid.keys],
        "queries": [*grid.queries],
        "before": [*basis.sites.before],
        "stride": [*basis.sites.stride],
        "padding": [*basis.padding.before, *basis.padding.after],
        "extra": 0,
        "converted": converted,
        "strength": basis.weights.taps().cpu().double().flatten(1).norm(dim=1).tolist(),
        "picture": picture,
        "output": varying_output(layer, image, padded, budget) if converted else None,
        "facts": position_facts(layer, name, image),
        "terms": " + ".join(IN_WORDS[term] for term in layer.terms.names),
        **attention,
    }


def position_facts(layer: MultiHeadSelfAttention, name: str, image: Tensor) -> PageObject | None:
    """The facts of the heads by position alone, on a grid of at most `FACTS_SIDE` rows and columns."""
    if layer.has_content:
        return None
    try:
        return facts_of_heads(name, layer, tuple(min(side, FACTS_SIDE) for side in image.shape[2:]))
    except GeometryError:
        return None


def attention_of(
    layer: MultiHeadSelfAttention, images: Tensor, grid: AttentionGrid, budget: Budget, shown: Shown
) -> PageObject | str | None:
    """The attention of a layer for the page, by the kind of its heads.

    Quadratic heads are stored as centres and alpha, stationary heads as scores by displacement, others as attention,
    averaged over the images, or as scores minus the lowest of each query.

    None if that does not fit on the page; a reason if it is not finite.
    """
    operators = copy_network(layer).cpu().operators()  # some devices have no float64
    centers = None if operators.centers is None else operators.centers.double().tolist()
    if (quadratic := isotropic(operators)) is not None:
        return {"kind": "quadratic", "centers": centers, "alphas": quadratic.alpha.double().tolist()}
    if not operators.is_stationary:
        attention = weights_of(layer, images, shown).mean(0)
        if not attention.isfinite().all():
            return "its attention is not finite"
        weights = budget.pack_attention(attention)
        return None if weights is None else {"kind": "stored", "centers": None, **weights}
    # Stationary scores depend on key - query alone. The single query in the middle of a grid of twice the size sees
    # every displacement once.
    reach = tuple(side - 1 for side in grid.keys)
    around = AttentionGrid((2 * reach[0] + 1, 2 * reach[1] + 1), Sites((1, 1), reach, reach))
    scores = budget.pack(operators.scores(around, around.every_query(), torch.float64)[0], "f64")
    return None if scores is None else {"kind": "scores", "centers": centers, "scores": scores}


def weights_of(layer: MultiHeadSelfAttention, images: Tensor, shown: Shown) -> Tensor:
    """The attention to show, or the scores minus the lowest of each query, (images, heads, queries, keys)."""
    if shown == Shown():
        return layer.attention(images)
    terms = layer.term_scores(images)
    scores = torch.stack(torch.broadcast_tensors(*(terms[name] for name in shown.terms or terms))).sum(0)
    return scores.softmax(-1) if shown.softmax else scores - scores.amin(-1, keepdim=True)


def is_convolution(operators: Operator, grid: AttentionGrid) -> bool:
    """Whether the heads tend to distinct shifts on the grid as alpha grows, and the layer to a convolution."""
    if (quadratic := isotropic(operators)) is None:
        return False
    offsets = [tuple(center) for center in quadratic.center.tolist()]
    is_integer = all(number.is_integer() for offset in offsets for number in offset)
    return (
        is_integer
        and len(set(offsets)) == len(offsets)
        and all(grid.contains_targets((int(row), int(column))) for row, column in offsets)
    )


def varying_output(layer: MultiHeadSelfAttention, image: Tensor, padded: Tensor, budget: Budget) -> PageObject | None:
    """The input and the weights of the output channel that varies most on the image; None if they do not fit."""
    weights = layer.basis().weights
    channel = int(layer(image)[0].flatten(1).cpu().double().std(1, correction=0).argmax())
    width, first = weights.d_in // weights.groups, channel // (weights.d_out // weights.groups)
    entering = budget.pack(padded[first * width : (first + 1) * width], "f32")
    taps = budget.pack(weights.taps()[:, channel], "f32")
    if entering is None or taps is None:
        return None
    bias = 0.0 if weights.bias is None else float(weights.bias[channel])
    return {"channel": channel, "first": first * width, "width": width, "input": entering, "taps": taps, "bias": bias}


def grey(padded: Tensor) -> Tensor:
    """The mean over channels, scaled to 0..255: (rows, columns)."""
    mean = padded.cpu().double().mean(0).nan_to_num()
    low, high = mean.min(), mean.max()
    return ((mean - low) / (high - low).clamp_min(1e-30) * 255).round()
