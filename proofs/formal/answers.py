"""Coq's answers on the names of a claim: their types, what they speak of, what they use, and their axioms."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from .sources import coqc

ALLOWED = {  # what Coq's own real numbers rest on
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
OF_EVERYTHING = {  # what stands in the statements of all claims
    *("numbers", "number", "zero", "one", "add", "mul", "sub", "opp", "reals", "integers", "Matrices.of_ring")
}


@final
@dataclass(frozen=True)
class FormalClaim:
    """A section of claims.toml: names of theorems with their statements, of instances, and of refuted mutants."""

    name: str
    theorems: dict[str, str]
    instances: tuple[str, ...]
    mutants: tuple[str, ...]

    def names(self) -> dict[str, str]:
        """Each name with the Coq test of its type `t`; a mutant `m` is a definition, and `m_refuted` its negation."""
        statement = "constr_eq t C2A.Statements.{0}; let s := type of C2A.Statements.{0} in constr_eq s Prop"
        tests = {name: statement.format(wanted) for name, wanted in self.theorems.items()}
        tests |= {name: f"constr_eq t (not C2A.{name.removesuffix('_refuted')})" for name in self.mutants}
        return tests | dict.fromkeys(self.instances, "idtac")

    def question(self) -> str:
        """Coq source that prints for each name if its type is right and the term that tells of it; then the axioms.

        That term is the statement of a theorem or a mutant, as it is defined and with its first predicate unfolded, or
        the proof of an instance. The axioms are asked for once, of a tuple of all names: Coq walks through the
        libraries for each such question anew.
        """
        statements = {name: f"Statements.{wanted}" for name, wanted in self.theorems.items()}
        statements |= {name: name.removesuffix("_refuted") for name in self.mutants}
        modules = sorted({name.split(".")[0] for name in self.names()} | {"Statements"})
        lines = [f"From C2A Require {module}." for module in modules]
        lines += ["Set Printing All.", "Set Printing Depth 1000000."]
        for name, test in self.names().items():
            lines += [f'Goal True. idtac "BEGIN {self.name}:{name}". let t := type of C2A.{name} in']
            lines += [f'first [{test}; idtac "TYPED" | idtac "UNTYPED" t]; idtac "TERM". Abort.']
            lines += [f"Print C2A.{statements.get(name, name)}."]
            lines += [f"Eval hnf in C2A.{statements[name]}."] if name in statements else []
        everything = ", ".join(f"C2A.{name}" for name in self.names())
        lines += [f"Definition everything_of_{self.name} := ({everything}).", f'Goal True. idtac "BEGIN {self.name}:".']
        lines += [f"Abort. Print Assumptions everything_of_{self.name}."]
        return "\n".join(lines) + "\n"


@final
@dataclass(frozen=True)
class Answer:
    """The output of Coq about one name."""

    name: str
    typed: str
    term: str

    @property
    def notions(self) -> set[str]:
        """Definitions of Statements.v in the term, but for numbers, which stand in the statements of all claims."""
        return set(re.findall(r"\bStatements\.([\w.']+\w)", self.term)) - OF_EVERYTHING

    def uses(self, theorem: str) -> bool:
        return re.search(rf"(?<![\w.']){re.escape(theorem)}(?![\w.'])", self.term) is not None

    def problems(self) -> list[str]:
        if self.typed == "TYPED":
            return []
        return [f"{self.name}: its type is not a statement: {' '.join(self.typed.split())[:200]}"]


@final
@dataclass(frozen=True)
class Answers:
    """The output of Coq about one claim: on each of its names, and the axioms that they rest on together."""

    of: dict[str, Answer]
    rests: str

    def axioms(self) -> tuple[set[str], list[str]]:
        """The axioms that the names rest on, and what is wrong with them."""
        if self.rests == "Closed under the global context":
            return set(), []
        head, _, listed = self.rests.partition("Axioms:")
        axioms = set(re.findall(r"^([A-Za-z_][\w.']*)\s*(?=:|$)", listed, flags=re.M))
        lines = [line for line in listed.splitlines() if line and not line.startswith(" ")]
        if head.strip() or not axioms or len(lines) != len(axioms):
            return axioms, [f"Print Assumptions is not understood: {self.rests[:200]}"]
        return axioms, [f"rests on {axiom}" for axiom in sorted(axioms - ALLOWED)]


@final
@dataclass(frozen=True)
class FormalRow:
    """Coq's answer on one claim, or on the files as a whole; it holds if there are no problems."""

    claim: str
    theorems: tuple[str, ...]
    axioms: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.problems and bool(self.theorems)


def answers(build: Path, label: str, claims: list[FormalClaim]) -> tuple[dict[str, Answers], str]:
    """The output of Coq on each claim by name, and its error message if it stopped."""
    (build / f"{label}.v").write_text("".join(claim.question() for claim in claims))
    printed, error = coqc(build, f"{label}.v")
    blocks = re.split(r"^BEGIN (\S+)$", printed, flags=re.M)[1:]
    of_claims = {claim.name: Answers({}, "nothing was printed") for claim in claims}
    for name, block in zip(blocks[::2], blocks[1::2], strict=True):
        claim, _, part = name.partition(":")
        if part:
            typed, _, term = block.partition("\nTERM\n")
            of_claims[claim].of[part] = Answer(part, typed.strip(), term.strip())
        else:
            of_claims[claim] = Answers(of_claims[claim].of, block.strip())
    return of_claims, error
