"""The proof report, readable proofs as Markdown and LaTeX, and the table of proofs/README.md."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any, ClassVar, final

from conv2attn.report import Document, Notes, Report, Table, document
from conv2attn.report.markup import latex_escape as escape
from conv2attn.report.markup import markdown_table
from conv2attn.verdicts import Verdict

from .claim import Claim
from .decided import DecidedClaim, FormalLayer
from .formal.answers import FormalRow


@final
@dataclass(frozen=True, repr=False)
class ProofReport(Report):
    """The claims decided, the formal layer, and the bounds that no claim licenses."""

    schema: ClassVar[str] = "conv2attn.proofs/2"
    claims: Sequence[DecidedClaim]
    formal: FormalLayer
    not_licensed: tuple[str, ...] = ()
    detailed: bool = False

    @property
    def verdict(self) -> Verdict:
        """Refuted if any claim is not proved; otherwise that of the formal layer, where it was asked for."""
        if any(claim.verdict is not Verdict.HOLDS for claim in self.claims) or not self.claims:
            return Verdict.REFUTED
        return Verdict.HOLDS if self.formal.verdict is None else self.formal.verdict

    @property
    def summary(self) -> str:
        proved = sum(claim.verdict is Verdict.HOLDS for claim in self.claims)
        mutants = sum(len(claim.mutants) for claim in self.claims)
        formal = f"formal layer {self.formal.status}" + (f" ({self.formal.detail})" if self.formal.detail else "")
        return f"{proved} of {len(self.claims)} claims proved beside {mutants} mutants; {formal}"

    def content(self) -> Any:
        """The words of each claim and what was decided, and the formal layer."""
        formal = asdict(self.formal) | {"rows": [asdict(row) | {"holds": row.holds} for row in self.formal.rows]}
        claims = [claim.content() for claim in self.claims]
        return {"formal": formal, "claims": claims, "not_licensed": self.not_licensed}

    def to_markdown(self, verbose: bool = False) -> str:
        """A readable proof of each claim, with formulas in dollars."""
        return markdown(self)

    def to_latex(self, verbose: bool = False) -> str:
        """A document with a readable proof of each claim."""
        return article(self)


def short(name: str) -> str:
    """The full name of a function without that of the package."""
    return name.removeprefix("conv2attn.")


@document.register
def _(report: ProofReport, verbose: bool = False) -> Document:
    """What is claimed for which values, and what failed; with `verbose` a row a claim and the steps of each."""
    header = ("claim", "title", "steps", "mutants", "formal", "verdict")
    decided = report.claims if verbose or report.detailed else [c for c in report.claims if not proved(c)]
    rows = tuple(
        (c.claim.name, c.claim.title, len(c.steps), len(c.mutants), c.claim.formal.partition(":")[0], c.status)
        for c in decided
    )
    parts: list[Table | Notes] = [Table(header, rows, ("formal", "mutants", "steps"))] if rows else []
    if verbose or report.detailed:
        parts += [Notes(tuple(outline(claim, verbose))) for claim in report.claims]
    else:
        names = ", ".join(c.claim.name for c in report.claims if proved(c)) or "none"
        parts.append(Notes((f"proved, each for all values that meet its conditions: {names}",)))
    if verbose and report.not_licensed:
        parts.append(Notes(("Not licensed, since no claim concerns them:", ", ".join(map(short, report.not_licensed)))))
    if report.formal.rows:
        parts.append(Notes(("Formal layer, checked by Coq:", *map(coq, report.formal.rows))))
    if not verbose:
        more = (
            "each step and mutant" if report.detailed else "a row for each claim, its steps, and what it does not show"
        )
        parts.append(Notes((f"with -v: {more}", "what a claim says: `conv2attn explain L1`")))
    return Document((f"{report.verdict.value}: {report.summary}",), tuple(parts), report.verdict)


def proved(decided: DecidedClaim) -> bool:
    """Whether every step holds and every mutant is refuted."""
    return decided.verdict is Verdict.HOLDS


def coq(row: FormalRow) -> str:
    """The theorems of a claim and the number of axioms that they rest on, or what is wrong."""
    rests = f"({len(row.axioms)} axioms)" if row.holds else f"FAILS: {'; '.join(row.problems)}"
    return f"{row.claim}: {', '.join(row.theorems)} {rests}"


def outline(decided: DecidedClaim, verbose: bool) -> list[str]:
    """A claim in a text report: its words, conditions and limits, and its steps where they are asked for or fail."""
    claim = decided.claim
    lines = [f"{claim.name}. {claim.title}: {decided.status}", f"  {claim.words}", f"  Source: {claim.source}."]
    lines += [f"  Condition: {condition}." for condition in claim.conditions]
    if verbose or not proved(decided):
        lines += [f"  {n}. [{s.verdict.value}, {s.method}] {s.says}" for n, s in enumerate(decided.steps, 1)]
        lines += [f"  mutant [{m.verdict.value}, {m.method}] {m.says}" for m in decided.mutants]
    return [*lines, f"  Not shown: {claim.not_shown}", f"  Formal: {claim.formal}"]


def markdown(report: ProofReport) -> str:
    """A readable proof of each claim, with formulas in dollars."""
    lines = ["# Proofs", ""]
    for decided in report.claims:
        claim = decided.claim
        lines += [f"## {claim.name}. {claim.title}", "", f"*{decided.status}.* {claim.words}", ""]
        lines += [f"$${claim.formula}$$", "", f"Source: {claim.source}.", "", "Conditions:", ""]
        lines += [*(f"- {each}" for each in claim.conditions), ""]
        for n, s in enumerate(decided.steps, 1):
            lines += [f"{n}. {s.says} *({s.method}: {s.verdict.value})*", ""]
            lines += [f"   $${s.formula}$$", ""] if s.formula else []
        lines += ["Mutants:", "", *(f"- {m.says} *({m.method}: {m.verdict.value})*" for m in decided.mutants), ""]
        lines += [f"Not shown: {claim.not_shown}", "", f"Formal: {claim.formal}", ""]
    return "\n".join([*lines, report.summary, ""])


def article(report: ProofReport) -> str:
    """A LaTeX document with a readable proof of each claim."""
    packages = [r"\usepackage{amsmath,amssymb}", r"\usepackage[margin=2cm]{geometry}"]
    lines = [r"\documentclass{article}", *packages, r"\sloppy", r"\begin{document}"]
    for decided in report.claims:
        claim = decided.claim
        lines += [rf"\section*{{{escape(claim.name)}. {escape(claim.title)} ({escape(decided.status)})}}"]
        lines += [escape(claim.words), r"\[", claim.formula, r"\]", f"Source: {escape(claim.source)}. Conditions:"]
        lines += [r"\begin{itemize}", *(rf"\item {escape(each)}" for each in claim.conditions), r"\end{itemize}"]
        lines += [r"\begin{enumerate}"]
        for s in decided.steps:
            lines += [rf"\item {escape(s.says)} \emph{{({escape(s.method)}: {s.verdict.value})}}"]
            lines += [r"\begin{quote}", rf"$\displaystyle {s.formula}$", r"\end{quote}"] if s.formula else []
        lines += [r"\end{enumerate}", "Mutants, all to be refuted:", r"\begin{itemize}"]
        lines += [rf"\item {escape(m.says)} \emph{{({escape(m.method)}: {m.verdict.value})}}" for m in decided.mutants]
        lines += [r"\end{itemize}", rf"\emph{{Not shown:}} {escape(claim.not_shown)}", ""]
        lines += [rf"\emph{{Formal:}} {escape(claim.formal)}", ""]
    return "\n".join([*lines, escape(report.summary), r"\end{document}", ""])


def header(claim: Claim, width: int = 100) -> str:
    """The comment at the beginning of the Coq file of a claim: its words, as they stand in its Python file."""
    parts = {"Claim": claim.words, "Source": f"{claim.source}.", "Does not show": f"{claim.not_shown} *)"}
    filled = [
        fill(f"{name}: {text}", width, initial_indent=" " * 4, subsequent_indent=" " * 4)
        for name, text in parts.items()
    ]
    return "\n".join([f"(** * {claim.name}: {claim.title}", "", *filled]) + "\n"


def table(report: ProofReport) -> str:
    """The generated part of proofs/README.md: a row a claim, what no claim licenses, then what each claim says."""
    header = ("#", "claim", "status", "decided by", "formal", "does not show", "licenses")
    rows = [
        (
            f"[{c.claim.name}]({c.claim.name}.py)",
            *(c.claim.title, c.status, ", ".join(c.claim.methods), c.claim.formal, c.claim.not_shown),
            "; ".join(f"`{short(name)}`: {domain}" for name, domain in c.claim.licenses.items()) or "nothing yet",
        )
        for c in report.claims
    ]
    unlicensed = ", ".join(f"`{short(name)}`" for name in report.not_licensed)
    lines = [
        markdown_table(header, rows),
        "",
        f"**Not licensed**, since no claim concerns them: {unlicensed or 'none'}.",
    ]
    for c in report.claims:
        lines += ["", f"### {c.claim.name}. {c.claim.title}", "", c.claim.words, "", f"$${c.claim.formula}$$"]
        lines += ["", "Conditions:", "", *(f"- {condition}" for condition in c.claim.conditions)]
    return "\n".join(lines) + "\n"
