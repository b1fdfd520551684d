"""The text of a report on heads. `COLUMNS` defines every number, with its source."""

from collections.abc import Callable, Sequence

from conv2attn.report import Cell, Document, Notes, Table, counted, document, gathered
from conv2attn.report.document_parts import DocumentPart
from conv2attn.span.graded_facts.facts import (
    KIND_RULES,
    NOT_REPLACED,
    HeadFacts,
    HeadsComparison,
    HeadsReport,
    LayerFacts,
)

LONG = ("layer", "head", "kind", "peak", "mass", "argmax", "dist", "keys", "sink", "extra", "rel", "abs", "cont", "se")
HEADS_SPARE = ("extra", "abs", "keys", "sink", "argmax", "dist", "cont", "se")
COLUMNS = {
    "kind": (
        "; ".join(f"{rule.kind}: {rule.meaning} ({rule.number} >= {rule.threshold:g})" for rule in KIND_RULES)
        + "; mixed: none of these. The first rule that fits decides; kinds need at least two queries",
        "",
    ),
    "peak, mass": ("argmax over d of m(d), and m(d) there, m(d) = sum_q A[q, q + d] / queries, over all images", ""),
    "argmax": (
        "how often a query's largest weight is at the displacement where that is most often so",
        "Voita et al. 2019, Sec. 4.1, where 90 % make a positional head",
    ),
    "dist": (
        "sum_q sum_k A[q, k] |k - q| / queries over pixels, in tokens: attention to class tokens counts as 0",
        "Dosovitskiy et al. 2021, Fig. 7; Raghu et al. 2021, Sec. 3, there in pixels",
    ),
    "keys": ("exp of the mean over queries of -sum_k A log A", "entropy: Clark et al. 2019, Sec. 3.2"),
    "sink": (
        "the largest share that one key has of the queries that may read it, at least half as many as read any key",
        "Xiao et al. 2024",
    ),
    "extra": ("attention to leading tokens that are no pixels", ""),
    "rel, abs, cont": (
        "shares of sum (A - mean of the row over the keys that it may read)^2: of the mean by displacement, of the "
        "rest of the mean over images, and of what varies over images; by products of different images, without bias. "
        "One image tells rel alone, and a head that attends evenly has none",
        "U-statistics: Hoeffding 1948",
    ),
    "se": ("standard error of rel over the images", "jackknife: Efron and Stein 1981"),
    "R2 3x3": (
        "the mean over 9 shifts E of 1 - |E - span of the heads|^2 / |E|^2, by products of different images",
        "Cordonnier et al. 2020, Lemma 3, graded",
    ),
    "conv K": (
        "the share of the map x -> sum_h A_h x (W_out W_val)_h that the nearest zero-padded KxK convolution explains, "
        "in squares, by products of different images",
        "",
    ),
    "replay": (
        "max |y - (sum_h A_h x M_h^T + b)| over the spread of y over tokens: M_h and b as read, y the output of the "
        "layer on random tokens under random attention, another in each head",
        "",
    ),
    "|layer - conv|": (
        "max_q sum_k |L_qk - C_qk| with Frobenius norms of a key's matrix, as a share of the same of the layer: so far "
        "apart are outputs at most where no token is longer than 1",
        "",
    ),
}
"""The definition of each column, and its source."""
HEADS_LEGEND = (
    "rel, abs, cont: shares of displacement, other position, content; se: error of rel",
    "R2 3x3: reach of 9 shifts; conv 3: a 3x3 convolution; -: not known",
)
HEADS_LEGEND_OF_OTHER_AXES = (
    HEADS_LEGEND[0],
    "R2 3x3: reach of the shifts by at most 1 along each axis; conv 3: of a convolution of 3 taps along each; "
    "-: not known",
)

Figure = Callable[[LayerFacts], float | None]
FIGURES: dict[str, tuple[Figure, str]] = {
    "rel": (lambda layer: layer.mean("relative"), ".0%"),
    "se": (lambda layer: layer.errors.relative, ".1%"),
    "abs": (lambda layer: layer.mean("absolute"), ".0%"),
    "cont": (lambda layer: layer.mean("content"), ".0%"),
    "dist": (lambda layer: layer.mean("distance"), ".1f"),
    "keys": (lambda layer: layer.mean("keys_in_use"), ".0f"),
    "sink": (lambda layer: layer.mean("sink"), ".0%"),
    "R2 3x3": (lambda layer: getattr(layer.span(3), "mean", None), ".0%"),
    "conv 3": (lambda layer: getattr(layer.convolution(3), "share", None), ".0%"),
    "replay": (lambda layer: layer.replay, ".0e"),
}
"""Numbers of a layer, and how they are written."""
SHORT = ("layer", "heads", *FIGURES, "kinds")


def shown(value: float | None, form: str) -> str:
    """A number as it is written; no minus in front of what rounds to 0."""
    if value is None:
        return "-"
    text = format(value, form)
    return text.removeprefix("-") if not any(digit in "123456789" for digit in text) else text


def kinds_of(layer: LayerFacts) -> str:
    """How many heads are of each kind, the most frequent first."""
    kinds = [head.kind for head in layer.heads]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds), key=lambda k: (-kinds.count(k), k)))


def short(layer: LayerFacts) -> list[Cell]:
    """One line for a layer."""
    if layer.unread:
        return [layer.name, "not read", *[""] * (len(FIGURES) - 1), shown(layer.replay, ".0e"), ""]
    figures = (shown(read(layer), form) for read, form in FIGURES.values())
    return [layer.name, len(layer.heads), *figures, kinds_of(layer)]


