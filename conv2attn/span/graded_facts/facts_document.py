"""The text of a report on heads and on the effects of replacing them. Its columns are facts of `FACTS`."""

from collections.abc import Sequence

from conv2attn.report import Cell, Document, Notes, Table, counted, document, gathered
from conv2attn.report.document_parts import DocumentPart
from conv2attn.span.graded_facts.effects import NOT_REPLACED, Effect, ReplacedTogether
from conv2attn.span.graded_facts.fact_table import facts_defined, facts_shown, leaving
from conv2attn.span.graded_facts.facts import (
    HeadFacts,
    HeadsReport,
    LayerFacts,
    other_kind,
)
from conv2attn.span.reading import TAKEN_FOR

EFFECTS = ("layer", "head", "by", "change", "uniform", "lost")
LABELLED = ("loss", "accuracy")
EFFECTS_SPARE = ("by", "lost")
MOST_SHOWN = 5  # heads that are shown without -v: those that change the output most
LEGEND = (
    "change: mean of |y' - y| / |y| for the output y of the network, over images that did not measure the replacement; "
    "uniform: change under uniform attention in place of the head; lost: change under its mean over images, divided by "
    "uniform"
)
LABELLED_LEGEND = "loss, accuracy: increase of the cross entropy, and of the share of images classified right"


def effect_parts(report: HeadsReport, verbose: bool = False) -> list[DocumentPart]:
    """One row per replaced head, one row for all heads that are replaced at once, and one row for random heads.

    Unless `verbose`, only the heads that change the output most have a row, the largest change first.
    """
    replaced = [(layer.name, head.head, head.replaced) for layer in report.layers for head in layer.heads]
    single = [(layer, head, effects) for layer, head, effects in replaced if effects is not None]
    labelled = any(effects.effect.loss is not None for _, _, effects in single)
    more = 0
    if not verbose:
        single.sort(key=lambda line: line[2].effect.change, reverse=True)
        more, single = len(single[MOST_SHOWN:]), single[:MOST_SHOWN]
    lines: list[tuple[Cell, ...]] = []
    for layer, head, effects in single:
        numbers = (*change_cells(effects.effect, effects.uniform), value_and_error(effects.lost, effects.lost_error))
        lines.append((layer, head, effects.by, *numbers, *label_cells(effects.effect)))
    if report.together is not None:
        lines += together_lines(report.together)
    if not lines:
        return []
    table = Table(EFFECTS + LABELLED, tuple(lines), EFFECTS_SPARE)
    rest = [f"{counted(more, 'more head')} with smaller changes (-v shows them)"] if more else []
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
    """The increase of the loss, and the increase of the accuracy."""
    return (value_and_error(effect.loss, effect.loss_error), value_and_error(effect.accuracy, effect.accuracy_error))


def value_and_error(value: float | None, error: float | None) -> str:
    """A number with its standard error."""
    return "-" if value is None else f"{value:.2e}" + (f" ± {error:.0e}" if error is not None else "")


SHARES = "rel, abs, cont: shares of displacement, other position, content; se: error of rel"
AMOUNTS = "dist: mean distance of attention, in tokens; replay: error of the layer as read"
REACHES = "R2 3x3: reach of 9 shifts; conv 3: a 3x3 convolution"
REACHES_OF_OTHER_AXES = (
    "R2 3x3: reach of the shifts by at most 1 along each axis; conv 3: of a convolution of 3 taps along each"
)


def legend_of(layers: Sequence[LayerFacts]) -> tuple[str, ...]:
    """The meaning of the columns of layers. For conv 3 it adds the values for uniform attention on these grids."""
    reaches = REACHES if all(len(layer.grid) == 2 for layer in layers) else REACHES_OF_OTHER_AXES
    of_uniform = [fact.chance for each in layers if (fact := each.convolution(3)) and fact.chance is not None]
    ends = dict.fromkeys(f"{share:.0%}" for share in (min(of_uniform), max(of_uniform))) if of_uniform else ()
    chance = f" (chance, of uniform attention: {' to '.join(ends)})" if ends else ""
    return SHARES, AMOUNTS, f"{reaches}{chance}; -: not known"


def kinds_of(layer: LayerFacts) -> str:
    """The number of heads of each kind, the most frequent first; a single shift is named with its displacement."""
    kinds: list[str] = [head.kind for head in layer.heads]
    if kinds.count("shift") == 1:
        (shift,) = (head for head in layer.heads if head.kind == "shift")
        kinds[shift.head] = f"shift ({', '.join(map(str, shift.peak))})"
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds), key=lambda k: (-kinds.count(k), k)))


