"""Pictures of where heads look: attention from one token on a photo, or sharpening heads in an animated SVG."""

from collections.abc import Mapping
from html import escape
from itertools import product
from math import ceil
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
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.reading.records import Tokens
from conv2attn.report import counted
from conv2attn.theory.basis import isotropic

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
    maps, shown, left_out = attention_maps(network, image, only), {}, []
    for name, each in maps.items():
        if isinstance(each, str):
            left_out.append(f"{name or '(root)'}: {each}")
        else:
            shown[name or "(root)"] = each
    if not shown:
        raise UnsupportedError("C2A110", "; ".join(left_out) or "no layer was captured in the run", remedy)
    return photo_picture(shown, image), tuple(left_out)


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


ALPHAS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0, 8.0)
CELL, GAP, SECONDS = 14, 16, 6
INK, FRAME = "#0b6e99", "#999"
PICTURE_STYLE = "text{font:12px system-ui,sans-serif;fill:#777}"


def moving_picture(layer: MultiHeadSelfAttention, name: str) -> str:
    """The attention of each head of a 2-D layer around a query, while all alphas rise from 0.05 to 8 and fall again.

    Rows and columns of heads are those of their centres, so that the heads are arranged like the taps of the kernel.

    Raises:
        UnsupportedError: the heads are not quadratic in two axes (C2A110).
    """
    heads = isotropic(layer.positions)
    if heads is None or heads.dimensions != 2:
        raise UnsupportedError(
            "C2A110",
            f"{name}: only quadratic heads in two axes sharpen in a picture",
            "Choose another layer by --only, or write a page (.html).",
        )
    centers = heads.center.detach().cpu().double()
    rows, columns = (sorted(set(axis)) for axis in centers.T.tolist())
    reach = ceil(centers.abs().max().item()) + 1
    side = (2 * reach + 1) * CELL
    width, height = len(columns) * (side + GAP) + GAP, len(rows) * (side + GAP) + GAP + 20
    parts = [f'<text x="{GAP}" y="14">{escape(name)}</text>']
    for center in centers:
        left = GAP + columns.index(center[1].item()) * (side + GAP)
        top = 20 + GAP + rows.index(center[0].item()) * (side + GAP)
        parts += head(center, reach, left, top)
    title = f"<title>The heads of {escape(name)} sharpen until each attends to one pixel</title>"
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{title}<style>{PICTURE_STYLE}</style>{"".join(parts)}</svg>\n'
    )


def head(center: torch.Tensor, reach: int, left: float, top: float) -> list[str]:
    """One head: a cell for each key around the query, whose ink is its share of the largest attention."""
    keys = torch.tensor(list(product(range(-reach, reach + 1), repeat=2))).double()
    squared = (keys - center).square().sum(1)
    attention = torch.stack([torch.softmax(-alpha * squared, 0) for alpha in ALPHAS])
    shares = (attention / attention.amax(1, keepdim=True)).T
    side = (2 * reach + 1) * CELL
    frame = f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="{FRAME}"/>'
    cells = []
    for (row, column), share in zip(keys.int().tolist(), shares.tolist(), strict=True):
        values = ";".join(f"{value:.2f}" for value in (*share, *reversed(share)))
        place = f'x="{left + (column + reach) * CELL}" y="{top + (row + reach) * CELL}"'
        moves = f'<animate attributeName="fill-opacity" dur="{SECONDS}s" repeatCount="indefinite" values="{values}"/>'
        cells.append(f'<rect {place} width="{CELL}" height="{CELL}" fill="{INK}" fill-opacity="0">{moves}</rect>')
    query = reach * CELL
    box = f'x="{left + query}" y="{top + query}" width="{CELL}" height="{CELL}"'
    return [*cells, frame, f'<rect {box} fill="none" stroke="#d55e00" stroke-width="1.5"/>']
