"""Findings: the verdict on one part of a certificate, and the statements of proofs/ that license it."""

from dataclasses import dataclass
from typing import final

from conv2attn.verdicts import Strength, Verdict


@final
@dataclass(frozen=True)
class Finding:
    """The verdict on one part and its strength; for all but `holds`, the rule and a sentence.

    `part` is geometry, weights, leak, measured or tolerance; `support` says that there was nothing to ask.
    """

    part: str
    verdict: Verdict
    strength: Strength = Strength.PROVED
    code: str = ""
    sentence: str = ""

    @property
    def licensed_by(self) -> tuple[str, ...]:
        """The statements of proofs/ that license it."""
        return CLAIMS.get(self.part, ())


CLAIMS: dict[str, tuple[str, ...]] = {
    "geometry": ("L1", "PAD", "STR"),
    "weights": ("T1",),
    "leak": ("L2b", "L2c", "A46"),
    "bound": ("T1", "L2c", "L2d"),
}


def holds(part: str, strength: Strength = Strength.PROVED, code: str = "", sentence: str = "") -> Finding:
    """A finding that nothing is wrong; the sentence is a warning, if there is one."""
    return Finding(part, Verdict.HOLDS, strength, code, sentence)


def refuted(part: str, code: str, sentence: str) -> Finding:
    """A finding that refutes: a fact, hence proved."""
    return Finding(part, Verdict.REFUTED, Strength.PROVED, code, sentence)


def undecided(part: str, code: str, sentence: str) -> Finding:
    """A finding that neither answer is known."""
    return Finding(part, Verdict.UNDECIDED, Strength.PROVED, code, sentence)


def unsupported(code: str, sentence: str) -> Finding:
    """A finding that the question is not one that is answered here."""
    return Finding("support", Verdict.UNSUPPORTED, Strength.PROVED, code, sentence)
