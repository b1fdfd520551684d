"""The report of a certificate: its sentences, and their order."""

import re
from collections import Counter

from conv2attn.equality.certificate.results import MOVED, Certificate, Gap, Outputs, Row, with_names
from conv2attn.equality.outputs import in_axes
from conv2attn.report import Cell, Document, Notes, Table, Verbatim, document, gathered, show
from conv2attn.verdicts import Strength, Verdict

LAYER_COLUMNS = ("layer", "convolution", "grid", "heads", "alpha", "max |error|", "bound", "strength", "verdict")
OUTPUT_COLUMNS = ("output", "at", "difference", "first", "second")
SPARE_COLUMNS = ("grid", "alpha", "convolution", "heads", "strength", "bound")
MOST_ROWS = 5  # failing rows on the first screen


@document.register
def _(certificate: Certificate, verbose: bool = False) -> Document:
    """The verdict and the claim, the rows that do not hold, findings, measurements and assumptions.

    With `verbose`, all rows. Networks have the names that the caller gave them.
    """
    first, second = names_of(certificate)
    cells, most = list(map(row_cells, shown_rows(certificate, verbose))), None if verbose else MOST_ROWS
    table = Table(LAYER_COLUMNS, tuple(cells[:most]), SPARE_COLUMNS)
    if certificate.outputs and not certificate.rows:
        cells = [gap_cells(each) for each in certificate.outputs.gaps if verbose or each.difference]
        table = Table(OUTPUT_COLUMNS, tuple(cells[:most]), OUTPUT_COLUMNS[3:])
    more = [f"{len(cells) - MOST_ROWS} more rows with -v"] if len(cells) > MOST_ROWS and not verbose else []
    lines = (*more, *findings(certificate, verbose), *closing_notes(certificate, verbose))
    answer, notes = (
        tuple(with_names(line, first, second) for line in each) for each in (verdict_lines(certificate), lines)
    )
    return Document(answer, (table, Notes(notes), Verbatim(repeating(certificate))), certificate.verdict)


def shown_rows(certificate: Certificate, verbose: bool) -> tuple[Row, ...]:
    """All rows if `verbose`, otherwise those that do not hold."""
    if verbose:
        return certificate.rows
    return tuple(row for row in certificate.counted if row.verdict is not Verdict.HOLDS)


def names_of(certificate: Certificate) -> tuple[str, str]:
    """The caller's names of both networks: files, the moved input and output, or first and second."""
    circumstances = certificate.circumstances
    if MOVED in circumstances:
        return "the network on the moved input", "the network with its output moved"
    first = circumstances.get("original", "the first network")
    converted = "the converted network" if "original" in circumstances else "the second network"
    return first, circumstances.get("converted", converted)


def row_cells(row: Row) -> tuple[Cell, ...]:
    """The row of a layer."""
    grid, verdict = "x".join(map(str, row.grid)) if row.grid else None, "skipped" if row.skipped else row.verdict
    numbers = row.heads, row.alpha, row.max_error, row.bound
    return row.name, row.convolution, grid, *numbers, row.strength, verdict


def gap_cells(gap: Gap) -> tuple[Cell, ...]:
    """The row of an output with its largest difference."""
    return gap.output, in_axes(gap.place) or "-", gap.difference, f"{gap.original:.6g}", f"{gap.converted:.6g}"


def verdict_lines(certificate: Certificate) -> tuple[str, ...]:
    """The verdict and its strength, the count of all four verdicts, the claim, and the assumptions about the files."""
    counts = Counter(row.verdict for row in certificate.counted)
    tally = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    skipped = len(certificate.rows) - len(certificate.counted)
    strength = (
        f" ({certificate.strength.value})" if by_calls(certificate) or certificate.verdict is Verdict.HOLDS else ""
    )
    read = certificate.circumstances.get("read as")
    layers = f"layers: {tally}{f', {skipped} skipped' if skipped else ''}" if certificate.rows else "no layers compared"
    wrong, more = certificate.rows_refuted, len(certificate.rows_refuted) - 1
    row = [f"row {wrong[0].name}{f' and {more} more' * (more > 0)} refuted"] if wrong else []
    verdict = "; ".join([f"{certificate.verdict.value}{strength}", *row, layers])
    modes = [each.sentence for each in certificate.between if each.part == "modes" and each.sentence]
    place = [f"C2A411 {certificate.place.in_words()}"] if certificate.place else []
    # The claim states the inputs and how files were read. It stands next to the verdict, since a verdict without its
    # quantifier is read as one about everything.
    said = [f"claim: {certificate.claim}"] if certificate.claim else [f"networks {read}"] if read else []
    return (verdict, *modes, *place, *said)


