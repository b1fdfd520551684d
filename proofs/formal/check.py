"""Compile the formal layer from clean and ask Coq, claim by claim, what was proved and which axioms it rests on.

A claim of `claims.toml` holds if each of its theorems has as its type a name of `Statements.v` and nothing else, each
of its mutants is the negation of a named proposition, it has an instance, and none of these rests on an axiom outside
`ALLOWED`. Nothing is left beside the sources: the build folder is temporary.

    python proofs/formal/check.py
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import final

HERE = Path(__file__).parent
SECONDS_A_FILE = 120
COQC = ["coqc", "-Q", ".", "C2A", "-w", "-notation-overridden,-ambiguous-paths,-parsing"]
ALLOWED = {  # what Coq's own real numbers rest on
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
FORBIDDEN = r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|bypass_check|\w+ Checking)\b"
DEFINING = """From Import Module Section End Set Unset Declare Delimit Bind Notation Arguments Variables? Implicit
Local Record Definition"""  # how a sentence of Statements.v may begin


@final
@dataclass(frozen=True)
class Row:
    """What Coq says of one claim, or of the files as a whole; it holds if there are no problems."""

    claim: str
    theorems: tuple[str, ...]
    axioms: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.problems and bool(self.theorems)


class CoqMissingError(RuntimeError):
    """`coqc` is not on the path."""


def without_comments(source: str) -> str:
    """`source` without its comments, which nest."""
    depth, kept = 0, []
    for piece in re.split(r"(\(\*|\*\))", source):
        if piece == "(*":
            depth += 1
        elif piece == "*)" and depth:
            depth -= 1
        elif not depth:
            kept.append(piece)
    return "".join(kept)


def problems_of_sources(folder: Path) -> list[str]:
    """Forbidden words, files unknown to `_CoqProject`, and anything but definitions in `Statements.v`."""
    files = {path.name: without_comments(path.read_text()) for path in sorted(folder.glob("*.v"))}
    listed = re.findall(r"^\S+\.v$", (folder / "_CoqProject").read_text(), flags=re.M)
    found = [f"{name} is not in _CoqProject" for name in files if name not in listed]
    found += [f"{name} of _CoqProject does not exist" for name in listed if name not in files]
    found += [f"{name}: {word[0]}" for name, text in files.items() for word in re.finditer(FORBIDDEN, text)]
    sentences = re.split(r"\.(?:\s+|$)", files.get("Statements.v", "").strip())
    allowed = re.compile(f"(?:{'|'.join(DEFINING.split())})\\b")
    return found + [f"Statements.v: not a definition: {s[:60]}" for s in sentences if s and not allowed.match(s)]


def compiled(folder: Path, build: Path) -> list[str]:
    """Copy the sources to `build` and compile them in the order of their dependencies; what went wrong."""
    for path in folder.glob("*.v"):
        shutil.copy(path, build)
    order = subprocess.run(["coqdep", "-Q", ".", "C2A", "-sort", *sorted(p.name for p in build.glob("*.v"))],
                           cwd=build, capture_output=True, text=True, check=True)  # fmt: skip
    for name in order.stdout.split():
        try:
            run = subprocess.run([*COQC, name], cwd=build, capture_output=True, text=True, timeout=SECONDS_A_FILE)
        except subprocess.TimeoutExpired:
            return [f"{name}: not compiled within {SECONDS_A_FILE} s"]
        if run.returncode:
            return [f"{name} does not compile: {run.stderr.strip()[-500:]}"]
    return []


def names_of(claim: dict) -> list[str]:
    """The theorems, mutants and instances of a claim."""
    return [*claim["theorems"], *claim["mutants"], *claim["instances"]]


def question(claim_name: str, claim: dict) -> str:
    """The Coq source that prints, for each name of a claim, whether its type is as it must be, and its axioms."""
    statement = "constr_eq t C2A.Statements.{0}; let s := type of C2A.Statements.{0} in constr_eq s Prop"
    tests = [statement.format(wanted) for wanted in claim["theorems"].values()]
    tests += ["match t with not ?m => is_const m end"] * len(claim["mutants"]) + ["idtac"] * len(claim["instances"])
    modules = sorted({name.split(".")[0] for name in names_of(claim)} | {"Statements"})
    return "".join(f"From C2A Require {module}.\n" for module in modules) + "".join(
        f'Goal True. idtac "BEGIN {claim_name}:{name}". let t := type of C2A.{name} in '
        f'first [{test}; idtac "TYPED" | idtac "UNTYPED" t]. Abort.\nPrint Assumptions C2A.{name}.\n'
        for name, test in zip(names_of(claim), tests, strict=True)
    )


def answers(build: Path, source: str) -> tuple[dict[str, str], str]:
    """What Coq prints for each name in `source`, and its error message if it stopped."""
    (build / "Assumptions.v").write_text(source)
    run = subprocess.run([*COQC, "Assumptions.v"], cwd=build, capture_output=True, text=True, timeout=SECONDS_A_FILE)
    blocks = re.split(r"^BEGIN (\S+)$", run.stdout, flags=re.M)[1:]
    return dict(zip(blocks[::2], blocks[1::2], strict=True)), run.stderr.strip() if run.returncode else ""


def axioms_of(name: str, block: str) -> tuple[set[str], list[str]]:
    """The axioms in what Coq printed about `name`, and what is wrong with it."""
    if "TYPED" not in block.split():
        return set(), [f"{name}: its type is not a statement: {' '.join(block.split())[:200]}"]
    told = block.split("TYPED", 1)[1].strip()
    if told == "Closed under the global context":
        return set(), []
    head, _, listed = told.partition("Axioms:")
    axioms = set(re.findall(r"^([A-Za-z_][\w.']*)\s*(?=:|$)", listed, flags=re.M))
    lines = [line for line in listed.splitlines() if line and not line.startswith(" ")]
    if head.strip() or not axioms or len(lines) != len(axioms):
        return axioms, [f"{name}: Print Assumptions is not understood: {told[:200]}"]
    return axioms, [f"{name} rests on {axiom}" for axiom in sorted(axioms - ALLOWED)]


def row(claim_name: str, claim: dict, printed: dict[str, str], error: str) -> Row:
    """One claim's row: every theorem, mutant and instance typed as it must be, on allowed axioms."""
    problems = [error] if error else []
    axioms: set[str] = set()
    for name in names_of(claim) if not error else []:
        found, wrong = axioms_of(name, printed.get(f"{claim_name}:{name}", "nothing was printed"))
        axioms |= found
        problems += wrong
    return Row(claim_name, tuple(claim["theorems"]), tuple(sorted(axioms)), tuple(problems))


