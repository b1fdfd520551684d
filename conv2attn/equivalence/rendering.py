"""A certificate as text, Markdown and JSON; pure functions."""

import json
import math
from collections import Counter
from dataclasses import fields
from enum import Enum
from html import escape
from typing import TYPE_CHECKING, Any

from conv2attn.equivalence.computed.outputs import Outputs
from conv2attn.equivalence.evidence.inputs import Witness
from conv2attn.equivalence.readings.finding import CLAIMS, Finding
from conv2attn.tables import markdown_table, show, text_table
from conv2attn.verdicts import Verdict, worst_verdict

if TYPE_CHECKING:
    from conv2attn.equivalence.certificate import Certificate, Row

SCHEMA = "conv2attn.certificate/2"
HEADER = ("layer", "convolution", "grid", "heads", "alpha", "max |error|", "bound", "strength", "verdict")


def to_text(certificate: "Certificate", verbose: bool = False) -> str:
    """The report for a terminal: the verdict, then the rows, then what was found, measured and assumed."""
    table = text_table(HEADER, [row.cells() for row in certificate.rows])
    lines = [verdict_line(certificate), "", table, "", *findings(certificate), *totals(certificate, verbose)]
    return "\n".join(lines) + "\n"


def to_markdown(certificate: "Certificate", verbose: bool = False) -> str:
    """The report for a document."""
    notes = [f"- {line}" for line in (*findings(certificate), *totals(certificate, verbose))]
    table = markdown_table(HEADER, [row.cells() for row in certificate.rows])
    return "\n".join([verdict_line(certificate), "", table, "", *notes]) + "\n"


def to_html(certificate: "Certificate") -> str:
    """The report as a table for a notebook."""
    rows = [[show(cell) for cell in row.cells()] for row in certificate.rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADER)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*findings(certificate), *totals(certificate, False)))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{escape(verdict_line(certificate))}</b></p>{table}<ul>{notes}</ul>"


def verdict_line(certificate: "Certificate") -> str:
    """The count of all four verdicts, the verdict and its strength, and what was assumed about the files."""
    counts = Counter(row.verdict for row in certificate.counted)
    tally = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    skipped = len(certificate.rows) - len(certificate.counted)
    known = f" ({certificate.strength.value})" if certificate.verdict is Verdict.HOLDS else ""
    alone = certificate.verdict is worst_verdict(row.verdict for row in certificate.counted)
    whose = "" if alone or not certificate.counted else "; the whole network"
    read = dict(certificate.circumstances).get("read as")
    of = f"; networks {read}" if read else ""
    return f"{tally}{f', {skipped} skipped' if skipped else ''}{whose}: {certificate.verdict.value}{known}{of}"


def findings(certificate: "Certificate") -> list[str]:
    """A sentence for each part that does not hold, of the rows and between them."""
    told = [(row.name, finding) for row in certificate.rows for finding in row.findings if finding.sentence]
    lines = [f"{finding.code} {name}: {finding.sentence}".strip() for name, finding in told]
    lines += [f"{each.code} {each.sentence}" for each in certificate.between if each.sentence]
    lines += [f"{witness.layer}: {witness.in_words()}" for witness in certificate.witnesses]
    lines += certificate.unshown
    known = dict(certificate.circumstances)
    again = known.get("repeat", known.get("command")) if certificate.verdict is Verdict.REFUTED else None
    return [*lines, *([f"to repeat it: {again}"] if again else [])]


def totals(certificate: "Certificate", verbose: bool = False) -> list[str]:
    """What is claimed of the context, what was measured end to end, and what was assumed: in full where `verbose`."""
    structure = [each for each in certificate.between if each.part == "structure"]
    same = bool(structure) and all(each.verdict is Verdict.HOLDS for each in structure)
    between = "the graphs are equal, node by node" if same else "the graphs are not known to be equal"
    lines = [f"between the convolutions {between}"] if certificate.counted else ["nothing was checked"]
    if certificate.outputs:
        lines += outputs_in_words(certificate.outputs, verbose)
    lines.append(f"claim: {certificate.claim}")
    if verbose:
        return [*lines, *(f"assumed: {line}" for line in certificate.assumptions)]
    brief = [line.partition(" (")[0].partition(";")[0].partition(",")[0] for line in certificate.assumptions]
    return [*lines, f"assumed (in full with -v): {'; '.join(brief)}"] if brief else lines


