"""One output of a layer on one input: the rational number that it stands for, and what rounding may make of it."""

from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from conv2attn.equivalence.computed.leak import check_leak
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.readings.reading import Reading, reading_of
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.replacement import present
from conv2attn.theorem import STOCK, Convolution, attention_for


def exact_value(reading: Reading, image: Tensor, place: tuple[int, ...]) -> Fraction | None:
    """The output at `place` (output channel, then the query) in exact arithmetic, for a finite image without a batch.

    None where heads are not one-hot or look off the grid, so that it is no rational number of the weights.
    """
    channel, *query = place
    keys, padding = reading.padding.pad(image.detach()).cpu(), reading.padding
    if check_leak(reading)[1] > 0 or reading.strays:
        return None
    bias = reading.weights.bias
    total = Fraction(0) if bias is None else Fraction(bias[channel].item())
    for head, start in enumerate(reading.starts):
        steps = zip(start, padding.before, reading.geometry.stride, query, strict=True)
        pixel: tuple[Any, ...] = tuple(s + before + stride * q for s, before, stride, q in steps)
        if not all(0 <= at < side for at, side in zip(pixel, keys.shape[1:], strict=True)):
            return None
        column = [Fraction(x) for x in keys[(slice(None), *pixel)].tolist()]
        total += contribution(reading, head, channel, column)
    return total


def contribution(reading: Reading, head: int, channel: int, column: list[Fraction]) -> Fraction:
    """What one head adds to an output channel, of the pixel `column` (input channels)."""
    weights = reading.weights
    width_out, width_in = (n // weights.groups for n in (reading.channels[1], reading.channels[0]))
    group = channel // width_out
    inputs = column[group * width_in : (group + 1) * width_in]
    if reading.taps is not None:
        return dot(reading.taps[head, channel], inputs)
    assert weights.output is not None
    assert weights.value is not None
    width = weights.output.shape[2]
    values = weights.value[head, group * width : (group + 1) * width]
    return dot(weights.output[head, channel], [dot(row, inputs) for row in values])


def dot(row: Tensor, column: list[Fraction]) -> Fraction:
    """The exact inner product of floats and rational numbers."""
    return sum((Fraction(w) * x for w, x in zip(row.tolist(), column, strict=True) if w and x), Fraction(0))


def rounding_allowed(layer: nn.Module | Convolution, reading: Reading, image: Tensor) -> list[float] | None:
    """For each output channel, what `layer` and its right conversion may differ by on `image`, by rounding alone."""
    reach = image.abs().max().item() if image.numel() else 0.0
    try:
        right = reading
        if isinstance(layer, Convolution):
            right = reading_of(attention_for(layer))
        elif isinstance(layer, STOCK):
            with present(layer) as convolution:
                right = reading_of(attention_for(convolution))
        return difference_bounds(reading, right, reach, tuple(right.padding.sides(tuple(image.shape[1:]))))
    except Conv2AttnError:
        return None
