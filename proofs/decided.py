"""Decisions: of each claim its steps and mutants, and Coq's answer on the formal layer."""

from dataclasses import dataclass, fields
from typing import Any, final

from conv2attn.verdicts import Verdict, worst_verdict

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
