"""The learning curves of the starts: a panel for each training set, a line for each arm."""

import hashlib
import math
import statistics
from dataclasses import astuple
from typing import TYPE_CHECKING

from conv2attn.extras import optional
from conv2attn.lab.figures.drawing import draw_curve
from conv2attn.lab.starts.starts_plan import START_ARMS, TRAINING_SIZES, TrainingSize
from conv2attn.lab.starts.table import Starts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 4
"""Panels side by side."""


def mean_curves(starts: Starts, size: TrainingSize) -> dict[str, list[float]]:
    """For each arm that has runs at a size, the mean over its seeds of the accuracy after each epoch, in per cent."""
    curves = {}
    for arm in size.arms:
        runs = [[100 * float(share) for share in row["curve"].split()] for row in starts.runs_of(size, arm).values()]
        if runs:
            curves[arm] = [statistics.fmean(epoch) for epoch in zip(*runs, strict=True)]
    return curves


def draw_start_curves(starts: Starts) -> "Figure":
    """A panel for each training set that is seen more than once and has runs."""
    drawn = [(size, curves) for size in TRAINING_SIZES if size.epochs > 1 and (curves := mean_curves(starts, size))]
    down = max(1, math.ceil(len(drawn) / ACROSS))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(3.2 * ACROSS, 3 * down), layout="constrained")
    panels = figure.subplots(down, ACROSS, squeeze=False).ravel()
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    for panel, (size, curves) in zip(panels, drawn, strict=False):
        for arm, accuracies in curves.items():
            draw_curve(panel, START_ARMS.index(arm), arm, range(1, size.epochs + 1), accuracies)
        panel.set_title(f"{size.text} epochs", fontsize=8)
        panel.set(xlabel="epoch", ylabel="accuracy in %")
        panel.legend(fontsize=6)
    return figure


def digest_of(starts: Starts) -> str:
    """A digest of the curves, which the file of the figure carries."""
    text = repr([(astuple(size), mean_curves(starts, size)) for size in TRAINING_SIZES])
    return hashlib.sha256(text.encode()).hexdigest()
