"""A picture of what the replacement of each head changes."""

from typing import TYPE_CHECKING

from conv2attn.errors import UsageError
from conv2attn.extras import optional
from conv2attn.plots.heads import say_inputs
from conv2attn.span import HeadsReport
from conv2attn.span.graded_facts.effects import Effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROWEST, WIDEST = 4.0, 16.0
WIDTH_OF_HEAD = 0.16
"""Inches of a pair of bars."""


def draw_effects(report: HeadsReport) -> "Figure":
    """A pair of bars for each replaced head, side by side in its layer: the change, and that under uniform attention.

    With labels a second panel has the differences of the loss. Whiskers are standard errors over the images that did
    not measure the replacement. The last bars are those of all named heads at once, and of random heads.

    Raises:
        UsageError: no head was replaced (C2A006).
    """
    pairs: list[tuple[str, str, Effect, Effect | None]] = []
    by = ""
    for layer in report.layers:
        for head in layer.heads:
            if (each := head.replaced) is not None:
                pairs.append((layer.name, str(head.head), each.effect, each.uniform))
                by = each.by
    if not pairs:
        raise UsageError("C2A006", "no head was replaced, and nothing is drawn", "Pass --replace to heads.")
    if (together := report.together) is not None:
        pairs.append((f"{len(together.heads)} at once", "", together.effect, together.uniform))
        if together.random is not None:
            pairs.append((f"{len(together.heads)} at random", "", together.random, None))
    labelled = pairs[0][2].loss is not None
    size = (min(WIDEST, max(NARROWEST, 1 + WIDTH_OF_HEAD * len(pairs) * 2)), 5.2 if labelled else 3.0)
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2 if labelled else 1, squeeze=False, sharex=True)[:, 0]
    for panel, number, title in zip(panels, ("change", "loss"), ("|y' - y| / |y|", "cross entropy more"), strict=False):
        for shift, colour, place, label in ((-0.2, "tab:blue", 2, by), (0.2, "tab:gray", 3, "uniform")):
            bars = [(at, each[place]) for at, each in enumerate(pairs) if each[place] is not None]
            heights = [getattr(effect, number) for _, effect in bars]
            errors = [getattr(effect, f"{number}_error") for _, effect in bars]
            panel.bar([at + shift for at, _ in bars], heights, 0.4, yerr=errors, color=colour, label=label, capsize=1.5)
        panel.set_ylabel(title, fontsize=8)
        starts = [at for at, each in enumerate(pairs) if not at or pairs[at - 1][0] != each[0]]
        for at in starts[1:]:
            panel.axvline(at - 0.5, color="0.85", linewidth=0.8, zorder=0)
    panels[-1].set_xticks(range(len(pairs)), [head for _, head, _, _ in pairs], fontsize=5)
    panels[-1].set_xlabel("head, layer by layer", fontsize=8)
    names = panels[0].secondary_xaxis("top")
    names.set_xticks(starts, [shortened(pairs[at][0]) for at in starts], fontsize=6, rotation=30, ha="left")
    names.tick_params(length=0)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    figure.suptitle("What does replacing a head change?", fontsize=10)
    say_inputs(figure, report.inputs)
    return figure


def shortened(name: str) -> str:
    """The end of a long name."""
    return name if len(name) <= 18 else "…" + name[-17:]
