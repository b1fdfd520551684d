"""Decisions: of each claim its steps and mutants, and Coq's answer on the formal layer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, final

from conv2attn.report import Report, document
from conv2attn.verdicts import Verdict, worst_verdict

from . import rendering
from .claim import Claim, Step
from .formal.answers import FormalRow


@final
@dataclass(frozen=True)
class DecidedStep:
    """One statement and what was decided of it; its formula is put into LaTeX only where it is asked for."""

    step: Step
    verdict: Verdict

    @property
    def says(self) -> str:
        return self.step.says

    @property
    def formula(self) -> str:
        return self.step.formula

    @property
    def method(self) -> str:
        return self.step.method

    def content(self) -> dict[str, Any]:
        """The statement, its formula, the method and the verdict, for JSON."""
        return {"says": self.says, "formula": self.formula, "method": self.method, "verdict": self.verdict}

    @classmethod
    def of(cls, step: Step) -> "DecidedStep":
        return cls(step, step.decide())


@final
@dataclass(frozen=True)
class DecidedClaim:
    """A claim with its steps and its mutants decided."""

    claim: Claim
    steps: tuple[DecidedStep, ...]
    mutants: tuple[DecidedStep, ...]

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

    def content(self) -> dict[str, Any]:
        """The words of the claim and what was decided, for JSON."""
        words = {each.name: getattr(self.claim, each.name) for each in fields(Claim)}
        words["licenses"] = {name: str(domain) for name, domain in self.claim.licenses.items()}
        decided = {"steps": [s.content() for s in self.steps], "mutants": [m.content() for m in self.mutants]}
        return words | decided | {"verdict": self.verdict, "broken": self.broken}


@final
@dataclass(frozen=True)
class FormalLayer:
    """The formal layer: checked, failed, not checked here, or not asked for."""

    status: str
    verdict: Verdict | None = None
    detail: str = ""
    rows: tuple[FormalRow, ...] = ()


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
        return rendering.markdown(self)

    def to_latex(self, verbose: bool = False) -> str:
        """A document with a readable proof of each claim."""
        return rendering.article(self)


document.register(ProofReport, rendering.proofs_document)
