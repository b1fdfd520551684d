"""Pictures of attention, as in Figs. 3 to 6 of the paper: a row a layer, a column a head, the query in the middle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.basis import Sides
from conv2attn.checkpoints.writing import write_bytes_atomically
from conv2attn.errors import UsageError
from conv2attn.span.comparison import NUMBERS
from conv2attn.span.facts import HeadsReport
from conv2attn.span.questions import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
CIRCLES = {0.5: "solid", 0.9: "dotted"}
"""Shares of a Gaussian head within its circles, as in the paper's Figs. 3 and 4."""
INCHES, MARGIN = 1.2, 0.7


@final
@dataclass(frozen=True, eq=False)
class HeadsAround:
    """What the heads of one layer attend to from the query in the middle of the grid.

    Args:
        name: of the layer.
        attention: (heads, *sides of the keys), the mean over the images.
        query: where among the keys the query sits.
        centers, alpha: of quadratic heads, (heads, axes) relative to the query and (heads).
    """

    name: str
    attention: NDArray[np.float64]
    query: tuple[int, ...]
    centers: NDArray[np.float64] | None = None
    alpha: NDArray[np.float64] | None = None


def heads_around(name: str, attention: Any, grid: Sides, extra_tokens: int = 0) -> HeadsAround:
    """A layer, or an array, as check_span takes it, at the query in the middle of `grid`.

    Raises:
        UsageError: not attention (C2A502), or tokens that are not those of the grid (C2A503).
    """
    rows = rows_of(name, attention, grid, len(grid), extra_tokens)
    middle = tuple(side // 2 for side in rows.grid.queries)
    query = int(np.ravel_multi_index(middle, rows.grid.queries))
    pixels = math.prod(rows.grid.keys)
    total = np.zeros((rows.heads, pixels))
    for _, queries, block in rows.pieces():
        if queries.start <= query < queries.stop:
            total += block[:, query - queries.start, :pixels]
    seen = (total / rows.images).reshape(-1, *rows.grid.keys)
    place = tuple(int(rows.grid.site(axis)[index]) for axis, index in enumerate(middle))
    if isinstance(attention, MultiHeadSelfAttention) and isinstance(attention.encoding, QuadraticEncoding):
        numbers = (attention.encoding.center, attention.encoding.alpha)
        return HeadsAround(name, seen, place, *(each.detach().double().cpu().numpy() for each in numbers))
    return HeadsAround(name, seen, place)


def radius(alpha: float, share: float) -> float:
    """Radius of the circle that holds `share` of the density proportional to `exp(-alpha r^2)` in the plane.

    A circle of radius r holds `1 - exp(-alpha r^2)` of it.
    """
    return math.sqrt(-math.log1p(-share) / alpha)


def draw(layers: Sequence[HeadsAround]) -> "Figure":
    """A panel for each layer (row) and head (column), white for no attention and black for the most in that panel.

    Axes are offsets (key - query) in pixels; a cross marks the query. A line is drawn as a strip; of a volume, the sum
    over its first axis. Quadratic heads of a plane or volume carry their centre and its circles.
    """
    from matplotlib.figure import Figure

    columns = max(len(layer.attention) for layer in layers)
    size = (MARGIN + INCHES * columns, MARGIN + (INCHES + 0.2) * len(layers))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(layers), columns, squeeze=False)
    for layer, line in zip(layers, panels, strict=True):
        for panel in line[len(layer.attention) :]:
            panel.remove()
        line[0].set_ylabel(layer.name, fontsize=6)
        for head, panel in enumerate(line[: len(layer.attention)]):
            draw_head(panel, layer, head)
    return figure


def draw_head(panel: "Axes", layer: HeadsAround, head: int) -> None:
    """One panel: attention, the query, and what is known of a quadratic head."""
    from matplotlib.patches import Circle

    seen, (row, column) = layer.attention[head], (0, *layer.query)[-2:]
    plane = seen[None] if seen.ndim == 1 else seen.reshape(-1, *seen.shape[-2:]).sum(0)
    high, wide = plane.shape
    extent = (-column - 0.5, wide - column - 0.5, high - row - 0.5, -row - 0.5)
    panel.imshow(plane, cmap="Greys", vmin=0.0, vmax=plane.max(), extent=extent, interpolation="nearest")
    panel.plot(0, 0, marker="+", color="tab:blue", markersize=5)
    if layer.centers is not None and layer.alpha is not None and seen.ndim > 1:
        down, right = layer.centers[head][-2:]
        panel.plot(right, down, marker=".", color="tab:red", markersize=4)
        for share, style in CIRCLES.items():
            if layer.alpha[head] > 0:
                around = Circle((right, down), radius(layer.alpha[head], share), fill=False, ls=style, ec="tab:red")
                panel.add_patch(around)
    panel.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
    panel.set_title(f"head {head}: max {plane.max():.2f}", fontsize=6)


