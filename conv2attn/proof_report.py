"""What `prove` found, as text, JSON, Markdown and LaTeX."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, final

from conv2attn.tables import markdown_table, text_table
from conv2attn.verdicts import Verdict, worst_verdict

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {sign: f"\\{sign}" for sign in "_#&%$"}


@final
@dataclass(frozen=True)
class StepResult:
    """One statement, the formula put to the method (LaTeX, or empty), the method, and what it decided."""

    says: str
    formula: str
    method: str
    verdict: Verdict


@final
@dataclass(frozen=True)
class ClaimResult:
    """A claim with its steps and mutants decided; the fields are those of the claim."""

    name: str
    title: str
    words: str
    formula: str
    conditions: tuple[str, ...]
    source: str
    not_shown: str
    licenses: tuple[str, ...]
    errata: tuple[str, ...]
    formal: bool
    steps: tuple[StepResult, ...] = field(metadata={"decided": True})
    mutants: tuple[StepResult, ...] = field(metadata={"decided": True})

    @classmethod
    def copied_fields(cls) -> list[str]:
        return [each.name for each in fields(cls) if not each.metadata.get("decided")]

    @property
    def broken(self) -> bool:
        """Whether a mutant was not refuted, or there is none: then the steps say nothing about the claim."""
        return not self.mutants or any(mutant.verdict is not Verdict.REFUTED for mutant in self.mutants)

    @property
    def verdict(self) -> Verdict:
        """The worst of the steps; refuted when the proof is broken."""
        return Verdict.REFUTED if self.broken else worst_verdict(step.verdict for step in self.steps)

    @property
    def status(self) -> str:
        return "BROKEN" if self.broken else {Verdict.HOLDS: "proved"}.get(self.verdict, self.verdict.value.upper())

    @property
    def methods(self) -> str:
        return ", ".join(dict.fromkeys(step.method for step in self.steps))


@final
@dataclass(frozen=True)
class FormalRow:
    """What Coq says of one claim."""

    claim: str
    theorems: tuple[str, ...]
    axioms: tuple[str, ...]
    problems: tuple[str, ...]
    holds: bool


@final
@dataclass(frozen=True)
class FormalResult:
    """The formal layer: checked, failed, not checked here, or not asked for."""

    status: str
    verdict: Verdict | None = None
    detail: str = ""
    rows: tuple[FormalRow, ...] = ()

    def outline(self) -> list[str]:
        """A line a claim: its theorems and the number of axioms that they rest on, or what is wrong."""
        return [
            f"{row.claim}: {', '.join(row.theorems)} "
            + (f"({len(row.axioms)} axioms)" if row.holds else f"FAILS: {'; '.join(row.problems)}")
            for row in self.rows
        ]


@final
@dataclass(frozen=True)
class ProofReport:
    """The claims decided, and the formal layer."""

    claims: tuple[ClaimResult, ...]
    formal: FormalResult
    detailed: bool = False

    @property
    def verdict(self) -> Verdict:
        """Refuted if any claim is not proved; otherwise that of the formal layer, where it was asked for."""
        if any(claim.verdict is not Verdict.HOLDS for claim in self.claims) or not self.claims:
            return Verdict.REFUTED
        return Verdict.HOLDS if self.formal.verdict is None else self.formal.verdict

    @property
    def exit_code(self) -> int:
        """0 all proved; 1 some claim is not; 3 the formal layer was asked for and could not be checked."""
        return self.verdict.exit_code

    @property
    def summary(self) -> str:
        proved = sum(claim.verdict is Verdict.HOLDS for claim in self.claims)
        mutants = sum(len(claim.mutants) for claim in self.claims)
        formal = f"formal layer {self.formal.status}" + (f" ({self.formal.detail})" if self.formal.detail else "")
        return f"{proved} of {len(self.claims)} claims proved beside {mutants} mutants; {formal}"

    def to_text(self) -> str:
        """A row a claim; where claims were named, their steps too."""
        header = ("claim", "title", "steps", "mutants", "methods", "verdict")
        rows = [(c.name, c.title, len(c.steps), len(c.mutants), c.methods, c.status) for c in self.claims]
        lines = [text_table(header, rows)]
        if self.detailed:
            lines += [line for claim in self.claims for line in _outline(claim)]
        lines += ["", "Formal layer, checked by Coq:", *self.formal.outline()] if self.formal.rows else []
        return "\n".join([*lines, "", self.summary, ""])

    def to_json(self) -> str:
        """Schema `conv2attn.proofs/1`: sorted keys, verdicts by name."""
        content = {
            "schema": "conv2attn.proofs/1",
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "formal": asdict(self.formal),
            "claims": [asdict(c) | {"verdict": c.verdict, "broken": c.broken} for c in self.claims],
        }
        return json.dumps(content, default=_plain, indent=2, sort_keys=True, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """A readable proof of each claim, with formulas in dollars."""
        return "\n".join(["# Proofs", "", *(line for c in self.claims for line in _markdown(c)), self.summary, ""])

    def to_latex(self) -> str:
        """A document with a readable proof of each claim."""
        packages = [r"\usepackage{amsmath,amssymb}", r"\usepackage[margin=2cm]{geometry}"]
        head = [r"\documentclass{article}", *packages, r"\sloppy", r"\begin{document}"]
        body = [line for claim in self.claims for line in _latex(claim)]
        return "\n".join([*head, *body, escape(self.summary), r"\end{document}", ""])


def table(claims: Iterable[ClaimResult]) -> str:
    """The generated part of proofs/README.md: a row a claim, then what each says."""
    listed = list(claims)
    header = ("#", "claim", "status", "decided by", "formal too", "does not show", "licenses")
    rows = [
        (
            f"[{c.name}]({c.name}.py)",
            *(c.title, c.status, c.methods, "yes" if c.formal else "no", c.not_shown),
            ", ".join(f"`{name.removeprefix('conv2attn.')}`" for name in c.licenses) or "nothing yet",
        )
        for c in listed
    ]
    lines = [markdown_table(header, rows)]
    for c in listed:
        lines += ["", f"### {c.name}. {c.title}", "", c.words, "", f"$${c.formula}$$", "", "Conditions:", ""]
        lines += [f"- {condition}" for condition in c.conditions]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """`text` as LaTeX prints it."""
    return "".join(LATEX_ESCAPES.get(sign, sign) for sign in text)


def _plain(value: Any) -> str:
    if isinstance(value, Verdict):
        return value.value
    raise TypeError(f"{value!r} has no place in a report")


def _outline(claim: ClaimResult) -> list[str]:
    lines = ["", f"{claim.name}. {claim.title}: {claim.status}", f"  {claim.words}", f"  Source: {claim.source}."]
    lines += [f"  Condition: {condition}." for condition in claim.conditions]
    lines += [f"  {n}. [{s.verdict.value}, {s.method}] {s.says}" for n, s in enumerate(claim.steps, 1)]
    lines += [f"  mutant [{m.verdict.value}, {m.method}] {m.says}" for m in claim.mutants]
    return [*lines, f"  Not shown: {claim.not_shown}"]


def _markdown(claim: ClaimResult) -> list[str]:
    lines = [f"## {claim.name}. {claim.title}", "", f"*{claim.status}.* {claim.words}", "", f"$${claim.formula}$$", ""]
    lines += [f"Source: {claim.source}.", "", "Conditions:", "", *(f"- {each}" for each in claim.conditions), ""]
    for n, s in enumerate(claim.steps, 1):
        lines += [f"{n}. {s.says} *({s.method}: {s.verdict.value})*", ""]
        lines += [f"   $${s.formula}$$", ""] if s.formula else []
    lines += ["Mutants:", "", *(f"- {m.says} *({m.method}: {m.verdict.value})*" for m in claim.mutants), ""]
    return [*lines, f"Not shown: {claim.not_shown}", ""]


def _latex(claim: ClaimResult) -> list[str]:
    lines = [rf"\section*{{{escape(claim.name)}. {escape(claim.title)} ({escape(claim.status)})}}", escape(claim.words)]
    lines += [r"\[", claim.formula, r"\]", f"Source: {escape(claim.source)}. Conditions:", r"\begin{itemize}"]
    lines += [rf"\item {escape(each)}" for each in claim.conditions]
    lines += [r"\end{itemize}", r"\begin{enumerate}"]
    for s in claim.steps:
        lines += [rf"\item {escape(s.says)} \emph{{({escape(s.method)}: {s.verdict.value})}}"]
        lines += [r"\begin{quote}", rf"$\displaystyle {s.formula}$", r"\end{quote}"] if s.formula else []
    lines += [r"\end{enumerate}", "Mutants, all to be refuted:", r"\begin{itemize}"]
    lines += [rf"\item {escape(m.says)} \emph{{({escape(m.method)}: {m.verdict.value})}}" for m in claim.mutants]
    return [*lines, r"\end{itemize}", rf"\emph{{Not shown:}} {escape(claim.not_shown)}", ""]
