"""The attention of any model on one image, as it ran: layers whose tokens are the squares of a grid over the image."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from conv2attn.errors import UnsupportedError
from conv2attn.explore.facts import facts_of_heads
from conv2attn.explore.layers import Explored, grey, is_wanted, running_on
from conv2attn.explore.packing import Budget
from conv2attn.models.capture import capture

MOST_EXTRA = 8


def captured_layers(network: nn.Module, image: Tensor, only: Sequence[str] = ()) -> Explored:
    """Captures every attention of `network` when it runs on `image` (1, channels, rows, columns).

    Args:
        only: patterns of the names to show, as of files; every name if there is none.
    Raises:
        UnsupportedError: no layer can be shown (C2A110).
        UsageError: the network does not take the image (C2A120), or attends to nothing (C2A501).
    """
    with running_on(image):
        found = {name: each for name, each in capture(network, image).items() if is_wanted(name, only)}
    budget, shown, left_out = Budget(), [], []
    for name, attention in found.items():
        layer = (
            of_attention(name, attention, image, budget) if isinstance(attention, Tensor) else f"{name}: {attention}"
        )
        left_out += [layer] if isinstance(layer, str) else []
        shown += [] if isinstance(layer, str) else [layer]
    if not shown:
        raise UnsupportedError("C2A110", "; ".join(left_out) or "the network has no attention layer of such a name")
    return Explored(tuple(shown), tuple(left_out), "averaged over the square of each token")


def of_attention(name: str, attention: Tensor, image: Tensor, budget: Budget) -> dict[str, Any] | str:
    """One layer as a JSON object, or the sentence that says why it is not shown.

    Args:
        attention: (1, heads, tokens, tokens); leading tokens that are no pixels are left out of the pictures.
    """
    parts, heads, queries, keys = attention.shape
    grid = grid_of(keys, image)
    if parts != 1 or queries != keys or grid is None:
        return f"{name}: its attention {(parts, heads, queries, keys)} is not that of one grid over the image"
    sides, extra = grid
    outside = budget.pack(attention[0, :, extra:, :extra].sum(-1), "f32")
    whole = budget.pack_attention(attention[0, :, extra:, extra:])
    picture = budget.pack(grey(adaptive_avg_pool2d(image[0], sides)), "u8")
    if whole is None or picture is None or outside is None:
        return f"{name}: its arrays do not fit on a page of less than 5 MB"
    return {
        "name": name,
        "kind": "stored",
        "heads": heads,
        "channels": None,
        "keys": [*sides],
        "queries": [*sides],
        "before": [0, 0],
        "stride": [1, 1],
        "padding": [0, 0, 0, 0],
        "extra": extra,
        "outside": outside,
        "converted": False,
        "centers": None,
        "strength": None,
        "picture": picture,
        "output": None,
        **whole,
        "facts": facts_of_heads(name, attention.double().numpy(), sides, extra),
    }


def grid_of(tokens: int, image: Tensor) -> tuple[tuple[int, int], int] | None:
    """The sides of the grid of squares that the tokens are, and the fewest tokens besides that make it fit."""
    rows, columns = image.shape[2:]
    for extra in range(min(MOST_EXTRA, tokens - 1) + 1):
        for side in range(1, min(rows, columns) + 1):
            squares = (rows // side, columns // side)
            if rows % side == columns % side == 0 and squares[0] * squares[1] == tokens - extra:
                return squares, extra
    return None
