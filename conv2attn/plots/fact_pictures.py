"""Pictures of the measures of `heads`: attention by displacement, and curves over the layers."""

from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conv2attn.extras import optional
from conv2attn.files.atomic_files import write_bytes_atomically
from conv2attn.span import HeadsReport
from conv2attn.span.graded_facts.fact_table import facts_drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

LETTERS = 12  # letters of a title per inch
INCHES, MARGIN = 1.2, 0.7
SHOWN_SHARE = 0.9
"""Share of a head's attention to pixels that its panel shows, in a square around displacement 0."""
LEAST = 3
"""Least number of displacements to each side of 0 in a panel."""


def draw_facts(report: HeadsReport) -> "Figure":
    """Draws attention by displacement, one row per layer, one column per head, on one scale, with a 3x3 kernel's box.

    A cross marks the query, displacement (0, 0). All panels show the same square, in which each head has 90 % of its
    attention to pixels. Colours follow the root of the share, so that weak heads are visible, but weaker than strong
    ones. The title has the head's number, its kind, and the largest share of one displacement, over all queries.
    """
    layers = [layer for layer in report.layers if layer.mass is not None]
    columns = max(len(layer.heads) for layer in layers)
    size = (MARGIN + INCHES * columns + 0.5, 0.7 + (INCHES + 0.3) * len(layers))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(layers), columns, squeeze=False)
    planes = [[plane_of(layer.mass[head.head]) for head in layer.heads] for layer in layers if layer.mass is not None]
    # One reach and one scale of colours for all panels, so that heads can be compared.
    reach = max(reach_of(plane) for line in planes for plane in line)
    most = max(float(plane.max()) for line in planes for plane in line)
    scale = optional("matplotlib.colors").PowerNorm(0.5, 0.0, most)
    for layer, line, of_heads in zip(layers, panels, planes, strict=True):
        line[0].set_ylabel(layer.name if len(layer.name) <= 22 else "…" + layer.name[-21:], fontsize=6)
        for panel in line[len(layer.heads) :]:
            panel.remove()
        for head, panel, plane in zip(layer.heads, line, of_heads, strict=False):
            draw_panel(panel, cropped(plane, reach), scale)
            panel.set_title(f"{head.head} {head.kind}\nmax {head.peak_mass:.2g}", fontsize=6)
            if panel is not line[0]:
                panel.set_yticklabels([])
    colours = optional("matplotlib.cm").ScalarMappable(scale, "cividis")
    bar = figure.colorbar(colours, ax=figure.axes, shrink=0.6, aspect=30)
    bar.set_label("share of attention", fontsize=6)
    bar.ax.tick_params(labelsize=5)
    shares = [fact.share for layer in layers if (fact := layer.convolution(3)) is not None]
    title = "Where do heads look, and is it a 3x3 convolution (white box)?"
    if shares:
        between = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
        title += f" One explains {between} of each layer's map."
    figure.suptitle(fill(title, int(LETTERS * size[0])), fontsize=9)
    say_inputs(figure, report.inputs)
    return figure


def draw_panel(panel: "Axes", plane: NDArray[np.float64], scale: "Normalize") -> None:
    """One head: its attention by displacement, the query, and the box of the kernel; ticks are in tokens."""
    high, wide = (side / 2 for side in plane.shape)
    # Displacement 0 is in the middle of the plane. With this extent ticks are displacements, and a 3x3 kernel ends at
    # 1.5.
    extent = (-wide, wide, high, -high)
    panel.imshow(plane, cmap="cividis", norm=scale, extent=extent, interpolation="nearest")
    half = 3 / 2
    tall = min(half, high)
    panel.add_patch(
        optional("matplotlib.patches").Rectangle((-half, -tall), 2 * half, 2 * tall, fill=False, ec="white", lw=1.0)
    )
    panel.plot(0, 0, marker="+", color="white", markersize=4, mew=0.7)
    panel.set(xticks=ticks(wide), yticks=ticks(high))
    panel.tick_params(labelsize=5, length=2, pad=1)


def ticks(half: float) -> list[float]:
    """The query and both ends of an axis, in tokens."""
    return [-(half - 0.5), 0, half - 0.5] if half > 1 else [0]


def reach_of(plane: NDArray[np.float64]) -> int:
    """The half side of the smallest square around displacement 0 with 90 % of the sum of a plane."""
    farthest, total = max(side // 2 for side in plane.shape), plane.sum()
    reaches = range(min(LEAST, farthest), farthest + 1)
    return next((each for each in reaches if cropped(plane, each).sum() >= SHOWN_SHARE * total), farthest)


def cropped(plane: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """The part of a plane around displacement 0."""
    middle = [side // 2 for side in plane.shape]
    return plane[tuple(slice(max(0, at - reach), at + reach + 1) for at in middle)]


def draw_curves(report: HeadsReport) -> "Figure":
    """The facts of the table that have a curve, over the layers."""
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.subplots()
    layers = [layer for layer in report.layers if layer.heads]
    for fact, (colour, mark) in facts_drawn():
        values = [fact.height(layer) for layer in layers]
        heights = [float("nan") if value is None else value for value in values]
        panel.plot(range(len(layers)), heights, color=colour, marker=mark, label=fact.label)
        error = [getattr(layer.errors, fact.name, None) or 0.0 for layer in layers]
        if any(error):
            panel.errorbar(range(len(layers)), heights, yerr=error, fmt="none", ecolor=colour, capsize=2)
    panel.set(ylim=(-0.02, 1.02), xlabel="layer", ylabel="share")
    panel.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=3, fontsize=7)
    figure.suptitle("What do the heads do, layer by layer?", fontsize=10)
    say_inputs(figure, report.inputs)
    return figure


def say_inputs(figure: "Figure", inputs: str) -> None:
    """Writes the network's inputs below a figure; nothing if unknown."""
    if inputs:
        figure.supxlabel(fill(f"inputs: {inputs}", int(2 * LETTERS * figure.get_figwidth())), fontsize=5)


def plane_of(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers on a grid as a plane: a line is a strip, a volume the sum over its first axis."""
    return numbers[None] if numbers.ndim == 1 else numbers.reshape(-1, *numbers.shape[-2:]).sum(0)


def write(figure: "Figure", path: str | Path, force: bool = False) -> None:
    """Writes the figure whole or not at all, in the format of its suffix.

    Raises:
        CheckpointError: it exists and `force` is false (C2A305), or cannot be written (C2A301).
    """
    buffer = BytesIO()
    # The picture is drawn in memory first, since an error while drawing must not leave a broken file.
    figure.savefig(buffer, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    write_bytes_atomically(path, buffer.getvalue(), force)
