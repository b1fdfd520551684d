"""When softmax heads with given centres and sharpness are bitwise one-hot in a dtype."""

from functools import lru_cache

import torch

from conv2attn.layers.attention.probes import exponential_underflows
from conv2attn.theory.basis import AttentionGrid, HeadNumbers, Offset, Operator, Sites
from conv2attn.theory.bounds import one_hot_threshold

FORMAT_NAMES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
THRESHOLDS = {dtype: one_hot_threshold(name) for dtype, name in FORMAT_NAMES.items()}


def hard_offsets(operators: Operator, dtype: torch.dtype) -> tuple[Offset, ...] | str:
    """The offset of each head if every head is now bitwise one-hot in `dtype`, otherwise the reason why not."""
    return targets(operators.numbers(), dtype, next((v.device.type for v in operators.values), "cpu"))


def targets(numbers: HeadNumbers, dtype: torch.dtype, device: str) -> tuple[Offset, ...] | str:
    """The offset of each head if heads with these numbers are all bitwise one-hot in `dtype`, or the reason why not.

    A head is one-hot when its centre is a pixel and alpha exceeds the threshold above which every other weight is
    exactly zero, with and without gradual underflow; `device`'s exponential is measured to agree.
    """
    if not numbers.centers:
        return "its scores are not distances to a centre, so they are never exactly one-hot"
    threshold = THRESHOLDS[dtype]
    if not exponential_underflows(threshold, dtype, device):
        return f"exp(-{threshold:.6g}) does not vanish in {FORMAT_NAMES[dtype]} on {device}"
    return one_hot_offsets(numbers, dtype)


@lru_cache(maxsize=1024)
def one_hot_offsets(numbers: HeadNumbers, dtype: torch.dtype) -> tuple[Offset, ...] | str:
    """`targets`, for a device whose exponential underflows as expected."""
    threshold = THRESHOLDS[dtype]
    if not all(threshold < alpha < float("inf") for alpha in numbers.alphas):
        low = next(a for a in numbers.alphas if not threshold < a < float("inf"))
        return f"alpha = {low:g} is not one-hot in {FORMAT_NAMES[dtype]} (requires more than {threshold:.6g})"
    if not numbers.on_pixels:
        head, center = next((h, c) for h, c in enumerate(numbers.centers) if not all(x.is_integer() for x in c))
        return f"head {head} is centred between pixels, at {center}"
    return tuple(tuple(int(x) for x in center) for center in numbers.centers)


def box(offsets: tuple[Offset, ...]) -> tuple[Offset, Offset]:
    """The corners of the smallest box that holds the offsets."""
    axes = list(zip(*offsets, strict=True))
    return tuple(map(min, axes)), tuple(map(max, axes))


def within_margins(sites: Sites, offsets: tuple[Offset, ...]) -> bool:
    """Whether every target is on the grid at every size: offsets are within the margins of the queries."""
    low, high = box(offsets)
    spans = zip(low, high, sites.before, sites.after, strict=True)
    return all(-before <= least and most <= after for least, most, before, after in spans)


def first_stray(grid: AttentionGrid, offsets: tuple[Offset, ...]) -> int | None:
    """The first head that has a target beyond the grid, or None; the corners of the offsets' box decide."""
    if within_margins(grid.sites, offsets) or all(map(grid.contains_targets, box(offsets))):
        return None
    return next(head for head, offset in enumerate(offsets) if not grid.contains_targets(offset))
