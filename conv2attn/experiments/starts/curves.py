"""The learning curves of the starts, a panel for each training set."""

import hashlib
import statistics
from typing import TYPE_CHECKING

from conv2attn.experiments.figures.panels import draw_curve
from conv2attn.experiments.starts.starts_plan import ARMS, SIZES, Size
from conv2attn.experiments.starts.table import Starts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mean_curves(starts: Starts, size: Size) -> dict[str, list[float]]:
    """For each arm that has runs at a size, the mean over its seeds of the accuracy after each epoch, in per cent."""
    curves = {}
    for arm in size.arms:
        runs = [[100 * float(share) for share in row["curve"].split()] for row in starts.runs_of(size, arm).values()]
        if runs:
            curves[arm] = [statistics.fmean(epoch) for epoch in zip(*runs, strict=True)]
    return curves


def draw_start_curves(starts: Starts) -> "Figure":
    """A panel for each training set that is seen more than once and has runs."""
    from matplotlib.figure import Figure

    drawn = [(size, curves) for size in SIZES if size.epochs > 1 and (curves := mean_curves(starts, size))]
    figure = Figure(figsize=(3.2 * max(1, len(drawn)), 3), layout="constrained")
    panels = figure.subplots(1, max(1, len(drawn)), squeeze=False)[0]
    for panel, (size, curves) in zip(panels, drawn, strict=False):
        for arm, accuracies in curves.items():
            draw_curve(panel, ARMS.index(arm), arm, range(1, size.epochs + 1), accuracies)
        panel.set_title(f"{size.images} images of {size.data}", fontsize=8)
        panel.set(xlabel="epoch", ylabel="accuracy in %")
        panel.legend(fontsize=6)
    return figure


def digest_of(starts: Starts) -> str:
    """A digest of the curves, which the file of the figure carries."""
    text = repr([(size, mean_curves(starts, size)) for size in SIZES])
    return hashlib.sha256(text.encode()).hexdigest()
