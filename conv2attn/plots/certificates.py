"""A picture of a certificate: measured error and bound, layer by layer."""

import math
from typing import TYPE_CHECKING

from conv2attn.equality import Certificate
from conv2attn.errors import UsageError
from conv2attn.extras import optional
from conv2attn.report import show
from conv2attn.verdicts import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICT_COLOURS = {
    Verdict.HOLDS: "tab:blue",
    Verdict.REFUTED: "tab:red",
    Verdict.UNDECIDED: "tab:orange",
    Verdict.UNSUPPORTED: "tab:gray",
}
LABEL_WIDTH = 32
"""Characters of a layer's name in the picture."""


def draw_certificate(certificate: Certificate) -> "Figure":
    """The largest measured error (dot) and its bound (bar) of each layer, on a logarithmic axis.

    A hollow dot left of the axis, where the tick says 0, is an error of exactly 0. Layers without a measurement have a
    verdict and no dot; skipped layers are left out.

    Raises:
        UsageError: no layer was compared (C2A008).
    """
    rows = certificate.counted
    if not rows:
        raise UsageError(
            "C2A008", "no layer was compared, so there is no error to draw", "Compare networks with convolutions."
        )
    numbers = [number for row in rows for number in (row.max_error, row.bound) if number and number < float("inf")]
    # Errors of exactly 0 are drawn at `least`, a decade below every other number.
    least = min(numbers, default=1.0) / 10
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(7, 1.3 + 0.22 * len(rows)), layout="constrained")
    panel = figure.subplots()
    for place, row in enumerate(rows):
        colour = VERDICT_COLOURS[row.verdict]
        error = row.max_error
        if error is not None and error < float("inf"):
            panel.plot(max(error, least), place, "o", ms=5, color=colour, mfc=colour if error else "white")
            if row.bound is not None and row.bound < float("inf"):
                panel.plot([max(error, least), row.bound], [place] * 2, color=colour, lw=0.8, alpha=0.5)
        if row.bound is not None and row.bound < float("inf"):
            panel.plot(max(row.bound, least), place, "|", ms=10, mew=2, color=colour)
    names = [row.name if len(row.name) <= LABEL_WIDTH else f"…{row.name[1 - LABEL_WIDTH :]}" for row in rows]
    panel.set(xscale="log", xlim=(least / 1.5, None), ylim=(len(rows) - 0.5, -0.5), yticks=range(len(rows)))
    panel.set_yticklabels(names, fontsize=7)
    panel.set_xlabel("difference between the two layers' outputs")
    panel.grid(axis="x", lw=0.3)
    if any(row.max_error == 0 for row in rows):  # a logarithmic axis has no 0, so 0 is separated by a line
        panel.axvline(3 * least, color="black", lw=0.6, ls="dotted")
        panel.set_xticks([least, *(each for each in panel.get_xticks() if 3 * least < each <= panel.get_xlim()[1])])
        panel.set_xticklabels(["0", *(f"$10^{{{round(math.log10(each))}}}$" for each in panel.get_xticks()[1:])])
        panel.minorticks_off()
    marks = {"largest measured": ("o", "black"), "exactly 0": ("o", "white"), "bound": ("|", "black")}
    keys = [
        optional("matplotlib.lines").Line2D(
            [], [], ls="", marker=mark, ms=6, mew=1.5, color="black", mfc=inside, label=name
        )
        for name, (mark, inside) in marks.items()
    ]
    verdicts = [verdict for verdict in Verdict if verdict in {row.verdict for row in rows}]
    keys += [
        optional("matplotlib.lines").Line2D(
            [], [], ls="", marker="s", color=VERDICT_COLOURS[verdict], label=verdict.value
        )
        for verdict in verdicts
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=7, frameon=False)
    ranges = sorted({row.input_range for row in rows if row.input_range is not None})
    suffix = f", inputs up to {show(ranges[0])}" if len(ranges) == 1 else ""
    figure.suptitle(f"{certificate.summary.partition(';')[0]}: error beside bound{suffix}", fontsize=10)
    return figure
