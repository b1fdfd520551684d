"""The parts of a claim: words, conditions, steps that must hold, mutants that must be refuted in the same run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from sympy import latex

from conv2attn.verdicts import Verdict

from .domain import Domain

RELATIONS = {"identity": "=", "index_sums": "=", "sign": r"\ge", "less": "<"}


@final
@dataclass(frozen=True)
class Step:
    """One statement and the question put to a method of `core`, not yet asked.

    Args:
        says: the statement, in words and plain formulas.
        question: the method with its arguments.
        negated: the step is that the method *refutes* the question (a counterexample).
    """

    says: str
    question: partial[Verdict]
    negated: bool = False

    @property
    def method(self) -> str:
        return self.question.func.__name__.replace("_", " ")

    @property
    def formula(self) -> str:
        """The question to the method, its certificate and its premises, in LaTeX; empty where it is no formula."""
        name, (first, *others), options = self.question.func.__name__, self.question.args, self.question.keywords
        if name not in RELATIONS:
            return ""
        relation = ">" if options.get("strict") else RELATIONS[name]
        relation = rf"\mathrel{{\not{relation}}}" if self.negated else relation
        if name != "sign":
            return ", ".join([f"{latex(first)} {relation} {latex(others[0])}", *givens(name, options)])
        certificate = " + ".join(r" \cdot ".join(rf"({latex(f)})" for f in factors) for factors in sum(others, ()))
        return ", ".join(
            [" = ".join(filter(None, [latex(first), certificate])) + f" {relation} 0", *givens(name, options)]
        )

    def decide(self) -> Verdict:
        verdict = self.question()
        opposite = {Verdict.HOLDS: Verdict.REFUTED, Verdict.REFUTED: Verdict.HOLDS}
        return opposite.get(verdict, verdict) if self.negated else verdict


def givens(name: str, options: dict[str, Any]) -> list[str]:
    """The premises of a question, in LaTeX: equations or inequalities, and the point that refutes."""
    conditions = [zero[1] if name == "identity" else zero for zero in options.get("given", ())]
    lines = [rf"{latex(each)} {RELATIONS[name]} 0" for each in conditions]
    lines += [f"{latex(each)} > 0" for each in options.get("positive", ())]
    lines += [f"{latex(symbol)} = {latex(value)}" for symbol, value in options.get("witness", {}).items()]
    return [rf"\allowbreak\quad\text{{where }} {lines[0]}", *lines[1:]] if lines else []


def step(says: str, method: Callable[..., Verdict], *args: Any, **kwargs: Any) -> Step:
    """The statement `says`, decided by `method(*args, **kwargs)`."""
    return Step(says, partial(method, *args, **kwargs))


def refutation(says: str, method: Callable[..., Verdict], *args: Any, **kwargs: Any) -> Step:
    """The statement `says`, which is that `method(*args, **kwargs)` is false."""
    return Step(says, partial(method, *args, **kwargs), negated=True)


@final
@dataclass(frozen=True)
class Claim:
    """A statement of the sources, or its correction, with everything that is needed to judge it.

    Args:
        name: the identifier, which is the name of its file.
        title: a few words.
        words: the claim in words.
        formula: the claim in symbols, LaTeX.
        conditions: what must hold of the quantities named; part of the claim.
        source: where it is stated, or "this project".
        not_shown: what the steps below do not show.
        licenses: full names of the functions of conv2attn that rest on it, each with the domain that it covers.
        errata: rows of docs/errata.md that it is evidence for.
        formal: "whole" where proofs/formal/ states all its words, "part: " and what is not formal, "none: " and why.
        steps: all must hold.
        mutants: near misses of the claim, each decided by the same methods; all must be refuted.
    """

    name: str
    title: str
    words: str
    formula: str
    conditions: tuple[str, ...]
    source: str
    not_shown: str
    licenses: dict[str, Domain]
    formal: str
    steps: tuple[Step, ...]
    mutants: tuple[Step, ...]
    errata: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.method for step in self.steps))
