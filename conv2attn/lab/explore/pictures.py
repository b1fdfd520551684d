"""Pictures of where heads look: attention from one token on a photo."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from conv2attn.arguments import Patterns
from conv2attn.errors import UnsupportedError
from conv2attn.extras import optional
from conv2attn.lab.explore.captures import attention_maps
from conv2attn.networks.reading.records import Tokens
from conv2attn.report import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIMMED = 0.15
"""Brightness of the photo at tokens without attention."""
PANEL, LABEL = 1.15, 0.5
"""Inches of a panel, and of the column with names of layers."""


@torch.no_grad()
def explored_photo(network: nn.Module, image: Tensor, only: Patterns = ()) -> tuple["Figure", tuple[str, ...]]:
    """The still picture of a network on an image (1, 3, rows, columns), and sentences on omitted layers.

    Raises:
        UnsupportedError: no layer can be shown, or the image has other channels than red, green and blue (C2A110).
        UsageError: the network does not take the image (C2A120), or attends to nothing (C2A501).
    """
    remedy = "Write a page instead: -o page.html."
    if image.shape[1] != 3:
        raise UnsupportedError(
            "C2A110", f"an image of {counted(image.shape[1], 'channel')} is not a colour photo", remedy
        )
    maps = {name or "(root)": each for name, each in attention_maps(network, image, only).items()}
    shown = {name: each for name, each in maps.items() if not isinstance(each, str)}
    left_out = tuple(f"{name}: {each}" for name, each in maps.items() if isinstance(each, str))
    if not shown:
        raise UnsupportedError("C2A110", "; ".join(left_out) or "no layer was captured in the run", remedy)
    return photo_picture(shown, image), left_out


def photo_picture(maps: Mapping[str, tuple[Tensor, Tokens]], image: Tensor) -> "Figure":
    """The photo, lit where each head looks from the token in its middle: a row for each layer, a column for each head.

    A frame marks the token. Brightness grows with the root of the attention, up to the head's largest weight, which is
    printed with the number of the head; attention to leading tokens, such as a class token, is not drawn.

    Args:
        maps: by name, a layer's attention (heads, tokens, tokens) and its tokens on the image.
        image: (1, 3, rows, columns), in any range.
    """
    columns = max(len(attention) for attention, _ in maps.values())
    size = (LABEL + PANEL * (columns + 1), (PANEL + 0.2) * len(maps))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(maps), columns + 1, squeeze=False)
    photo = in_unit_range(image[0].movedim(0, -1).cpu().double().numpy())
    for line, (name, (attention, tokens)) in zip(panels, maps.items(), strict=True):
        rows, wide = tokens.sides
        place = (rows // 2, wide // 2)
        query = tokens.leading + place[0] * wide + place[1]
        draw_photo(line[0], photo, place, tokens.sides)
        line[0].set_ylabel(name if len(name) <= 22 else "…" + name[-21:], fontsize=6)
        for head, panel in enumerate(line[1 : len(attention) + 1]):
            weights = attention[head, query, tokens.leading :].reshape(1, 1, rows, wide).double()
            most = float(weights.max())
            light = interpolate((weights / max(most, 1e-30)).sqrt(), photo.shape[:2])[0, 0, :, :, None].cpu().numpy()
            draw_photo(panel, photo * (DIMMED + (1 - DIMMED) * light), place, tokens.sides)
            panel.set_title(f"head {head}: max {most:.2f}", fontsize=6)
        for panel in line[len(attention) + 1 :]:
            panel.remove()
    panels[0][0].set_title("from the token in the frame", fontsize=6)
    return figure


def in_unit_range(photo: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each channel from 0 to 1."""
    low, high = photo.min((0, 1)), photo.max((0, 1))
    unit: NDArray[np.float64] = (photo - low) / np.maximum(high - low, 1e-30)
    return unit


def draw_photo(panel: "Axes", photo: NDArray[np.float64], place: tuple[int, int], sides: tuple[int, ...]) -> None:
    """A photo with a frame around a token of its grid."""
    panel.imshow(photo)
    tall, wide = (side / tokens for side, tokens in zip(photo.shape, sides, strict=False))
    corner = (place[1] * wide - 0.5, place[0] * tall - 0.5)
    panel.add_patch(optional("matplotlib.patches").Rectangle(corner, wide, tall, fill=False, ec="#f0e442", lw=1.2))
    panel.set(xticks=[], yticks=[])
