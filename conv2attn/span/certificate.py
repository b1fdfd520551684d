"""Certificates of a span: verdicts as plain integers that the proved checker reads, bound to what they speak of.

`proofs/certificates.py` describes the format. In front of each certificate stands a comment with what was asked, as
JSON, so that `recheck` can derive limits, offsets, queries and rows anew from the model or array, and compare.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Annotated, Any, Literal, final

import msgspec

from conv2attn.errors import CheckpointError
from conv2attn.report import Document, Notes, Report, Table
from conv2attn.report.stored import Stored
from conv2attn.span.arguments import FARTHEST, MOST_OFFSETS
from conv2attn.span.conditions import groups_of
from conv2attn.span.limits import MOST_PHI, Limits, limits_for
from conv2attn.span.results import SpanReport, Target, Witness
from conv2attn.span.rows import AttentionRows
from conv2attn.span.targets import Targets, shifts
from conv2attn.span.weighing import exact_rows
from conv2attn.verdicts import Strength, Verdict, worst_verdict

VERSION = 1
Rows = tuple[int, ...]
MARK = "#! "
"""Begins the comment that says what a certificate is about."""
Offset = tuple[Annotated[int, msgspec.Meta(gt=-FARTHEST, lt=FARTHEST)], ...]


class About(Stored, frozen=True):
    """What one certificate is about: `offset` is one of the `offsets` that were asked for of a layer under a condition,
    with this `eps` and largest norm, None for the default ones; `rows` are its `image * queries + query`."""

    layer: str
    condition: Literal["per-query", "per-image", "joint", "interior"]
    offset: Offset
    offsets: Annotated[tuple[Offset, ...], msgspec.Meta(max_length=MOST_OFFSETS)]
    rows: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    eps: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None
    max_phi: Annotated[float, msgspec.Meta(gt=0, le=MOST_PHI)] | None


def certificates(
    report: SpanReport, read: Mapping[str, AttentionRows], eps: float | None, max_phi: float | None
) -> str:
    """One certificate for each offset of the condition that decides: its mixing, or the dual that refutes it.

    What has none is said in a comment: what is undecided, and what counting alone refutes. Per query, what holds has
    one for each query.
    """
    parts = []
    for row in report.rows:
        found, attention = row.deciding, read.get(row.name)
        if attention is None or not found.targets or any(target.offset is None for target in found.targets):
            parts.append(f"# {row.name}: nothing was checked\n")
            continue
        targets = shifts(attention.grid, [target.offset for target in found.targets if target.offset is not None])
        for j, (target, witness) in enumerate(zip(found.targets, report.witnesses[row.name, found.name], strict=True)):
            about = msgspec.convert(
                {
                    "layer": row.name,
                    "condition": found.name,
                    "offset": targets.offsets[j],
                    "offsets": targets.offsets,
                    "rows": (),
                    "eps": eps,
                    "max_phi": max_phi,
                },
                About,
            )
            parts += of_target(about, j, target, witness, attention, targets, row.limits)
    return "".join(parts)


def of_target(
    about: About,
    j: int,
    target: Target,
    witness: Witness | None,
    attention: AttentionRows,
    targets: Targets,
    limits: Limits,
) -> Iterator[str]:
    """The certificates of one offset."""
    title = f"# {about.layer}, {about.condition}, offset {target.label}: {target.verdict.value}"
    if witness is None:
        yield f"{title}, without a certificate of this format\n"
        return
    yield f"{title}\n"
    if witness.dual is not None:
        rows = sorted(witness.dual)
        yield line_of(about, rows)
        yield written(attention, targets, j, rows, limits, dual=witness.dual)
    for group, weights in zip(witness.groups, witness.mixings, strict=True):
        rows = [int(row) for row in group]
        yield line_of(about, rows)
        yield written(attention, targets, j, rows, limits, weights=weights)


def line_of(about: About, rows: Sequence[int]) -> str:
    """The comment in front of a certificate."""
    return f"{MARK}{msgspec.json.encode(msgspec.structs.replace(about, rows=tuple(rows))).decode()}\n"


def written(
    attention: AttentionRows,
    targets: Targets,
    j: int,
    rows: Sequence[int],
    limits: Limits,
    *,
    weights: Sequence[float | Fraction] = (),
    dual: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """One certificate: limits and numbers over common denominators, then the rows asked for and attended."""
    held = exact_rows(attention, targets, rows)
    scale = lcm(*(held[at].unit for at in rows))
    given = [Fraction(limits.eps), Fraction(limits.per_norm), Fraction(limits.max_phi)]
    below = lcm(*(number.denominator for number in given))
    lines: list[Sequence[Any]] = [
        (VERSION, int(dual is not None), attention.heads, len(rows), attention.width, scale),
        (*(int(number * below) for number in given), below),
    ]
    if dual is None:
        exact = [Fraction(weight) for weight in weights]
        unit = lcm(*(weight.denominator for weight in exact))
        lines.append((unit, *(int(weight * unit) for weight in exact)))
    for at in rows:
        asked = [0] * attention.width
        place = int(targets.places[j, at % targets.places.shape[1]])
        if place >= 0:
            asked[place] = scale
        lift = scale // held[at].unit
        lines += [asked, *([int(x) * lift for x in line] for line in held[at].heads.tolist())]
        lines += [dual[at]] if dual is not None else []
    return "".join(" ".join(map(str, line)) + "\n" for line in lines)


@final
@dataclass(frozen=True, repr=False)
class Rechecked(Report):
    """What became of each certificate: (layer, condition, offset, what was found, verdict)."""

    found: tuple[tuple[str, str, str, str, Verdict], ...]

    @property
    def verdict(self) -> Verdict:
        """Holds where every certificate is of this attention and right; undecided where there is none."""
        return worst_verdict(each[-1] for each in self.found)

    @property
    def strength(self) -> Strength:
        """Integers decide."""
        return Strength.PROVED

    @property
    def exit_code(self) -> int:
        """0, 1 or 3, as the verdict says."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """A line for each certificate."""
        right = sum(each[-1] is Verdict.HOLDS for each in self.found)
        answer = f"{self.verdict.value}: {right} of {len(self.found)} certificates are of this attention and right"
        table = Table(("layer", "condition", "offset", "found", "verdict"), self.found)
        notes = Notes(("limits, offsets, queries and rows were derived anew; only the numbers of Phi or y are read",))
        return Document((answer,), (table, notes), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("layer", "condition", "offset", "found", "verdict")
        rows = [dict(zip(names, (*each[:-1], each[-1].value), strict=True)) for each in self.found]
        return {"schema": "conv2attn.span-rechecked/1", "exit_code": self.exit_code, "certificates": rows}


def parts_of(text: str) -> list[tuple[About, list[int]]]:
    """The certificates of a file: what each is about, and its integers.

    Raises:
        CheckpointError: it is no file of certificates that say what they are about (C2A303).
    """
    found: list[tuple[About, list[int]]] = []
    try:
        for line in text.splitlines():
            if line.startswith(MARK):
                found.append((msgspec.json.decode(line.removeprefix(MARK), type=About), []))
            elif words := line.split("#")[0].split():
                found[-1][1].extend(map(int, words))
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        why = f": {error}" if isinstance(error, msgspec.MsgspecError) else ""
        raise CheckpointError("C2A303", f"no file of span certificates with what they are about{why}") from error
    if not found:
        raise CheckpointError("C2A303", "the file holds no span certificate that says what it is about")
    return found


def recheck(text: str, read: Mapping[str, AttentionRows]) -> Rechecked:
    """Each certificate of a file against the attention that it names: everything but its numbers is derived anew.

    Limits come from the attention and from the eps and norm that were asked for, offsets give the rows asked for; what
    holds must list every query of its group. Then the twin of the proved checker is asked.

    Raises:
        CheckpointError: it is no file of such certificates (C2A303).
    """
    from conv2attn import proofs

    found: list[tuple[str, str, str, str, Verdict]] = []
    held: dict[tuple[str, str], tuple[set[Rows], set[Rows]]] = {}
    for about, numbers in parts_of(text):
        said = (about.layer, about.condition, ",".join(map(str, about.offset)))
        attention = read.get(about.layer)
        if attention is None:
            found.append((*said, "no such layer here", Verdict.UNDECIDED))
            continue
        reason, plain, groups = compared(about, numbers, attention)
        if reason is None and not proofs.certificates.answers(plain)[0]:
            reason = "its numbers show nothing"
        asked = {"eps": about.eps, "max_phi": about.max_phi}
        limits = "".join(f", {name}={value:g}" for name, value in asked.items() if value is not None)
        claim = f"{'refuted' if len(numbers) > 1 and numbers[1] else 'holds'}, confirmed{limits}"
        found.append((*said, reason or claim, Verdict.HOLDS if reason is None else Verdict.REFUTED))
        if reason is None and not numbers[1]:
            held.setdefault(said[::2], (groups, set()))[1].add(tuple(sorted(about.rows)))
    for (name, label), (groups, confirmed) in held.items():
        if not groups <= confirmed:
            found.append((name, "", label, f"{len(groups - confirmed)} groups of queries are missing", Verdict.REFUTED))
    return Rechecked(tuple(found))


def compared(about: About, numbers: Sequence[int], attention: AttentionRows) -> tuple[str | None, str, set[Rows]]:
    """Why a certificate is not of this attention, None where it is; the certificate with everything derived; and the
    groups of rows of its condition."""
    rows, total = about.rows, attention.images * attention.grid.shape[0]
    if {len(each) for each in (about.offset, *about.offsets)} != {len(attention.grid.keys)}:
        return f"its offset has {len(about.offset)} axes", "", set()
    if not rows or len(set(rows)) < len(rows) or max(rows) >= total:
        return "its rows are not rows of this attention", "", set()
    if about.offset not in about.offsets:
        return "its offset is not one of those asked for", "", set()
    targets, limits = shifts(attention.grid, [about.offset]), limits_for(attention, about.eps, about.max_phi)
    whole = groups_of(about.condition, attention, shifts(attention.grid, about.offsets))
    groups = {tuple(int(row) for row in group) for group in whole}
    kind = numbers[1] if len(numbers) > 1 else 0
    heads, width = attention.heads, attention.width
    start = 10 + (0 if kind else 1 + heads)
    step = width * (1 + heads + kind)
    if kind not in (0, 1) or len(numbers) != start + step * len(rows):
        return "it is not as long as its rows ask for", "", set()
    if kind:
        dual = {row: numbers[start + step * (i + 1) - width : start + step * (i + 1)] for i, row in enumerate(rows)}
        plain = written(attention, targets, 0, rows, limits, dual=dual)
    else:
        unit, *above = numbers[10 : 11 + heads]
        if unit <= 0:
            return "its weights have no denominator", "", set()
        plain = written(attention, targets, 0, rows, limits, weights=[Fraction(x, unit) for x in above])
    mine = [int(word) for word in plain.split()]
    if not kind:
        mine[10 : 11 + heads] = numbers[10 : 11 + heads]
    if mine != list(numbers):
        return "limits, rows asked for or attention are others", plain, groups
    mixed = set(rows) not in map(set, groups) if not kind else not any(set(rows) <= set(group) for group in groups)
    return ("its queries are not those of its condition" if mixed else None), plain, groups
