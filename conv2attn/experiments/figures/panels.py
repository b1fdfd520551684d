"""Panels of the figures. Heads differ by colour (Okabe and Ito, readable by colour-blind people) and by number."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from conv2attn.experiments.figures.ellipses import Numbers, ellipse, mean_places, reading_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
SHARES = {0.5: "-", 0.9: ":"}


def draw_curve(panel: "Axes", place: int, name: str, epochs: Sequence[float], accuracy: Sequence[float]) -> None:
    """A learning curve, by colour and by dashes."""
    style = DASHES[place // len(COLOURS) % len(DASHES)] if place >= len(COLOURS) else DASHES[place % len(DASHES)]
    panel.plot(epochs, accuracy, style, color=COLOURS[place % len(COLOURS)], lw=1.3, label=name)


def draw_centers(
    panel: "Axes", centers: Numbers, precisions: Numbers, order: Sequence[int], reach: float, title: str
) -> None:
    """Centres of attention around the query, a grey square, with the ellipses of 50 % (solid) and 90 % (dotted).

    Heads are numbered and coloured by their place in `order`. Centres beyond `reach` pixels are not shown; the title
    says how many there are.
    """
    from matplotlib import patches

    for place, head in enumerate(order):
        colour = COLOURS[place % len(COLOURS)]
        row, column = centers[head]
        for share, style in SHARES.items():
            shape = ellipse(centers[head], precisions[head], share)
            long, short = shape.semi_axes
            panel.add_patch(
                patches.Ellipse(
                    (column, row), 2 * long, 2 * short, angle=shape.angle, fill=False, ls=style, ec=colour, lw=1
                )
            )
        panel.plot(column, row, ".", color=colour, markersize=3)
        panel.annotate(str(place + 1), (column, row), (2, 2), textcoords="offset points", fontsize=7, color=colour)
    outside = int((np.abs(centers).max(1) > reach).sum())
    panel.add_patch(patches.Rectangle((-0.5, -0.5), 1, 1, color="0.8", lw=0, zorder=0))
    panel.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    panel.tick_params(labelsize=5, length=2)
    panel.set_title(f"{title} ({outside} beyond)" if outside else title, fontsize=7)


def draw_attention(panel: "Axes", attention: Numbers, query: tuple[int, int], zoom: int | None, title: str) -> None:
    """Attention of one head: white for none, black for the most in the panel; the query has a frame."""
    from matplotlib.patches import Rectangle

    rows, columns = attention.shape
    panel.imshow(attention, cmap="Greys", vmin=0, vmax=attention.max(), interpolation="nearest")
    panel.add_patch(Rectangle((query[1] - 0.5, query[0] - 0.5), 1, 1, fill=False, ec="#D55E00", lw=1))
    reach = max(rows, columns) if zoom is None else zoom / 2
    box = [max(-0.5, query[0] - reach), min(rows - 0.5, query[0] + reach)]
    sides = [max(-0.5, query[1] - reach), min(columns - 0.5, query[1] + reach)]
    panel.set(xlim=sides, ylim=box[::-1], xticks=[], yticks=[])
    panel.set_title(title, fontsize=5, pad=2)


def order_of(attention: Numbers, query: tuple[int, int]) -> list[int]:
    """The heads of a layer in reading order of their mean displacements: attention (heads, rows, columns)."""
    return reading_order(mean_places(attention, query))
