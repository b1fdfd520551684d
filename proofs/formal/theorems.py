"""claims.toml: each theorem of each claim with the name of Statements.v that is its type, its instances, its mutants.

    "STR.pooling" = ["STR_pooling", "AttentionCases.STR_instance", "STR.mutant_any_weights_refuted", "Pooling"]

An instance is a theorem whose proof uses this one on numbers, so that its premises are met together; a mutant is a near
miss of it, whose negation is proved. Several names are separated by spaces; in place of either may stand a reason.
A head theorem, which says what the claim says in words, has a name in Claims.v, where it is written out.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import final

COLUMNS = ("instances", "mutants")


def reasons(shapes: frozenset[str]) -> dict[str, str]:
    """The reason why a theorem needs no instance, and no mutant, if its statement has these shapes; or none."""
    bare = "premise" not in shapes
    example = "a counterexample" if bare and "counterexample" in shapes else ""
    return {"instances": "no premises" * bare, "mutants": "an equation" if shapes == {"equation"} else example}


@final
@dataclass(frozen=True)
class Theorem:
    """A line of claims.toml: the name of a theorem, of its statement, and two columns of names or `- ` and a reason.

    Args:
        written: of a head theorem, the name under which Claims.v writes it out; else empty.
    """

    name: str
    statement: str
    instances: str
    mutants: str
    written: str = ""

    def reason(self, column: str) -> str:
        """The reason that stands in a column; empty where names stand there."""
        return getattr(self, column)[2:] if getattr(self, column).startswith("- ") else ""

    def named(self, column: str) -> tuple[str, ...]:
        """The names that stand in a column; none where a reason does."""
        return () if self.reason(column) else tuple(getattr(self, column).split())

    def problems(self, shapes: frozenset[str]) -> list[str]:
        """Empty columns, and reasons that its statement, whose parts have these shapes, does not give."""
        found = [f"{self.name}: no {column}" for column in COLUMNS if not getattr(self, column).strip()]
        return found + [
            f"{self.name}: its statement is not '{self.reason(column)}', so it needs {column}"
            for column, fitting in reasons(shapes).items()
            if self.reason(column) not in ("", fitting)
        ]


@final
@dataclass(frozen=True)
class FormalClaim:
    """A section of claims.toml: the theorems of a claim."""

    name: str
    theorems: tuple[Theorem, ...]

    def named(self, column: str) -> list[str]:
        """All instances or all mutants of the claim."""
        return list(dict.fromkeys(name for theorem in self.theorems for name in theorem.named(column)))


def formal_claims(folder: Path) -> list[FormalClaim]:
    """The claims of `claims.toml` in `folder`."""
    sections = tomllib.loads((folder / "claims.toml").read_text())
    return [
        FormalClaim(claim, tuple(Theorem(name, *columns) for name, columns in section.items()))
        for claim, section in sections.items()
    ]
