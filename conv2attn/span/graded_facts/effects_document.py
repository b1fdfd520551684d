"""The effects of replaced heads as text."""

from collections.abc import Sequence

from conv2attn.report import Cell, Notes, Table, counted
from conv2attn.report.document_parts import DocumentPart
from conv2attn.span.graded_facts.effects import Effect, ReplacedTogether
from conv2attn.span.graded_facts.facts import HeadsReport

EFFECTS = ("layer", "head", "by", "change", "uniform", "lost")
LABELLED = ("loss", "accuracy")
EFFECTS_SPARE = ("by", "lost")
MOST_SHOWN = 5  # heads on the first screen: those that change the output most
LEGEND = (
    "change: mean of |y' - y| / |y| over the half of the images that did not measure the replacement, y the output of "
    "the network; uniform: the same with uniform attention in place of the head; lost: the same with its mean over "
    "images, as a share of uniform"
)
LABELLED_LEGEND = "loss, accuracy: how much more cross entropy, and what share of the images more is classified right"


def effect_parts(report: HeadsReport, verbose: bool = False) -> list[DocumentPart]:
    """One row per replaced head, one for all of them at once, and one for random heads.

    Unless `verbose`, only the heads that change the output most, in this order.
    """
    replaced = [(layer.name, head.head, head.replaced) for layer in report.layers for head in layer.heads]
    single = [(layer, head, each) for layer, head, each in replaced if each is not None]
    labelled = any(each.effect.loss is not None for _, _, each in single)
    more = 0
    if not verbose:
        single.sort(key=lambda line: line[2].effect.change, reverse=True)
        more, single = len(single[MOST_SHOWN:]), single[:MOST_SHOWN]
    lines: list[tuple[Cell, ...]] = []
    for layer, head, each in single:
        numbers = (*change_cells(each.effect, each.uniform), value_and_error(each.lost, each.lost_error))
        lines.append((layer, head, each.by, *numbers, *label_cells(each.effect)))
    if report.together is not None:
        lines += together_lines(report.together)
    if not lines:
        return []
    table = Table(EFFECTS + LABELLED, tuple(lines), EFFECTS_SPARE)
    rest = [f"{counted(more, 'more head')}, which change it no more than these (-v)"] if more else []
    legend = (*rest, LEGEND, LABELLED_LEGEND) if labelled else (*rest, LEGEND)
    return [table if labelled else table.without({*LABELLED}), Notes(legend)]


def together_lines(together: ReplacedTogether) -> list[tuple[Cell, ...]]:
    """One row for the heads that are replaced at once, and one for the mean over draws of random heads."""
    count = counted(len(together.heads), "head")
    cells: tuple[Cell, ...] = (
        f"{count} at once",
        "",
        together.by,
        *change_cells(together.effect, together.uniform),
        "",
    )
    lines: list[tuple[Cell, ...]] = [cells + label_cells(together.effect)]
    if together.random is not None:
        drawn = f"{count} at random ({together.draws} draws)"
        lines.append((drawn, "", together.by, *change_cells(together.random, None), "", *label_cells(together.random)))
    return lines


def change_cells(effect: Effect, uniform: Effect | None) -> Sequence[str]:
    """The change under the replacement, and under uniform attention."""
    control = "" if uniform is None else value_and_error(uniform.change, uniform.change_error)
    return (value_and_error(effect.change, effect.change_error), control)


def label_cells(effect: Effect) -> tuple[Cell, ...]:
    """The increase of the loss, and of the accuracy."""
    return (value_and_error(effect.loss, effect.loss_error), value_and_error(effect.accuracy, effect.accuracy_error))


def value_and_error(value: float | None, error: float | None) -> str:
    """A number with its standard error."""
    return "-" if value is None else f"{value:.2e}" + (f" ± {error:.0e}" if error is not None else "")
