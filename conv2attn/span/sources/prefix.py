"""Leading tokens that are no pixels: class tokens and registers, as networks tell of them."""

from collections.abc import Sequence

import numpy as np
from torch import nn

from conv2attn.span.sources.arguments import as_sides


def prefix_of(network: nn.Module | None) -> int:
    """How many leading tokens are no pixels, as the network or its configuration says: class tokens and registers."""
    for module in () if network is None else network.modules():
        count = getattr(module, "num_prefix_tokens", None)
        if isinstance(count, int):
            return count
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "patch_size"):
            kind = str(getattr(config, "model_type", ""))
            plain = {"vit": 1, "beit": 1, "deit": 2, "dinov2": 1, "vit_mae": 1, "clip_vision_model": 1}
            return plain.get(kind, 0) + int(getattr(config, "num_register_tokens", 0) or 0)
        if any(isinstance(getattr(module, name, None), nn.Parameter) for name in ("class_token", "cls_token")):
            return 1
    return 0


def leading_in(tokens: int, prefix: int, grid: Sequence[int] | int | None) -> int:
    """The leading tokens of a layer with so many: those of the network, unless only all of its tokens fit the grid."""
    sides = as_sides(grid, 2)
    pixels = int(np.prod(sides)) if sides is not None else None
    left = max(0, tokens - prefix)
    fits = left == pixels if pixels is not None else left > 0 and round(left**0.5) ** 2 == left
    return prefix if fits else 0