def by_calls(certificate: Certificate) -> bool:
    """Whether it is refuted by two plain calls of the networks."""
    return certificate.verdict is Verdict.REFUTED and certificate.strength is Strength.SAMPLED


def findings(certificate: Certificate, verbose: bool = False) -> list[str]:
    """One sentence per part that does not hold and per finding; equal sentences are merged."""
    remarks = [(row.name, finding) for row in certificate.rows for finding in row.findings if finding.sentence]
    lines: list[str] = []
    for code in dict.fromkeys(finding.code for _, finding in remarks):
        sentences = [(name, finding.sentence) for name, finding in remarks if finding.code == code]
        lines += [f"{code} {line}".strip() for line in gathered(sentences, most=None if verbose else 3)]
    above = ("modes", "sections") if certificate.place else ("modes",)  # the place stands beside the verdict
    between = [each for each in certificate.between if each.sentence and each.part not in above]
    if by_calls(certificate) and not verbose:  # then nothing undecided matters
        between = [each for each in between if each.verdict is Verdict.REFUTED]
    lines += [f"{each.code} {each.sentence}".strip() for each in between]
    return [*lines, *(f"(network): {each.in_words()}" for each in certificate.counterexamples)]


def repeating(certificate: Certificate) -> tuple[str, ...]:
    """The commands that show a refutation again."""
    circumstances = certificate.circumstances
    command = circumstances.get("repeat", circumstances.get("command"))
    wrong = certificate.verdict is Verdict.REFUTED or certificate.rows_refuted
    return (f"to repeat it: {command}",) if command and wrong else ()


def closing_notes(certificate: Certificate, verbose: bool = False) -> list[str]:
    """The worst row, measured outputs and assumptions; if `verbose`, in full and with the arithmetic."""
    lines = [] if is_checked(certificate) else ["nothing was checked"]
    if not verbose and (worst := worst_of(certificate)):
        lines.append(worst)
    if certificate.outputs:
        lines += outputs_in_words(certificate.outputs)
    if verbose:
        measured = certificate.circumstances.get("arithmetic")
        lines += [f"state: {certificate.state.in_words()}"] if certificate.state.gradients else []
        lines += [f"measured: {measured}"] if measured else []
        claims = dict.fromkeys(name for row in certificate.counted for name in row.licensed_by.bound)
        lines += [f"bounds rest on: {', '.join(claims)}"] if claims else []
        missing = dict.fromkeys(premise for row in certificate.counted for premise in row.licensed_by.missing)
        lines += [f"premises that do not hold: {'; '.join(missing)}"] if missing else []
        return [*lines, *(f"assumed: {line}" for line in certificate.assumptions)]
    assumed = () if by_calls(certificate) else certificate.assumptions  # two calls that differ assume nothing
    brief = [re.split(r" \(|[;,:]", line)[0] for line in assumed]
    lines += [f"assumed: {'; '.join(brief)}"] if brief else []
    more = [*(["every layer"] if certificate.rows else []), *(["the assumptions in full"] if brief else [])]
    more = more or ["the other findings and assumptions"] * bool(certificate.assumptions)
    return [*lines, f"with -v: {' and '.join(more)}"] if more else lines


def worst_of(certificate: Certificate) -> str:
    """One sentence on the holding row with the widest bound; empty if no row has a bound."""
    bounded = [row for row in certificate.counted if row.verdict is Verdict.HOLDS and row.bound is not None]
    if not bounded:
        return ""
    worst = max(bounded, key=lambda row: (float(row.bound or 0.0), float(row.max_error or 0.0)))
    within = f" for inputs within +-{show(worst.input_range)}" if worst.input_range is not None else ""
    return f"widest layer: {worst.name}, error measured {show(worst.max_error)}, at most {show(worst.bound)}{within}"


def is_checked(certificate: Certificate) -> bool:
    """Whether anything was checked: a layer, or the code between layers."""
    parts = {each.part for each in certificate.between} & {"structure", "formula", "sections", "numbers"}
    return bool(parts and (certificate.counted or not certificate.rows))


def outputs_in_words(outputs: Outputs) -> list[str]:
    """The end-to-end measurement in sentences."""
    difference, largest = show(outputs.max_difference), show(outputs.largest_output)
    lines = [f"outputs on {outputs.images}: largest difference {difference}, largest output {largest}"]
    if outputs.same_top1 is not None:
        stable = f"; its margin exceeds the difference for {outputs.stable}"
        lines.append(f"same top-1 class: {outputs.same_top1} of {outputs.count}{stable}")
    if outputs.correct is not None:
        before, after = outputs.correct
        lines.append(f"accuracy {before}/{outputs.count} before, {after}/{outputs.count} after")
    return lines
