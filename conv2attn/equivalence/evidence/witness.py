"""Inputs that show a difference: constructed, not searched, since both layers are affine in their input."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from conv2attn.basis import Sides
from conv2attn.equivalence.computed.rounding import what_differs
from conv2attn.equivalence.evidence.inputs import Witness
from conv2attn.equivalence.evidence.pointwise import exact_value, rounding_allowed
from conv2attn.equivalence.readings.places import nearest_float
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.errors import Conv2AttnError

CHANNELS = 16  # output channels tried, those whose weights differ most


def find_witness(
    name: str,
    layers: tuple[nn.Module, nn.Module],
    readings: tuple[Reading, Reading],
    reach: float,
    tolerance: float | None = None,
) -> Witness | None:
    """The input within +-reach that shows the largest difference of all that were constructed; None if none shows any.

    For one output the difference is affine in the input, so its sign-aligned input, +-reach by the sign of the
    gradient, is the worst for that output in real arithmetic. Zero shows what only the biases differ by. A difference
    counts if it exceeds the `tolerance`; without one, if it exceeds what rounding allows or is one in exact arithmetic.
    """
    best: Witness | None = None
    try:
        for image, place in candidates(layers, readings, reach):
            found = witness_on(name, layers, readings, image[0].detach(), place, tolerance)
            if found is not None and (best is None or rank(found) > rank(best)):
                best = found
    except (Conv2AttnError, RuntimeError, IndexError):
        return best
    return best


def rank(witness: Witness) -> tuple[bool, float]:
    """Which of two witnesses to keep: one whose numbers speak, then the larger difference."""
    return witness.exceeds, witness.difference


def witness_on(
    name: str,
    layers: tuple[nn.Module, nn.Module],
    readings: tuple[Reading, Reading],
    image: Tensor,
    place: tuple[int, ...],
    tolerance: float | None = None,
) -> Witness | None:
    """What `image` (channels, *sides) shows: where most is beyond what is allowed, or else at `place`; None if nothing.

    Raises:
        Conv2AttnError, RuntimeError: a layer does not run on it.
    """
    found = computed(name, layers, readings, image, place, tolerance)
    return found if found is not None and found.shows else None


def computed(
    name: str,
    layers: tuple[nn.Module, nn.Module],
    readings: tuple[Reading, Reading],
    image: Tensor,
    place: tuple[int, ...],
    tolerance: float | None = None,
) -> Witness | None:
    """The same, whether it shows anything or not; None where shapes differ."""
    with torch.no_grad():
        first, second = (layer(image[None])[0].double().cpu() for layer in layers)
    if first.shape != second.shape:
        return None
    allowed = None if tolerance is not None else rounding_allowed(layers[0], readings[0], image)
    limits = [tolerance] * len(first) if tolerance is not None else allowed or [torch.inf] * len(first)
    return at_worst(name, (first, second), readings, image, place, limits, by_rounding=tolerance is None)


def at_worst(
    name: str,
    outputs: tuple[Tensor, Tensor],
    readings: tuple[Reading, Reading],
    image: Tensor,
    place: tuple[int, ...],
    limits: Sequence[float],
    *,
    by_rounding: bool,
) -> Witness:
    """Where two outputs (channels, *grid) differ most beyond the limits of their channels, or else `place`."""
    first, second = outputs
    limit = torch.tensor(limits, dtype=torch.float64).reshape(-1, *[1] * (first.ndim - 1))
    excess = (second - first).abs().nan_to_num(torch.inf) - limit
    excess[~first.isfinite()] = -torch.inf
    worst = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    place = worst if excess[worst] > 0 else place
    known = None if limits[place[0]] == torch.inf else limits[place[0]]
    exact = None
    if by_rounding and not excess[place] > 0:
        values = [exact_value(reading, image, place) for reading in readings]
        exact = None if values[0] is None or values[1] is None else nearest_float(values[1] - values[0])
    numbers, count = (first[place].item(), second[place].item()), int((excess > 0).sum())
    return Witness(name, image.clone(), place, *numbers, known, exact, count)


def candidates(
    layers: tuple[nn.Module, nn.Module], readings: tuple[Reading, Reading], reach: float
) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Zero, and the worst input for some outputs: the corner, middle and end queries of the channels that differ most.

    Each with the output that it is the worst for; zero with that of the largest difference.
    """
    original = readings[0]
    device = next(w for w in (original.weights.output, original.weights.value) if w is not None).device
    sides = small_sides(original)
    image = torch.zeros(1, original.channels[0], *sides, dtype=original.dtype, device=device)
    image.requires_grad_()
    first, second = (layer(image) for layer in layers)
    difference = (second.double() - first.double())[0]
    largest = torch.unravel_index(difference.detach().abs().nan_to_num(torch.inf).argmax(), difference.shape)
    yield image, tuple(int(i) for i in largest)
    weights, biases = what_differs(*readings)
    for channel in (weights + biases).topk(min(CHANNELS, difference.shape[0])).indices.tolist():
        queries = difference[channel].flatten()
        for query in {0, middle(difference.shape[1:]), queries.numel() - 1}:
            (weight,) = torch.autograd.grad(queries[query], image, retain_graph=True)
            if bool(weight.any()):
                at = torch.unravel_index(torch.tensor(query), difference.shape[1:])
                yield weight.sign() * reach, (channel, *(int(i) for i in at))


def middle(sides: torch.Size) -> int:
    """The row-major index of the query in the middle."""
    index = 0
    for side in sides:
        index = index * side + side // 2
    return index


def small_sides(reading: Reading) -> Sides:
    """Sides of a small image on which the layer has outputs away from the border: unequal, and wide enough to pad."""
    form, sides = reading.geometry, []
    for axis, (stride, room) in enumerate(zip(form.stride, form.room, strict=True)):
        starts = [start[axis] for start in reading.starts]
        span = max(starts) - min(starts) + 1
        padded = max(reading.padding.before[axis], reading.padding.after[axis], 0)
        sides.append(max(span, 1 - room, padded + 1) + 2 * stride + 1 + axis)
    return tuple(sides)
