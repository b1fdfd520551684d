"""Pictures of what `heads` measures: attention by displacement, and the explained shares layer by layer."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conv2attn.plots.heads import INCHES, MARGIN
from conv2attn.span.facts import HeadsReport
from conv2attn.span.facts_document import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = 12  # of a title, in an inch


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
    asked = f"Where do heads look, and is it a {kernel_size}x{kernel_size} convolution (white box)?"
    if shares:
        between = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
        asked += f" One explains {between} of each layer's map."
    figure.suptitle(fill(asked, int(LETTERS * size[0])), fontsize=9)
    return figure


CURVES = (("rel", "tab:blue", "o"), ("R2 3x3", "tab:orange", "s"), ("conv 3", "black", "^"))
"""The shares that are drawn over the layers, each with a colour and a mark."""


def draw_curves(reports: Sequence[HeadsReport]) -> "Figure":
    """Shares that displacement, span and a 3x3 convolution explain, over the layers; a second report dashed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    panel = figure.subplots()
    names = {"rel": "attention, by displacement", "R2 3x3": "3x3 shifts, by the span", "conv 3": "layer, by a 3x3 conv"}
    for place, report in enumerate(reports):
        layers = [layer for layer in report.layers if layer.heads]
        for number, colour, mark in CURVES:
            values = [FIGURES[number][0](layer) for layer in layers]
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