def long(layer: LayerFacts) -> list[list[Cell]]:
    """One line for each head."""
    lines: list[list[Cell]] = []
    for head in layer.heads:
        used = (f"{head.peak_mass:.0%}", f"{head.argmax:.0%}", f"{head.distance:.1f}", f"{head.keys_in_use:.0f}")
        shares = (shown(each, ".0%") for each in (head.sink, head.extra, head.relative, head.absolute, head.content))
        peak = ",".join(map(str, head.peak)) if head.peak_mass > 0 else "-"
        lines.append([layer.name, head.head, head.kind, peak, *used, *shares, shown(head.errors.relative, ".1%")])
    return lines


@document.register
def _(report: HeadsReport, verbose: bool = False) -> Document:
    """How many layers were read, a line for each, and for each head where `verbose`."""
    read = [layer for layer in report.layers if not layer.unread]
    count = sum(len(layer.heads) for layer in read)
    layers = counted(len(report.layers), "layer")
    said = f"measured {counted(count, 'head')} in {len(read)} of {layers}"
    images = sorted({layer.images for layer in read})
    said += f", on {' or '.join(map(str, images))} images" if images and images[-1] > 1 else ""
    said += f"; network {report.read_as}" if report.read_as else ""
    unread = gathered((layer.name, f"was not read: {layer.unread}") for layer in report.layers if layer.unread)
    spare = ("kinds", "replay", "abs", "keys", "sink", "dist", "cont", "se")
    parts: list[DocumentPart] = [
        Table(SHORT, tuple(tuple(short(layer)) for layer in report.layers), spare),
        Notes(HEADS_LEGEND if all(len(layer.grid) == 2 for layer in read) else HEADS_LEGEND_OF_OTHER_AXES),
    ]
    effects = [replaced_line(layer, head) for layer in read for head in layer.heads if head.replaced is not None]
    if effects:
        parts += [Table(REPLACED, tuple(effects)), Notes((REPLACED_LEGEND,))]
    if not verbose:
        kept = ((each.name, note) for each in read for note in each.notes if note.startswith(NOT_REPLACED))
        parts.append(Notes(tuple(gathered(kept))))
    if verbose:
        parts.append(Table(LONG, tuple(tuple(line) for layer in report.layers for line in long(layer)), HEADS_SPARE))
        parts.append(Notes(tuple(line for layer in report.layers for line in layer_remarks(layer))))
    return Document((said,), (*parts, Notes(tuple(unread))))


REPLACED = ("layer", "head", "replaced by", "change", "se", "uniform", "se of uniform")
REPLACED_LEGEND = (
    "change: mean of |y' - y| / |y| over the half of the images that did not measure the replacement, y the output of "
    "the network; uniform: the same with uniform attention in place of the head"
)


def replaced_line(layer: LayerFacts, head: HeadFacts) -> tuple[Cell, ...]:
    """What the replacement of a head changes, beside the control."""
    effect = head.replaced
    assert effect is not None
    figures = (effect.change, effect.change_error, effect.uniform, effect.uniform_error)
    return (layer.name, head.head, effect.by, *(f"{each:.2e}" for each in figures))


def layer_remarks(layer: LayerFacts) -> list[str]:
    """The spans of a layer, its nearest convolutions with what they leave, and its notes."""
    lines = [f"{layer.name}: {note}" for note in layer.notes]
    best = max((each for each in layer.spans if each.kernel_size > 1), key=lambda each: each.mean, default=None)
    if best is not None:
        size = f"K = {best.kernel_size}, dilation {best.dilation}"
        figures = f"R2 {best.center:.2f} centre, {best.mean:.2f} mean, {best.best:.2f} best"
        lines.append(f"{layer.name}: {size}: {figures}, error of the mean {shown(best.error, '.3f')}")
    for fact in layer.convolutions:
        sentence = f"the nearest convolution of K = {fact.kernel_size} explains {fact.share:.1%}"
        sentence += f" (error {fact.share_error:.1%})" if fact.share_error is not None else ""
        if fact.error is not None and fact.norm:
            sentence += f"; |layer - conv| is {fact.error / fact.norm:.0%} of |layer|, {fact.norm:.3g}"
        lines.append(f"{layer.name}: {sentence}")
    return lines


COMPARED = ("rel", "cont", "dist", "R2 3x3", "conv 3")


def numbers_of(reports: Sequence[HeadsReport]) -> list[tuple[str, str, int, float | None]]:
    """For each layer of any report, and each number that is compared: it in each report, None where it has none."""
    numbers = []
    for name in dict.fromkeys(layer.name for report in reports for layer in report.layers):
        layers = [next((x for x in report.layers if x.name == name and x.heads), None) for report in reports]
        for column in COMPARED:
            figure = FIGURES[column][0]
            numbers += [(name, column, i, None if x is None else figure(x)) for i, x in enumerate(layers)]
    return numbers


@document.register
def _(report: HeadsComparison, verbose: bool = False) -> Document:
    """A line for each layer, each number in the order of the checkpoints."""
    lines: dict[str, dict[str, list[str]]] = {}
    for each in report.numbers:
        line = lines.setdefault(each.layer, {})
        line.setdefault(each.number, []).append(shown(each.value, FIGURES[each.number][1]))
    rows = tuple((name, *(" > ".join(line[column]) for column in COMPARED)) for name, line in lines.items())
    many = f"{len({each.checkpoint for each in report.numbers})} checkpoints"
    answer = f"measured {counted(len(lines), 'layer')} of {many}, side by side"
    legend = "one number for each checkpoint, in the order given; the columns are those of `conv2attn heads`"
    return Document((answer,), (Table(("layer", *COMPARED), rows), Notes((legend,))))


def definitions() -> Document:
    """Every column with its formula and its source."""
    lines = (f"{name}: {formula}{f' ({source})' if source else ''}" for name, (formula, source) in COLUMNS.items())
    return Document(("the columns of heads",), (Notes(tuple(lines)),))
