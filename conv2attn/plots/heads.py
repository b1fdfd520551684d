"""Pictures of attention, as in Figs. 3 to 6 of the paper: one row per layer, one column per head; and their files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.extras import optional
from conv2attn.files.atomic_files import write_bytes_atomically
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.span.reading import rows_of
from conv2attn.theory.basis import Sides, isotropic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
if TYPE_CHECKING:
    from matplotlib.figure import Figure

CIRCLES = {0.5: "solid", 0.9: "dotted"}
"""Shares of a Gaussian head within its circles, as in the paper's Figs. 3 and 4."""
LETTERS = 12  # letters of a title per inch
INCHES, MARGIN = 1.2, 0.7
BESIDE_CENTERS = 2
"""Pixels that a panel of quadratic heads shows beyond the pixel of the farthest centre of its layer."""


@final
@dataclass(frozen=True, eq=False)
class HeadsAround:
    """Draws the attention of each head of one layer, seen from the query in the middle of the grid.

    Args:
        name: name of the layer.
        attention: (heads, *sides of the keys), the mean over the images.
        query: the position of the query among the keys.
        centers, alpha: for quadratic heads: (heads, axes) relative to the query, and (heads).
    """

    name: str
    attention: NDArray[np.float64]
    query: tuple[int, ...]
    centers: NDArray[np.float64] | None = None
    alpha: NDArray[np.float64] | None = None


def heads_around(name: str, attention: object, grid: Sides | None, extra_tokens: int = 0) -> HeadsAround:
    """The attention of a layer or an array, as for check_span, at the query in the middle of the grid.

    Raises:
        UsageError: the value is not attention (C2A502), or its tokens do not fit the grid (C2A503).
    """
    rows = rows_of(name, attention, grid, 2 if grid is None else len(grid), extra_tokens)
    middle = tuple(side // 2 for side in rows.grid.queries)
    query = np.array([np.ravel_multi_index(middle, rows.grid.queries)])
    pixels = math.prod(rows.grid.keys)
    mean_attention = np.mean([rows.read(image, query)[:, 0, :pixels] for image in range(rows.images)], 0)
    place = tuple(int(rows.grid.site(axis)[index]) for axis, index in enumerate(middle))
    around = mean_attention.reshape(-1, *rows.grid.keys)
    heads = isotropic(attention.positions) if isinstance(attention, MultiHeadSelfAttention) else None
    if heads is not None:
        return HeadsAround(name, around, place, *(each.detach().cpu().double().numpy() for each in heads.values))
    return HeadsAround(name, around, place)


def radius(alpha: float, share: float) -> float:
    """Radius of the circle that holds `share` of the density proportional to `exp(-alpha r^2)` in the plane.

    A circle of radius r holds `1 - exp(-alpha r^2)` of it.
    """
    return math.sqrt(-math.log1p(-share) / alpha)


def draw_heads(layers: Sequence[HeadsAround], inputs: str = "") -> "Figure":
    """Draws a panel per layer (row) and head (column), white for no attention and black for the most in that panel.

    Axes are offsets (key - query) in pixels; a cross marks the query. A line is drawn as a strip, a volume as the sum
    over its first axis. Quadratic heads of a plane or volume have their centre and circles drawn. The text below
    describes the network's inputs.
    """
    columns = max(len(layer.attention) for layer in layers)
    size = (MARGIN + INCHES * columns, MARGIN + (INCHES + 0.2) * len(layers))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(layers), columns, squeeze=False)
    for layer, line in zip(layers, panels, strict=True):
        for panel in line[len(layer.attention) :]:
            panel.remove()
        line[0].set_ylabel(layer.name, fontsize=6)
        for head, panel in enumerate(line[: len(layer.attention)]):
            draw_head(panel, layer, head)
    say_inputs(figure, inputs)
    return figure


def say_inputs(figure: "Figure", inputs: str) -> None:
    """Writes the network's inputs below a figure; nothing if unknown."""
    if inputs:
        figure.supxlabel(fill(f"inputs: {inputs}", int(2 * LETTERS * figure.get_figwidth())), fontsize=5)


def reach_of_centers(layer: HeadsAround) -> float:
    """The distance from the query that the panels of a layer show; the whole grid if heads have no centres."""
    if layer.centers is None or layer.alpha is None or layer.attention.ndim == 2:
        return math.inf
    centers = np.abs(layer.centers[:, -2:]).max(1)
    wide = [radius(alpha, max(CIRCLES)) if alpha > 0 else math.inf for alpha in layer.alpha]
    # A centre moved by training by a fraction of a pixel still counts as the nearest tap.
    return float(np.maximum(np.rint(centers) + BESIDE_CENTERS, centers + wide).max()) + 0.5


def plane_of(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers on a grid as a plane: a line is a strip, a volume the sum over its first axis."""
    return numbers[None] if numbers.ndim == 1 else numbers.reshape(-1, *numbers.shape[-2:]).sum(0)


def draw_head(panel: "Axes", layer: HeadsAround, head: int) -> None:
    """One panel: attention, the query, and the centre and circles of a quadratic head."""
    attention, (row, column) = layer.attention[head], (0, *layer.query)[-2:]
    plane = plane_of(attention)
    high, wide = plane.shape
    extent = (-column - 0.5, wide - column - 0.5, high - row - 0.5, -row - 0.5)
    panel.imshow(plane, cmap="Greys", vmin=0.0, vmax=plane.max(), extent=extent, interpolation="nearest")
    panel.plot(0, 0, marker="+", color="tab:blue", markersize=5)
    if layer.centers is not None and layer.alpha is not None and attention.ndim > 1:
        down, right = layer.centers[head][-2:]
        panel.plot(right, down, marker=".", color="tab:red", markersize=4)
        for share, style in CIRCLES.items():
            if layer.alpha[head] > 0:
                circle = optional("matplotlib.patches").Circle(
                    (right, down), radius(layer.alpha[head], share), fill=False, ls=style, ec="tab:red"
                )
                panel.add_patch(circle)
    shown = reach_of_centers(layer)
    panel.set(xlim=np.clip(extent[:2], -shown, shown), ylim=np.clip(extent[2:], -shown, shown), xticks=[], yticks=[])
    panel.set_title(f"head {head}: max {plane.max():.2f}", fontsize=6)


def write(figure: "Figure", path: str | Path, force: bool = False) -> None:
    """Writes the figure whole or not at all, in the format of its suffix.

    Raises:
        CheckpointError: the file exists and `force` is false (C2A305), or cannot be written (C2A301).
    """
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    write_bytes_atomically(path, buffer.getvalue(), force)
