"""Certificates of `check_span`: its verdicts as plain integers for the proved checker, with the claims they prove.

`proofs/certificates.py` describes the format. A comment before each certificate holds its claim as JSON. From it,
`recheck` derives limits, offsets, queries and rows anew from the model or array, and compares them.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Annotated, Any, ClassVar, Literal, final

import msgspec
from flint import fmpz
from msgspec.structs import replace

from conv2attn.errors import CheckpointError
from conv2attn.report import Document, Notes, Table, counted, document
from conv2attn.report.result import Part, Result
from conv2attn.span.attention_rows import MOST_PHI, AttentionRows, Limits, limits_for
from conv2attn.span.conditions import groups_of
from conv2attn.span.equations import Targets, shift_targets
from conv2attn.span.grids import FARTHEST, MOST_OFFSETS
from conv2attn.span.span_report import ConditionName, SpanReport
from conv2attn.span.weighing import exact_rows
from conv2attn.verdicts import Verdict, worst_verdict

VERSION = 1
RowNumbers = tuple[int, ...]
MARK = "#! "
"""The beginning of the comment that holds the claim of a certificate."""
StoredOffset = tuple[Annotated[int, msgspec.Meta(gt=-FARTHEST, lt=FARTHEST)], ...]


class About(Part, frozen=True):
    """The claim of one certificate: a layer, a condition, and `offset`, one of the `offsets` of the kernel.

    `eps` and `max_phi` are None for the default limits. `keys` holds the sides of the grid of keys. `rows` holds
    numbers of the form `image * queries + query`.
    """

    layer: str
    condition: ConditionName
    keys: tuple[int, ...]
    offset: StoredOffset
    offsets: Annotated[tuple[StoredOffset, ...], msgspec.Meta(max_length=MOST_OFFSETS)]
    rows: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    eps: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None
    max_phi: Annotated[float, msgspec.Meta(ge=1 / MOST_PHI, le=MOST_PHI)] | None

    @property
    def subject(self) -> tuple[str, str, str]:
        """The layer, the condition and the offset."""
        return self.layer, self.condition, ",".join(map(str, self.offset))

    @property
    def limits(self) -> str:
        """The limits that the caller passed, in words; empty for the default limits."""
        options = {"eps": self.eps, "max_phi": self.max_phi}
        return "".join(f", {name}={value:g}" for name, value in options.items() if value is not None)


def certificates(
    report: SpanReport, read: Mapping[str, AttentionRows], eps: float | None, max_phi: float | None
) -> str:
    """One certificate for each offset of the deciding condition: the mixing of heads that gives it, or a refuting dual.

    An offset that is undecided, or refuted by counting alone, has a comment instead of a certificate. If the condition
    has several groups of queries, an offset that holds has one certificate for each group.
    """
    parts = []
    for row in report.rows:
        condition, attention = row.deciding, read.get(row.name)
        offsets = tuple(target.offset for target in condition.targets if target.offset is not None)
        # The format describes shifts alone, and a combination of shifts has no offset.
        if attention is None or not offsets or len(offsets) < len(condition.targets):
            parts.append(f"# {row.name}: nothing was checked\n")
            continue
        targets = shift_targets(attention.grid, offsets)
        for j, target in enumerate(condition.targets):
            title = f"# {row.name}, {condition.name}, offset {target.label}: {target.verdict.value}"
            evidence = target.evidence
            parts.append(f"{title}{'' if evidence else ', without a certificate of this format'}\n")
            if evidence is None:
                continue
            # A refuted target needs one dual; a target that holds needs a mixing for each group of queries.
            duals = [] if evidence.dual is None else [(sorted(evidence.dual), {"dual": evidence.dual})]
            mixings = zip(evidence.groups, evidence.mixings, strict=True)
            shown: list[tuple[list[int], Any]] = [
                *duals,
                *((group.tolist(), {"weights": phi}) for group, phi in mixings),
            ]
            for rows, numbers in shown:
                keys = attention.grid.keys
                about = About(row.name, condition.name, keys, offsets[j], offsets, tuple(rows), eps, max_phi)
                parts.append(f"{MARK}{msgspec.json.encode(about).decode()}\n")
                parts.append(certificate_text(attention, targets, j, rows, row.limits, **numbers))
    return "".join(parts)


def certificate_text(
    attention: AttentionRows,
    targets: Targets,
    j: int,
    rows: Sequence[int],
    limits: Limits,
    *,
    weights: Sequence[float | Fraction] = (),
    dual: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """One certificate: limits and numbers over common denominators, then the rows of the target and of the heads.

    Integers are written and read by FLINT, since Python's own conversion refuses more than 4,300 digits.
    """
    # The proved checker reads integers only. A common denominator of all rows, `scale`, makes them integers without
    # rounding. A target is 1 at its key, hence `scale` there.
    exact = exact_rows(attention, targets, rows)
    scale = lcm(*(exact[row].unit for row in rows))
    bounds = [Fraction(limits.eps), Fraction(limits.per_norm), Fraction(limits.max_phi)]
    denominator = lcm(*(number.denominator for number in bounds))
    lines: list[Sequence[Any]] = [
        (VERSION, int(dual is not None), attention.heads, len(rows), attention.width, scale),
        (*(int(number * denominator) for number in bounds), denominator),
    ]
    if dual is None:
        numbers = [Fraction(weight) for weight in weights]
        unit = lcm(*(weight.denominator for weight in numbers))
        lines.append((unit, *(int(weight * unit) for weight in numbers)))
    for row in rows:
        target_row = [0] * attention.width
        place = int(targets.places[j, row % targets.places.shape[1]])
        if place >= 0:
            target_row[place] = scale
        lift = scale // exact[row].unit
        lines += [target_row, *(exact[row].numbers * lift).tolist()]
        lines += [dual[row]] if dual is not None else []
    return "".join(" ".join(str(fmpz(number)) for number in line) + "\n" for line in lines)


@final
class Confirmation(Part, frozen=True):
    """What was found about one certificate, or about an offset for which certificates are missing."""

    layer: str
    condition: str
    offset: str
    found: str
    verdict: Verdict


@final
class Rechecked(Result, frozen=True):
    """The results for all certificates of a file. It holds if all of them are of this attention and right."""

    derived: ClassVar[tuple[str, ...]] = ("exit_code", "verdict")
    certificates: tuple[Confirmation, ...]
    schema: Literal["conv2attn.span-rechecked/2"] = "conv2attn.span-rechecked/2"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all certificates; undecided if there is none."""
        return worst_verdict(confirmation.verdict for confirmation in self.certificates)

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0 holds; 1 refuted; 3 undecided or unsupported."""
        code: Any = self.verdict.exit_code
        return code


@document.register
def _(rechecked: Rechecked, verbose: bool = False) -> Document:
    """One line per certificate."""
    right = sum(each.verdict is Verdict.HOLDS for each in rechecked.certificates)
    count = f"{right} of {len(rechecked.certificates)} certificates are of this attention and right"
    answer = f"{rechecked.verdict.value}: {count}"
    lines = tuple(msgspec.structs.astuple(each) for each in rechecked.certificates)
    notes = Notes(("limits, offsets, queries and rows were derived anew; only the numbers of Phi or y are read",))
    return Document((answer,), (Table(Confirmation.__struct_fields__, lines), notes), rechecked.verdict)


def parts_of(text: str) -> list[tuple[About, list[int]]]:
    """The claim and the integers of every certificate in the text of a file.

    Raises:
        CheckpointError: the text is not that of certificates with their claims (C2A303).
    """
    parts: list[tuple[About, list[int]]] = []
    try:
        for line in text.splitlines():
            if line.startswith(MARK):
                parts.append((msgspec.json.decode(line.removeprefix(MARK), type=About), []))
            elif words := line.split("#")[0].split():
                parts[-1][1].extend(int(fmpz(word)) for word in words)
        if not parts:
            raise ValueError
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        why = f": {error}" if isinstance(error, msgspec.MsgspecError) else ""
        raise CheckpointError(
            "C2A303",
            f"not a file of span certificates with their claims{why}",
            "Write it again: conv2attn check-span FILE --certificate OUTPUT.",
        ) from error
    return parts


def recheck_span(text: str, read: Mapping[str, AttentionRows]) -> Rechecked:
    """Checks the certificates in the text of a file against the attention that they name.

    Only the coefficients or the dual are taken from a certificate. Limits are derived anew from the attention and from
    the claim's `eps` and `max_phi`, and the rows of targets from its offsets. A certificate that holds must list every
    query of its group. The numbers are then judged by `proofs/certificates.py`, which agrees with the proved checker.

    Raises:
        CheckpointError: the text is not that of such certificates (C2A303).
    """
    from conv2attn import proofs

    confirmations: list[Confirmation] = []
    confirmed_groups: dict[About, tuple[set[RowNumbers], set[RowNumbers]]] = {}
    for about, numbers in parts_of(text):
        attention = read.get(about.layer)
        if attention is None:
            confirmations.append(Confirmation(*about.subject, "no such layer here", Verdict.UNDECIDED))
            continue
        if about.keys != attention.grid.keys:
            own, stored = ("x".join(map(str, sides)) for sides in (attention.grid.keys, about.keys))
            mismatch = f"of keys on a grid {stored}, and here it is {own}: pass the --grid and --inputs of check-span"
            confirmations.append(Confirmation(*about.subject, mismatch, Verdict.UNDECIDED))
            continue
        reason, plain, groups = compared(about, numbers, attention)
        if reason is None and not proofs.certificates.answers(plain)[0]:
            reason = "its numbers prove nothing"
        if reason is not None:
            confirmations.append(Confirmation(*about.subject, reason, Verdict.REFUTED))
            continue
        queries = f"{len(about.rows)} of {attention.images * attention.grid.shape[0]} queries"
        claim = "refuted" if numbers[1] else f"holds at {queries}"
        confirmations.append(Confirmation(*about.subject, f"{claim}, confirmed{about.limits}", Verdict.HOLDS))
        if not numbers[1]:
            confirmed_groups.setdefault(replace(about, rows=()), (groups, set()))[1].add(tuple(sorted(about.rows)))
    # One certificate proves one group of queries. The claim about all queries needs the certificates of all groups.
    for about, (groups, confirmed) in confirmed_groups.items():
        if not groups <= confirmed:
            missing = f"missing: {counted(len(groups - confirmed), 'group')} of queries{about.limits}"
            confirmations.append(Confirmation(*about.subject, missing, Verdict.REFUTED))
    return Rechecked(tuple(confirmations))


def compared(about: About, numbers: Sequence[int], attention: AttentionRows) -> tuple[str | None, str, set[RowNumbers]]:
    """Writes a certificate again from the attention, and compares it with the `numbers` of the file.

    Returns:
        The reason why the certificate is not of this attention, or None; the certificate as written again; and the
        groups of rows of its condition.
    """
    # Only the numbers of Phi or of the dual y are taken from the file. If any other number differs, a limit, a row of a
    # target or an entry of attention in the file is not what the claim says.
    rows, total = about.rows, attention.images * attention.grid.shape[0]
    if {len(each) for each in (about.offset, *about.offsets)} != {len(attention.grid.keys)}:
        return f"its offset has {len(about.offset)} axes", "", set()
    if not rows or len(set(rows)) < len(rows) or max(rows) >= total:
        return "its rows are not rows of this attention", "", set()
    if about.offset not in about.offsets:
        return "its offset is not an offset of the kernel", "", set()
    targets, limits = shift_targets(attention.grid, [about.offset]), limits_for(attention, about.eps, about.max_phi)
    condition_groups = groups_of(about.condition, attention, shift_targets(attention.grid, about.offsets))
    groups = {tuple(int(row) for row in group) for group in condition_groups}
    kind = numbers[1] if len(numbers) > 1 else 0
    heads, width = attention.heads, attention.width
    start = 10 + (0 if kind else 1 + heads)
    step = width * (1 + heads + kind)
    if kind not in (0, 1) or len(numbers) != start + step * len(rows):
        return "its length does not fit its rows", "", set()
    if kind:
        dual = {row: numbers[start + step * (i + 1) - width : start + step * (i + 1)] for i, row in enumerate(rows)}
        plain = certificate_text(attention, targets, 0, rows, limits, dual=dual)
    else:
        unit, *numerators = numbers[10 : 11 + heads]
        if unit <= 0:
            return "its weights have no denominator", "", set()
        plain = certificate_text(attention, targets, 0, rows, limits, weights=[Fraction(x, unit) for x in numerators])
    derived = [int(fmpz(word)) for word in plain.split()]
    if not kind:
        # Weights are compared as they stand in the file, since reduced fractions would be other integers.
        derived[10 : 11 + heads] = numbers[10 : 11 + heads]
    if derived != list(numbers):
        return "limits, targets or attention differ", plain, groups
    # Phi must serve a whole group. A dual on a part of a group refutes the group, whose residual is at least as large.
    misplaced = set(rows) not in map(set, groups) if not kind else not any(set(rows) <= set(group) for group in groups)
    return ("its queries are not those of its condition" if misplaced else None), plain, groups