def outputs_in_words(outputs: Outputs, verbose: bool = False) -> list[str]:
    """The end-to-end measurement in sentences."""
    difference, largest = show(outputs.max_difference), show(outputs.largest_output)
    lines = [f"outputs on {outputs.images}: largest difference {difference}, largest output {largest}"]
    if outputs.bound is not None and (verbose or not outputs.vacuous):
        vacuous = " (vacuous: more than the outputs themselves)" if outputs.vacuous else ""
        lines.append(f"bound propagated to the outputs: {show(outputs.bound)}{vacuous}")
    if outputs.same_top1 is not None:
        stable = f"; its margin exceeds the difference for {outputs.stable}"
        if outputs.stable_by_bound is not None and not outputs.vacuous:
            stable += f", the bound for {outputs.stable_by_bound}"
        lines.append(f"same top-1 class: {outputs.same_top1} of {outputs.count}{stable}")
    if outputs.correct is not None:
        before, after = outputs.correct
        lines.append(f"accuracy {before}/{outputs.count} before, {after}/{outputs.count} after")
    return lines


def to_json(certificate: "Certificate") -> str:
    """The report for a program: sorted keys, no NaN; its schema is docs/certificate.schema.json."""
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "claim": certificate.claim,
        "verdict": certificate.verdict.value,
        "strength": certificate.strength.value,
        "exit_code": certificate.exit_code,
        "layers": [plain_row(row) for row in certificate.rows],
        "between": [plain_finding(finding) for finding in certificate.between],
        "outputs": plain(certificate.outputs) if certificate.outputs else None,
        "assumptions": list(certificate.assumptions),
        "circumstances": dict(certificate.circumstances),
        "witnesses": [plain_witness(witness) for witness in certificate.witnesses],
        "unshown": list(certificate.unshown),
        "context": plain(certificate.context),
    }
    return json.dumps(body, indent=2, sort_keys=True, allow_nan=False) + "\n"


def plain_row(row: "Row") -> dict[str, Any]:
    """A row as JSON takes it, with its verdict and the statements of proofs/ that license its numbers."""
    items = plain(row)
    items["findings"] = [plain_finding(finding) for finding in row.findings]
    items["verdict"] = row.verdict.value
    items["forms"] = None if row.forms is None else [plain(form) for form in row.forms]
    items["licensed_by"] = {
        "bound": list(CLAIMS["bound"]) if row.bound is not None else [],
        "leak": list(CLAIMS["leak"]) if row.leak is not None else [],
    }
    return items


def plain_witness(witness: Witness) -> dict[str, Any]:
    """A witness as JSON takes it; its input is saved apart."""
    told = {key: getattr(witness, key) for key in ("layer", "part", "output", "told", "count")}
    return {**told, "image": witness.index, "place": witness.axes, **numbers(witness)}


def numbers(witness: Witness) -> dict[str, Any]:
    """The numbers of a witness, those that JSON cannot say as strings."""
    shown = {key: getattr(witness, key) for key in ("original", "converted", "allowed", "exact")}
    return {key: value if value is None or math.isfinite(value) else str(value) for key, value in shown.items()}


def plain_finding(finding: Finding) -> dict[str, Any]:
    """A finding as JSON takes it, with the statements of proofs/ that license it."""
    return {**plain(finding), "licensed_by": list(CLAIMS.get(finding.part, ()))}


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON takes it: enumerations by value, numbers that JSON cannot say as strings."""
    items = {field.name: getattr(value, field.name) for field in fields(value)}
    for key, item in items.items():
        if isinstance(item, Enum):
            items[key] = item.value
        elif isinstance(item, float) and not abs(item) < float("inf"):
            items[key] = str(item)
    return items