def layer_cells(layer: LayerFacts) -> list[Cell]:
    """The row of a layer; the row of a layer that was not read holds only its replay."""
    facts = facts_shown("layer")
    if layer.unread:
        cells = (fact.written(layer.replay) if fact.name == "replay" else "" for fact in facts)
        return [layer.name, "not read", *cells, ""]
    return [layer.name, len(layer.heads), *(fact.written(fact.of_layer(layer)) for fact in facts), kinds_of(layer)]


def head_cells(layer: LayerFacts, head: HeadFacts) -> list[Cell]:
    """The row of a head, with two kinds if a number is near its threshold, and no peak if it reads no pixels."""
    other = other_kind(head.kind, lambda name: getattr(head, name, None))
    written: dict[str, Cell] = {"kind": f"{head.kind} or {other}"} if other else {}
    written |= {} if head.peak_mass else {"peak": "-"}
    facts = facts_shown("head")
    return [layer.name, head.head, *(written.get(fact.name, fact.written(fact.of_head(head))) for fact in facts)]


@document.register
def _(report: HeadsReport, verbose: bool = False) -> Document:
    """The number of layers that were read, one row per layer, and one row per head if `verbose`."""
    read = [layer for layer in report.layers if not layer.unread]
    heads = [head for layer in read for head in layer.heads]
    layers = counted(len(report.layers), "layer")
    summary = f"measured {counted(len(heads), 'head')} in {len(read)} of {layers}"
    images = sorted({layer.images for layer in read})
    summary += f", on {' or '.join(map(str, images))} images" if images and images[-1] > 1 else ""
    summary += f"; network {report.read_as}" if report.read_as else ""
    unread = gathered((layer.name, f"was not read: {layer.unread}") for layer in report.layers if layer.unread)
    # Columns of numbers that few kinds of layers have are left out if no head has such a number.
    rare = [fact for fact in facts_defined() if fact.if_any]
    absent = {fact.title for fact in rare if all(fact.of_head(head) is None for head in heads)}
    of_layers = ("layer", "heads", *(fact.title for fact in facts_shown("layer")), "kinds")
    cells = tuple(tuple(layer_cells(layer)) for layer in report.layers)
    parts: list[DocumentPart] = [
        Table(of_layers, cells, (*leaving("layer"), "kinds")).without(absent),
        Notes(legend_of(read)),
    ]
    parts += effect_parts(report, verbose)
    if not verbose:
        kept = ((each.name, note) for each in read for note in each.notes if NOT_REPLACED in note or TAKEN_FOR in note)
        parts.append(Notes(tuple(gathered(kept))))
    if verbose:
        of_heads = ("layer", "head", *(fact.title for fact in facts_shown("head")))
        lines = tuple(tuple(head_cells(layer, head)) for layer in report.layers for head in layer.heads)
        parts.append(Table(of_heads, lines, leaving("head")).without(absent))
        parts.append(Notes(tuple(line for layer in report.layers for line in layer_remarks(layer))))
    if report.needed:
        unread.append(f"pass {report.needed}, and attention is captured as the network runs")
    ran_on = (f"inputs: {report.inputs}",) if report.inputs else ()
    return Document((summary, *ran_on), (*parts, Notes(tuple(unread))))


def layer_remarks(layer: LayerFacts) -> list[str]:
    """The notes of a layer, its best span, and its nearest convolutions with their differences from it."""
    lines = [f"{layer.name}: {note}" for note in layer.notes]
    best = max((each for each in layer.spans if each.kernel_size > 1), key=lambda each: each.mean, default=None)
    if best is not None:
        size = f"K = {best.kernel_size}, dilation {best.dilation}"
        figures = f"R2 {best.center:.2f} centre, {best.mean:.2f} mean, {best.best:.2f} best"
        error = "-" if best.error is None else f"{best.error:.3f}"
        lines.append(f"{layer.name}: {size}: {figures}, error of the mean {error}")
    for fact in layer.convolutions:
        sentence = f"the nearest convolution of K = {fact.kernel_size} explains {fact.share:.1%}"
        sentence += f" (error {fact.share_error:.1%})" if fact.share_error is not None else ""
        sentence += f", and {fact.chance:.1%} of uniform attention" if fact.chance is not None else ""
        if fact.error is not None and fact.norm:
            sentence += f"; |layer - conv| is {fact.error / fact.norm:.0%} of |layer|, {fact.norm:.3g}"
        lines.append(f"{layer.name}: {sentence}")
    return lines


def definitions() -> Document:
    """Every number with its formula and its source."""
    lines = (f"{fact.title}: {fact.meaning}{f' ({fact.source})' if fact.source else ''}" for fact in facts_defined())
    return Document(("the columns of heads",), (Notes(tuple(lines)),))
