"""When the attention of a layer, as its parameters are now, is bitwise one-hot in a dtype."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from conv2attn.attention.encodings import Encoding
from conv2attn.attention.learned import LearnedEncoding
from conv2attn.attention.probes import exponential_underflows
from conv2attn.basis import AttentionGrid, Offset
from conv2attn.bounds import one_hot_threshold

FORMATS = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
THRESHOLDS = {dtype: one_hot_threshold(name) for dtype, name in FORMATS.items()}


def hard_offsets(encoding: Encoding, dtype: torch.dtype) -> tuple[Offset, ...] | str:
    """The offset of each head if every head is bitwise one-hot on its target in `dtype`, else why not.

    A head is when its centre is integer and alpha exceeds the threshold above which every other weight is exactly zero,
    with and without gradual underflow; this device's own exponential is measured to agree. Decided from the present
    parameters at each call.
    """
    if isinstance(encoding, LearnedEncoding):
        return "its positions are learned vectors, never exactly one-hot"
    centers = tuple(map(tuple, encoding.center.tolist()))
    device, threshold = encoding.alpha.device.type, THRESHOLDS[dtype]
    if not exponential_underflows(threshold, dtype, device):
        return f"exp(-{threshold:.6g}) does not vanish in {FORMATS[dtype]} on {device}"
    return decide(tuple(encoding.alpha.tolist()), centers, dtype)


@lru_cache(maxsize=1024)
def decide(
    alphas: tuple[float, ...], centers: tuple[tuple[float, ...], ...], dtype: torch.dtype
) -> tuple[Offset, ...] | str:
    """The same of these numbers, where the exponential vanishes as it should."""
    threshold = THRESHOLDS[dtype]
    if not all(threshold < alpha < float("inf") for alpha in alphas):
        low = next(a for a in alphas if not threshold < a < float("inf"))
        return f"alpha = {low:g} is not one-hot in {FORMATS[dtype]} (that takes more than {threshold:.6g})"
    if not on_pixels(centers):
        head = next(h for h, center in enumerate(centers) if not on_pixels([center]))
        return f"head {head} is centred between pixels, at {centers[head]}"
    return tuple(tuple(int(x) for x in center) for center in centers)


def on_pixels(centers: Sequence[Sequence[float]]) -> bool:
    """Whether every coordinate is an integer."""
    return all(x.is_integer() for center in centers for x in center)


@lru_cache(maxsize=1024)
def box(offsets: tuple[Offset, ...]) -> tuple[Offset, Offset]:
    """The corners of the smallest box that holds the offsets."""
    axes = list(zip(*offsets, strict=True))
    return tuple(map(min, axes)), tuple(map(max, axes))


def first_stray(grid: AttentionGrid, offsets: tuple[Offset, ...]) -> int | None:
    """The first head some of whose targets are not on the grid, or None; the corners of the offsets' box tell.

    Offsets within what the sites leave before and behind them are on the grid at every size.
    """
    low, high = box(offsets)
    spans = zip(low, high, grid.sites.before, grid.sites.after, strict=True)
    if all(-before <= least and most <= after for least, most, before, after in spans):
        return None
    if grid.contains_targets(low) and grid.contains_targets(high):
        return None
    return next(head for head, offset in enumerate(offsets) if not grid.contains_targets(offset))


def with_flat_positions(result: Tensor, encoding: Encoding) -> Tensor:
    """`result`, through which trained centres and sharpness receive the gradient of one-hot attention: exactly 0."""
    if not torch.is_grad_enabled():
        return result
    positions = [p for p in encoding.parameters() if p.requires_grad]
    return result if not positions else result + torch.stack([(p * 0).sum() for p in positions]).sum().to(result.dtype)
