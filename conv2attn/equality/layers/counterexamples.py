"""Counterexamples of layers: constructed without search, since both layers are affine in their input."""

import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from conv2attn.equality.certificate.results import Counterexample
from conv2attn.equality.distances import distance
from conv2attn.equality.layers.bases import Pair, comparable_basis, heads_out_of_bounds
from conv2attn.equality.layers.compared_layers import Layer, own
from conv2attn.equality.layers.exact_sums import exact_row, nearest_float
from conv2attn.equality.layers.leaks import check_leak
from conv2attn.equality.layers.rounding import difference_bounds, differences
from conv2attn.errors import Conv2AttnError
from conv2attn.layers.theorem import STOCK, attention_for
from conv2attn.networks.conversion.computed_weights import current_convolution
from conv2attn.theory.basis import Basis, Sides

CHANNELS = 16  # number of output channels tried, those whose weights differ most


def find_counterexample(
    layers: tuple[Layer, Layer],
    pair: Pair,
    reach: float,
) -> Counterexample | None:
    """The constructed input within +-reach with the largest difference; None if no input shows one.

    Its image is small. For one output the difference is affine in the input, so the sign-aligned input, +-reach by the
    sign of the gradient, is the worst for that output in real arithmetic. Zero shows a difference of the biases alone.
    A difference counts if it exceeds what rounding allows or is one in exact arithmetic.
    """
    counterexamples = list[Counterexample]()
    # A layer may refuse images of these sides. Then there is no counterexample, and the findings are unchanged.
    with contextlib.suppress(Conv2AttnError, RuntimeError, IndexError):
        for image, place in candidate_inputs(layers, pair, reach):
            each = compared_at(layers, pair, image[0].detach(), place)
            if each is not None and each.shows:
                counterexamples.append(each)
    return max(counterexamples, key=lambda each: (each.exceeds, each.difference), default=None)


def compared_at(
    layers: tuple[Layer, Layer],
    pair: Pair,
    image: Tensor,
    place: tuple[int, ...],
) -> Counterexample | None:
    """Both layers' numbers on `image` (channels, *sides) where they most exceed the allowed difference, or at `place`.

    Returns:
        None where the shapes differ.
    Raises:
        Conv2AttnError, RuntimeError: a layer does not run on the image.
    """
    with torch.no_grad():
        first, second = (each[0].cpu() for each in both_outputs(layers, image[None]))
    if first.shape != second.shape:
        return None
    limits = rounding_allowed(layers[0], pair, image) or [torch.inf] * len(first)
    limit = torch.tensor(limits, dtype=torch.float64, device=first.device).reshape(-1, *[1] * (first.ndim - 1))
    # A NaN of the second is a difference; if the first is not finite, nothing counts as one.
    excess = distance(first, second) - limit
    excess[~first.isfinite()] = -torch.inf
    worst = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    place = worst if excess[worst] > 0 else place
    limit_there = None if limits[place[0]] == torch.inf else limits[place[0]]
    exact = None
    if not excess[place] > 0:
        values = [exact_value(basis, image, place) for basis in (pair.original, pair.converted)]
        exact = None if values[0] is None or values[1] is None else nearest_float(values[1] - values[0])
    numbers, count = (first[place].item(), second[place].item()), int((excess > 0).sum())
    return Counterexample(layers[0].label, image.clone(), place, *numbers, limit_there, exact, count)


