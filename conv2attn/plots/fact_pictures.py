"""Pictures of the measures of `heads`: attention by displacement, and curves over the layers."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conv2attn.extras import optional
from conv2attn.plots.heads import INCHES, MARGIN, plane_of
from conv2attn.span.graded_facts.fact_table import facts_drawn
from conv2attn.span.graded_facts.facts import HeadsReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS = 12  # of a title, in an inch
SHOWN_SHARE = 0.9
"""Share of a head's attention to pixels that its panel shows, in a square around displacement 0."""
LEAST = 3
"""Displacements that a panel shows at least to each side of 0."""


def draw_facts(report: HeadsReport, kernel_size: int = 3) -> "Figure":
    """Attention by displacement, a row a layer and a column a head, each panel on its own scale, with the kernel's box.

    Displacement (0, 0) is in the middle of each panel, which is cropped to 90 % of the head's attention to pixels. The
    title has the head's number, its kind, and the most that one displacement has, over all queries.
    """
    layers = [layer for layer in report.layers if layer.mass is not None]
    columns = max(len(layer.heads) for layer in layers)
    size = (MARGIN + INCHES * columns, 0.7 + (INCHES + 0.3) * len(layers))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(layers), columns, squeeze=False)
    for layer, line in zip(layers, panels, strict=True):
        line[0].set_ylabel(layer.name if len(layer.name) <= 22 else "…" + layer.name[-21:], fontsize=6)
        for panel in line[len(layer.heads) :]:
            panel.remove()
        for head, panel in zip(layer.heads, line, strict=False):
            if layer.mass is not None:
                draw_panel(panel, plane_of(layer.mass[head.head]), kernel_size)
            panel.set_title(f"{head.head} {head.kind}\nmax {head.peak_mass:.2g}", fontsize=6)
    shares = [fact.share for layer in layers if (fact := layer.convolution(kernel_size)) is not None]
    title = f"Where do heads look, and is it a {kernel_size}x{kernel_size} convolution (white box)?"
    if shares:
        between = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
        title += f" One explains {between} of each layer's map."
    figure.suptitle(fill(title, int(LETTERS * size[0])), fontsize=9)
    return figure


def draw_panel(panel: "Axes", mass: NDArray[np.float64], kernel_size: int) -> None:
    """One head: its attention by displacement, cropped, on its own scale, and the box of the kernel."""
    plane = crop_plane(mass)
    high, wide = (side / 2 for side in plane.shape)
    panel.imshow(plane, cmap="cividis", vmin=0.0, extent=(-wide, wide, high, -high), interpolation="nearest")
    half = kernel_size / 2
    tall = min(half, high)
    panel.add_patch(
        optional("matplotlib.patches").Rectangle((-half, -tall), 2 * half, 2 * tall, fill=False, ec="white", lw=1.0)
    )
    panel.set(xticks=[], yticks=[])


def crop_plane(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest part of a plane around displacement 0, square where possible, that holds 90 % of its sum."""
    middle, total = [side // 2 for side in plane.shape], plane.sum()
    for reach in range(min(LEAST, max(middle)), max(middle) + 1):
        part = plane[tuple(slice(max(0, at - reach), at + reach + 1) for at in middle)]
        if part.sum() >= SHOWN_SHARE * total:
            return part
    return plane


def draw_curves(reports: Sequence[HeadsReport]) -> "Figure":
    """The facts of the table that have a curve, over the layers; of several reports the later ones are fainter."""
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.subplots()
    for place, report in enumerate(reports):
        layers = [layer for layer in report.layers if layer.heads]
        for fact, (colour, mark) in facts_drawn():
            values = [fact.height(layer) for layer in layers]
            heights = [float("nan") if value is None else value for value in values]
            label = fact.label if not place else None
            style, shade = ("--", 0.6) if place else ("-", 1.0)
            panel.plot(range(len(layers)), heights, style, alpha=shade, color=colour, marker=mark, label=label)
            error = [getattr(layer.errors, fact.name, None) or 0.0 for layer in layers]
            if any(error):
                panel.errorbar(range(len(layers)), heights, yerr=error, fmt="none", ecolor=colour, capsize=2)
    panel.set(ylim=(-0.02, 1.02), xlabel="layer", ylabel="share")
    panel.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=3, fontsize=7)
    many = f" ({len(reports)} checkpoints, the first solid)" if len(reports) > 1 else ""
    figure.suptitle(f"What do the heads do, layer by layer?{many}", fontsize=10)
    return figure
