"""Decides claims here and now: each step must hold, each mutant must be refuted; Coq is asked for the formal layer."""

import importlib
import inspect
import shutil
from collections.abc import Iterable

from conv2attn.errors import UsageError
from conv2attn.theory import bounds
from conv2attn.verdicts import Verdict

from .claim import Claim
from .decided import DecidedClaim, DecidedStep, FormalLayer
from .rendering import ProofReport

NO_BOUND = {"format_of", "claims_of"}  # public functions of bounds that give no number


def load(name: str, names: Iterable[str]) -> Claim:
    """The claim called `name`, one of `names`; `T1'` and `L3'` may be written so.

    Raises:
        UsageError: no claim has this name.
    """
    spelled = {name.casefold(): name for name in names}
    wanted = name.replace("'", "p").casefold()
    if wanted not in spelled:
        raise UsageError("C2A002", f"claim {name!r} is not one of {', '.join(spelled.values())}", "Name one of them.")
    claim = importlib.import_module(f".{spelled[wanted]}", __package__).CLAIM
    assert isinstance(claim, Claim)
    return claim


def decide_claim(claim: Claim) -> DecidedClaim:
    """The claim with the verdict of each step and of each mutant."""
    return DecidedClaim(claim, tuple(map(DecidedStep.of, claim.steps)), tuple(map(DecidedStep.of, claim.mutants)))


def report_on(claims: Iterable[Claim], formal: bool, detailed: bool) -> ProofReport:
    """The claims decided; where there is `coqc` and `formal` is asked for, with the formal layer."""
    chosen = list(claims)
    layer = formal_layer(chosen) if formal else FormalLayer("not asked for")
    unlicensed = () if detailed else not_licensed(chosen)
    return ProofReport(tuple(map(decide_claim, chosen)), layer, unlicensed, detailed)


def not_licensed(claims: Iterable[Claim]) -> tuple[str, ...]:
    """The public functions of conv2attn.theory.bounds that no claim licenses."""
    licensed = {name for claim in claims for name in claim.licenses}
    public = [name for name in bounds.__all__ if inspect.isfunction(getattr(bounds, name)) and name not in NO_BOUND]
    return tuple(full for full in (f"conv2attn.theory.bounds.{name}" for name in public) if full not in licensed)


def formal_layer(claims: Iterable[Claim]) -> FormalLayer:
    """Coq's answers on these claims and on all that proofs/formal/ states."""
    from .formal import check  # here, since it is a program too: python -m proofs.formal.check

    if not shutil.which("coqc"):
        return FormalLayer("not checked here", Verdict.UNSUPPORTED, "coqc not found")
    stated = frozenset(claim.name for claim in claims if not claim.formal.startswith("none"))
    rows = tuple(check.check(formal=stated))
    if rows and all(row.holds for row in rows):
        return FormalLayer("checked", Verdict.HOLDS, rows=rows)
    return FormalLayer("failed", Verdict.REFUTED, rows=rows)