def both_outputs(layers: tuple[Layer, Layer], image: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs of both layers for an image, the second's heads as softmaxes."""
    first, second = layers[0].module, layers[1].softened
    assert first is not None
    assert second is not None
    return own(first, image), own(second, image)


def candidate_inputs(layers: tuple[Layer, Layer], pair: Pair, reach: float) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Zero, and the worst input for some outputs of the channels that differ most.

    The outputs are those of corner, middle and end queries, and the one that differs most on noise.

    Each with the output that it is the worst for; zero with that of the largest difference.
    """
    original, like = pair.original, pair.original.weights.stored
    image = torch.zeros(1, original.weights.d_in, *small_sides(original), dtype=like.dtype, device=like.device)
    image.requires_grad_()
    # Both layers are affine, so their gradients are constant, and one graph serves all outputs.
    first, second = both_outputs(layers, image)
    difference = (second.cpu().double() - first.cpu().double())[0]
    largest = torch.unravel_index(difference.detach().abs().nan_to_num(torch.inf).argmax(), difference.shape)
    yield image, tuple(int(i) for i in largest)
    with torch.no_grad():
        noise = torch.rand(image.shape, generator=torch.Generator("cpu").manual_seed(0), device="cpu").to(image)
        apart = distance(*both_outputs(layers, noise))[0].flatten(1)
    weights, biases = differences(pair)
    for channel in (weights + biases).topk(min(CHANNELS, difference.shape[0])).indices.tolist():
        queries, grid = difference[channel].flatten(), difference.shape[1:]
        middle = int(np.ravel_multi_index([side // 2 for side in grid], grid))
        for query in {0, middle, queries.numel() - 1, int(apart[channel].argmax())}:
            (weight,) = torch.autograd.grad(queries[query], image, retain_graph=True)
            if bool(weight.any()):
                at = torch.unravel_index(torch.tensor(query), grid)
                yield weight.sign() * reach, (channel, *(int(i) for i in at))


def small_sides(basis: Basis) -> Sides:
    """Sides of a small image on which the layer has outputs away from the border: unequal, and wide enough to pad."""
    form, every, sides = basis.form, basis.starts, list[int]()
    for axis, (stride, room) in enumerate(zip(form.stride, form.room, strict=True)):
        starts = [start[axis] for start in every]
        span = max(starts) - min(starts) + 1
        padded = max(basis.padding.before[axis], basis.padding.after[axis], 0)
        sides.append(max(span, 1 - room, padded + 1) + 2 * stride + 1 + axis)
    return tuple(sides)


def exact_value(basis: Basis, image: Tensor, place: tuple[int, ...]) -> Fraction | None:
    """The exact output at `place` (output channel, then the query), for a finite image without a batch.

    None if heads are not one-hot or read off the grid: then it is no rational function of the weights.
    """
    channel, *query = place
    keys, padding = basis.padding.pad(image.detach()).cpu(), basis.padding
    # Softmax weights other than 0 and 1 are irrational, so only one-hot heads have an exact output.
    if check_leak(basis)[1] > 0 or heads_out_of_bounds(basis):
        return None
    bias, stride = basis.weights.bias, basis.form.stride
    total = Fraction(0) if bias is None else Fraction(bias[channel].item())
    for head, start in enumerate(basis.starts):
        steps = zip(start, padding.before, stride, query, strict=True)
        pixel = tuple(s + before + step * q for s, before, step, q in steps)
        if not all(0 <= at < side for at, side in zip(pixel, keys.shape[1:], strict=True)):
            return None
        column = [Fraction(x) for x in keys.movedim(0, -1)[pixel].tolist()]
        total += sum((w * x for w, x in zip(exact_row(basis.weights, head, channel), column, strict=True)), Fraction(0))
    return total


def rounding_allowed(layer: Layer, pair: Pair, image: Tensor) -> Sequence[float] | None:
    """For each output channel, the largest difference on `image` that rounding explains, if the conversion is right.

    Args:
        layer: the original of the pair.
    """
    reach = image.abs().max().item() if image.numel() else 0.0
    try:
        right = pair.original
        if isinstance(layer.module, STOCK):
            with current_convolution(layer.module) as convolution:
                right = comparable_basis(attention_for(convolution))
        ideal = Pair(pair.original, right, (pair.scattered[0], False), pair.engines)
        return difference_bounds(ideal, reach, tuple(right.padding.sides(tuple(image.shape[1:]))))
    except Conv2AttnError:
        return None
