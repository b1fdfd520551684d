"""At which range of inputs a convolution exceeds the numbers of its format, so that no bound on a difference holds."""

import math

import torch

from conv2attn.bounds import format_of
from conv2attn.equivalence.computed.rounding import largest_biases
from conv2attn.equivalence.readings.reading import Reading

ROUNDED = 1 + 2.0**-7  # pays for the rounding of sums of up to 2^16 terms


def overflow(reading: Reading, input_range: float, whose: str = "the original") -> str:
    """Why no bound holds for all |x| <= input_range, since some output exceeds the format; empty if none can.

    The largest is `sum |w| input_range + |b|`, which the input with the signs of the weights attains, and no partial
    sum of any order exceeds it.
    """
    if not math.isfinite(input_range):
        return "its inputs are not finite"
    kind = reading.format
    biases = torch.tensor(largest_biases(reading, reading), dtype=torch.float64)
    largest = (reading.magnitudes * input_range + biases).max().item()
    limit = format_of(kind).largest
    if largest * ROUNDED <= limit:
        return ""
    reached = f"sums of inputs within +-{input_range:.3g} reach {largest:.3g}, and {kind} ends at {limit:.3g}"
    return f"{whose} can overflow at this range: {reached}"
