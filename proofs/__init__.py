"""The mathematics of the sources: one claim a file, each step decided by `core`, each claim beside refuted mutants.

from conv2attn import proofs
proofs.decide("L1").verdict
proofs.report().to_text()
"""

from collections.abc import Mapping, Sequence
from typing import Any

from . import certificates as certificates
from .decided import DecidedClaim
from .deciding import decide_claim, load, report_on
from .explaining import explained_claim, explained_row
from .rendering import ProofReport

CLAIMS = (
    *("L1", "L2a", "L2b", "L2c", "L2d", "L2e", "T1", "T1p", "L3", "L3p", "TAPS", "LIT"),
    *("D2", "A46", "PAD", "STR", "GQ", "AND", "HEADS", "PATCH", "EQV", "COUNT", "FLOAT", "SOFT", "SPAN", "POS", "ROW"),
    *("LEFT", "DEFORM", "GRAD", "FINGERPRINT"),
)


def decide(name: str) -> DecidedClaim:
    """Each step and each mutant of the claim called `name`, decided again.

    Raises:
        UsageError: no claim has this name.
    """
    return decide_claim(load(name, CLAIMS))


def report(names: Sequence[str] = (), formal: bool = False) -> ProofReport:
    """The report on the claims called `names`, on all without names.

    Args:
        formal: also check proofs/formal/ with Coq, where `coqc` is found.
    Raises:
        UsageError: a name is not that of a claim.
    """
    return report_on([load(name, CLAIMS) for name in names or CLAIMS], formal, detailed=bool(names))


def fewest_heads(convolution: Any) -> Any:
    """The smallest numbers of heads that express a convolution, with a construction: see `proofs.fewest`."""
    from .fewest import fewest_heads as construct  # it imports torch

    return construct(convolution)


def explain(claim: str, width: int = 80) -> str:
    """What a claim says, its premises, its theorems in Coq, their axioms and the command that checks it.

    Raises:
        UsageError: no claim has this name.
    """
    return explained_claim(claim, CLAIMS, width)


def explain_row(document: Mapping[str, Any], row: str, width: int = 80) -> str:
    """The same of the claims that a row of a certificate names, below its numbers.

    Raises:
        UsageError: the certificate has no such row.
    """
    return explained_row(document, row, CLAIMS, width)
