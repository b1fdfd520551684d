"""Compile the formal layer from clean and ask Coq, claim by claim, what was proved and which axioms it rests on.

A claim of `claims.toml` holds if each of its theorems has as its type a name of `Statements.v` and nothing else, each
of its mutants is the negation of a named proposition that speaks of what its statements speak of, it has an instance
whose proof uses one of its theorems, and none of these rests on an axiom outside `ALLOWED`. Nothing is left beside the
sources: the build folder is temporary.

    python -m proofs.formal.check
"""

import os
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .answers import Answer, Answers, FormalClaim, FormalRow, answers
from .sources import HERE, compiled, problems_of_sources

KINDS = ("theorems", "instances", "mutants")


class CoqMissingError(RuntimeError):
    """`coqc` is not on the path."""


def row(claim: FormalClaim, printed: Answers, error: str) -> FormalRow:
    """One claim's row: every name typed as it must be, on allowed axioms, and concerning this claim."""
    if error:
        return FormalRow(claim.name, tuple(claim.theorems), (), (error,))
    of = {name: printed.of.get(name, Answer(name, "nothing was printed", "")) for name in claim.names()}
    axioms, unsound = printed.axioms()
    problems = [problem for answer in of.values() for problem in answer.problems()] + unsound
    notions = set().union(*(of[name].notions for name in claim.theorems))
    for name in claim.mutants:
        if not notions & of[name].notions:
            problems += [f"{name}: the mutant mentions nothing that the statement of {claim.name} mentions"]
    for name in claim.instances:
        if not any(map(of[name].uses, claim.theorems)):
            problems += [f"{name}: the instance does not use a theorem of {claim.name}"]
    return FormalRow(claim.name, tuple(claim.theorems), tuple(sorted(axioms)), tuple(problems))


def rows_of(claims: list[FormalClaim], build: Path) -> list[FormalRow]:
    """The claims in as many questions as there are cores; one by one where a question fails, to tell which."""
    cores = os.cpu_count() or 1
    shares = [share for share in (claims[start::cores] for start in range(cores)) if share]

    def ask(share: list[FormalClaim]) -> list[FormalRow]:
        printed, error = answers(build, f"Question_{share[0].name}", share)
        if not error:
            return [row(claim, printed[claim.name], "") for claim in share]
        alone = [(claim, *answers(build, f"Question_{claim.name}", [claim])) for claim in share]
        return [row(claim, printed[claim.name], error) for claim, printed, error in alone]

    with ThreadPoolExecutor(cores) as pool:
        return [each for rows in pool.map(ask, shares) for each in rows]


def check(folder: Path = HERE, formal: frozenset[str] = frozenset(), build: Path | None = None) -> list[FormalRow]:
    """One row a claim of `folder`, and one named `sources` if the files themselves are in disorder.

    Args:
        formal: claims that must have a theorem, besides those that `claims.toml` names.
        build: an empty folder that keeps what is compiled; without one nothing is kept.
    Raises:
        CoqMissingError: there is no `coqc`, so nothing was checked.
    """
    if not shutil.which("coqc"):
        raise CoqMissingError("formal layer not checked here: coqc missing")
    sections = tomllib.loads((folder / "claims.toml").read_text())
    missing = {name: [f"no {kind}" for kind in KINDS if not part.get(kind)] for name, part in sections.items()}
    complete = [
        FormalClaim(name, part["theorems"], tuple(part["instances"]), tuple(part["mutants"]))
        for name, part in sections.items()
        if not missing[name]
    ]
    disorder = problems_of_sources(folder)
    with tempfile.TemporaryDirectory() as temporary:
        disorder += compiled(folder, build or Path(temporary))
        rows = [] if disorder else rows_of(complete, build or Path(temporary))
    missing |= {name: ["a formal claim without a theorem"] for name in sorted(formal - sections.keys())}
    rows += [FormalRow(name, (), (), tuple(problems)) for name, problems in missing.items() if problems]
    return sorted(rows, key=lambda r: [*sections, r.claim].index(r.claim)) + [
        FormalRow("sources", (), (), tuple(disorder))
    ] * bool(disorder)


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
