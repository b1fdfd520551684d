"""Coq's answers on the names of a claim: their types, what they speak of, what they use, and their axioms."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from .sources import coqc
from .theorems import FormalClaim

ALLOWED = {  # what Coq's own real numbers rest on
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
OF_EVERYTHING = {  # what stands in the statements of all claims
    *("numbers", "number", "zero", "one", "add", "mul", "sub", "opp", "reals", "integers", "Matrices.of_ring")
}


SHAPE = """Ltac shape general := lazymatch goal with
  | |- is_true _ => idtac "other" | |- _ = _ => idtac "equation" | |- _ <-> _ => idtac "equation"
  | |- ~ _ => tryif constr_eq general true then idtac "other" else idtac "counterexample"
  | |- exists _, _ => tryif constr_eq general true then idtac "other" else idtac "counterexample"
  | |- _ /\\ _ => split; shape general
  | |- forall x : ?A, _ =>
    let s := type of A in tryif constr_eq s Prop then idtac "premise" else (intro; shape true)
  | |- _ => tryif progress red then shape general else idtac "other" end."""
"""Prints of each part of a statement if it has a premise, is an equation for all variables, or is a counterexample."""


def tests(claim: FormalClaim) -> dict[str, str]:
    """Each name with the Coq test of its type `t`; a mutant `m` is a definition, and `m_refuted` its negation."""
    statement = "constr_eq t C2A.Statements.{0}; let s := type of C2A.Statements.{0} in constr_eq s Prop"
    found = {theorem.name: statement.format(theorem.statement) for theorem in claim.theorems}
    found |= {name: f"constr_eq t (not C2A.{name.removesuffix('_refuted')})" for name in claim.named("mutants")}
    return found | dict.fromkeys(claim.named("instances"), "idtac")


def question(claim: FormalClaim) -> str:
    """Coq source that prints for each name if its type is right, its shape, and the term that tells of it; then axioms.

    That term is the statement of a theorem or a mutant, as it is defined and with its first predicate unfolded, or the
    proof of an instance. The axioms are asked for once, of a tuple of all names: Coq walks through the libraries for
    each such question anew.
    """
    stated = {theorem.name: f"Statements.{theorem.statement}" for theorem in claim.theorems}
    statements = stated | {name: name.removesuffix("_refuted") for name in claim.named("mutants")}
    names = tests(claim)
    lines = [
        f"From C2A Require {module}." for module in sorted({name.split(".")[0] for name in names} | {"Statements"})
    ]
    lines += ["Set Printing All.", "Set Printing Depth 1000000."]
    for name, test in names.items():
        lines += [f'Goal True. idtac "BEGIN {claim.name}:{name}". let t := type of C2A.{name} in']
        lines += [f'first [{test}; idtac "TYPED" | idtac "UNTYPED" t]; idtac "SHAPE". Abort.']
        lines += [f"Goal True. try (cut C2A.{stated[name]}; [idtac | shape false]). Abort."] if name in stated else []
        lines += ['Goal True. idtac "TERM". Abort.', f"Print C2A.{statements.get(name, name)}."]
        lines += [f"Eval hnf in C2A.{statements[name]}."] if name in statements else []
    everything = ", ".join(f"C2A.{name}" for name in names)
    lines += [f"Definition everything_of_{claim.name} := ({everything}).", f'Goal True. idtac "BEGIN {claim.name}:".']
    lines += [f"Abort. Print Assumptions everything_of_{claim.name}."]
    return "\n".join(lines) + "\n"


@final
@dataclass(frozen=True)
class Answer:
    """The output of Coq about one name."""

    name: str
    typed: str
    shapes: frozenset[str]
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
    (build / f"{label}.v").write_text("\n".join([SHAPE, *map(question, claims)]))
    printed, error = coqc(build, f"{label}.v")
    blocks = re.split(r"^BEGIN (\S+)$", printed, flags=re.M)[1:]
    of_claims = {claim.name: Answers({}, "nothing was printed") for claim in claims}
    for name, block in zip(blocks[::2], blocks[1::2], strict=True):
        claim, _, part = name.partition(":")
        if part:
            typed, _, rest = block.partition("SHAPE\n")
            shapes, _, term = rest.partition("TERM\n")
            of_claims[claim].of[part] = Answer(part, typed.strip(), frozenset(shapes.split()), term.strip())
        else:
            of_claims[claim] = Answers(of_claims[claim].of, block.strip())
    return of_claims, error