def rows_of(claims: dict[str, dict], build: Path) -> list[Row]:
    """All claims in one question to Coq; one by one if that fails, to tell which."""
    kinds = ("theorems", "mutants", "instances")
    empty = {name: [f"no {kind}" for kind in kinds if not claim.get(kind)] for name, claim in claims.items()}
    asked = {name: claim for name, claim in claims.items() if not empty[name]}
    joint = answers(build, "".join(question(*item) for item in asked.items()))
    single = {name: answers(build, question(name, claim)) if joint[1] else joint for name, claim in asked.items()}
    rows = [row(name, claim, *single[name]) for name, claim in asked.items()]
    return rows + [Row(name, (), (), tuple(problems)) for name, problems in empty.items() if problems]


def check(folder: Path = HERE, formal: frozenset[str] = frozenset()) -> list[Row]:
    """One row a claim of `folder`, and one named `sources` if the files themselves are in disorder.

    Args:
        formal: claims that must have a theorem, besides those that `claims.toml` names.
    Raises:
        CoqMissingError: there is no `coqc`, so nothing was checked.
    """
    if not shutil.which("coqc"):
        raise CoqMissingError("formal layer not checked here: coqc missing")
    claims = tomllib.loads((folder / "claims.toml").read_text())
    disorder = problems_of_sources(folder)
    with tempfile.TemporaryDirectory() as build:
        disorder += compiled(folder, Path(build))
        rows = [] if disorder else rows_of(claims, Path(build))
    rows += [Row(name, (), (), ("a formal claim without a theorem",)) for name in sorted(formal - claims.keys())]
    return rows + [Row("sources", (), (), tuple(disorder))] * bool(disorder)


def main() -> int:
    try:
        rows = check()
    except CoqMissingError as error:
        print(error)
        return 3
    for r in rows:
        rests = f"{len(r.axioms)} axioms" if r.axioms else "closed"
        print(
            f"{r.claim:8s} {'holds ' + rests if r.holds else 'FAILS':16s} {' '.join(r.theorems)}",
            *r.problems,
            sep="\n  ",
        )
    return 0 if all(r.holds for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
