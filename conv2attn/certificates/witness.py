"""Inputs that show a difference: constructed, not searched, since both layers are affine in their input."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from conv2attn.basis import Sides
from conv2attn.certificates.reading import Reading
from conv2attn.errors import Conv2AttnError

CHANNELS = 16  # output channels tried, those with the largest weights


@final
@dataclass(frozen=True, eq=False)
class Witness:
    """An input on which two layers differ most at `place` (output channel, then the query's coordinates)."""

    layer: str
    image: Tensor
    place: tuple[int, ...]
    original: float
    converted: float

    @property
    def difference(self) -> float:
        """|converted - original| there."""
        return abs(self.converted - self.original)

    def in_words(self) -> str:
        """The witness in a sentence."""
        channel, *query = self.place
        sides = "x".join(map(str, self.image.shape[1:]))
        return (
            f"an input {sides} within +-{self.image.abs().max().item():g} shows it: output channel {channel} at query "
            f"{tuple(query)} is {self.converted:.9g}, not {self.original:.9g}"
        )


def find_witness(
    name: str, layers: tuple[nn.Module, nn.Module], readings: tuple[Reading, Reading], reach: float
) -> Witness | None:
    """The input within +-reach that shows the largest difference of all that were constructed; None if none shows any.

    For one output the difference is affine in the input, so its sign-aligned input, +-reach by the sign of the
    gradient, is the worst for that output in real arithmetic. Zero shows what only the biases differ by. Where the
    first is not finite nothing is shown.
    """
    best: Witness | None = None
    try:
        for image in candidates(layers, readings, reach):
            with torch.no_grad():
                first, second = (layer(image) for layer in layers)
            if first.shape != second.shape:
                return None
            difference = (second.double() - first.double()).abs().nan_to_num(torch.inf)[0]
            difference[~first[0].isfinite()] = 0
            place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
            found = Witness(name, image[0].clone(), place, first[0][place].item(), second[0][place].item())
            if difference[place] > 0 and (best is None or not difference[place] <= best.difference):
                best = found
    except (Conv2AttnError, RuntimeError, IndexError):
        return best
    return best


def candidates(
    layers: tuple[nn.Module, nn.Module], readings: tuple[Reading, Reading], reach: float
) -> Iterator[Tensor]:
    """Zero, and the worst input for some outputs: the corner, middle and end queries of the heaviest channels."""
    original = readings[0]
    device = next(w for w in (original.weights.output, original.weights.value) if w is not None).device
    sides = small_sides(original)
    image = torch.zeros(1, original.channels[0], *sides, dtype=original.dtype, device=device)
    yield image
    image.requires_grad_()
    first, second = (layer(image) for layer in layers)
    difference = (second.double() - first.double())[0]
    weight = torch.autograd.grad(difference.sum(), image, retain_graph=True)[0]
    count = difference.shape[0]
    heaviest = range(count) if count <= CHANNELS else range(0, count, count // CHANNELS)
    for channel in heaviest:
        queries = difference[channel].flatten()
        for query in {0, middle(difference.shape[1:]), queries.numel() - 1}:
            (weight,) = torch.autograd.grad(queries[query], image, retain_graph=True)
            if bool(weight.any()):
                yield weight.sign() * reach


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