def draw_facts(report: HeadsReport, kernel_size: int = 3) -> "Figure":
    """Attention by displacement, a row a layer and a column a head, all on one scale, with the kernel's box.

    Displacement (0, 0) is in the middle of each panel; the brightest has the most attention, over all queries.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    layers = [layer for layer in report.layers if layer.mass is not None]
    columns = max(len(layer.heads) for layer in layers)
    size = (MARGIN + 0.6 + INCHES * columns, 1.1 + (INCHES + 0.2) * len(layers))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(layers), columns, squeeze=False)
    held = [layer.mass for layer in layers if layer.mass is not None]
    most = max(float(plane_of(mass).max()) for masses in held for mass in masses)
    shown = None
    for layer, line in zip(layers, panels, strict=True):
        line[0].set_ylabel(layer.name if len(layer.name) <= 22 else "…" + layer.name[-21:], fontsize=6)
        for panel in line[len(layer.heads) :]:
            panel.remove()
        for head, panel in zip(layer.heads, line, strict=False):
            assert layer.mass is not None
            plane = plane_of(layer.mass[head.head])
            high, wide = (side / 2 for side in plane.shape)
            extent = (-wide, wide, high, -high)
            shown = panel.imshow(plane, cmap="cividis", vmin=0.0, vmax=most, extent=extent, interpolation="nearest")
            half = kernel_size / 2
            tall = min(half, high)
            panel.add_patch(Rectangle((-half, -tall), 2 * half, 2 * tall, fill=False, ec="white", lw=1.0))
            panel.set(xticks=[], yticks=[])
            panel.set_title(f"{head.head}: {head.peak_mass:.0%} at {','.join(map(str, head.peak))}", fontsize=6)
    assert shown is not None
    bar = figure.colorbar(shown, ax=[panel for panel in figure.axes if panel.images], fraction=0.02)
    bar.set_label("attention, mean over queries", fontsize=7)
    shares = [found.share for layer in layers for found in layer.convolutions if found.size == kernel_size]
    answer = f"{min(shares):.0%} to {max(shares):.0%} of each layer's map" if shares else "values were not read"
    asked = (
        f"Where do heads look, and is it a {kernel_size}x{kernel_size} convolution (white box)? One explains {answer}."
    )
    figure.suptitle(asked if shares else asked.split(" One explains")[0], fontsize=9)
    return figure


CURVES = (("rel", "tab:blue", "o"), ("R2 3x3", "tab:orange", "s"), ("conv 3", "black", "^"))
"""The shares that are drawn over the layers, each with a colour and a mark."""


def draw_curves(reports: Sequence[HeadsReport]) -> "Figure":
    """What displacement, the span and a 3x3 convolution explain, over the layers: one report solid, a second dashed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    panel = figure.subplots()
    names = {"rel": "attention, by displacement", "R2 3x3": "3x3 shifts, by the span", "conv 3": "layer, by a 3x3 conv"}
    for place, report in enumerate(reports):
        layers = [layer for layer in report.layers if layer.heads]
        for number, colour, mark in CURVES:
            values = [NUMBERS[number][0](layer) for layer in layers]
            heights = [float("nan") if value is None else value for value in values]
            label = names[number] + (", after" if place else ", before" if len(reports) > 1 else "")
            style = "--" if place else "-"
            panel.plot(range(len(layers)), heights, color=colour, marker=mark, linestyle=style, label=label)
    panel.set(ylim=(0, 1.02), xlabel="layer", ylabel="share explained")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=max(2, len(reports)), fontsize=7)
    figure.suptitle("How much do displacement and convolution explain, layer by layer?", fontsize=10)
    return figure


def plane_of(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Attention by displacement as a plane: a line is a strip, a volume the sum over its first axis."""
    return mass[None] if mass.ndim == 1 else mass.reshape(-1, *mass.shape[-2:]).sum(0)


def check_drawable(path: str | Path) -> None:
    """Refuses, before any work is done, a picture that could not be made.

    Raises:
        UsageError: no matplotlib, or a suffix that is not a picture's (C2A001).
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError("C2A001", f"--plot {path} does not end in {', '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise UsageError("C2A001", "--plot needs matplotlib", "Install it with pip install 'conv2attn[plot]'.")


def write(figure: "Figure", path: str | Path, force: bool = False) -> None:
    """Writes the figure whole or not at all, in the format that the suffix names.

    Raises:
        CheckpointError: it exists and `force` is false (C2A305), or cannot be written (C2A301).
    """
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    write_bytes_atomically(path, buffer.getvalue(), force)
