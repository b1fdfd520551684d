"""Compile the formal layer from clean and ask Coq, claim by claim, what was proved and which axioms it rests on.

A claim of `claims.toml` holds if each of its theorems has as its type a name of `Statements.v` and nothing else, an
instance whose proof uses it, and a mutant: the negation of a named proposition that speaks of what its statement speaks
of; or a reason to have none, which Coq finds in its statement. None of these rests on an axiom outside `ALLOWED`.
Nothing is left beside the sources: the build folder is temporary.

    python -m proofs.formal.check
"""

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .answers import Answer, Answers, FormalRow, answers, tests
from .sources import HERE, compiled, problems_of_sources
from .theorems import FormalClaim, formal_claims


class CoqMissingError(RuntimeError):
    """`coqc` is not on the path."""


def row(claim: FormalClaim, printed: Answers, error: str) -> FormalRow:
    """One claim's row: every name typed as it must be, on allowed axioms, and concerning this claim."""
    names = tuple(theorem.name for theorem in claim.theorems)
    if error:
        return FormalRow(claim.name, names, (), (error,))
    of = {name: printed.of.get(name, Answer(name, "nothing was printed", frozenset(), "")) for name in tests(claim)}
    axioms, unsound = printed.axioms()
    problems = [problem for answer in of.values() for problem in answer.problems()] + unsound
    for theorem in claim.theorems:
        answer = of[theorem.name]
        problems += theorem.problems(answer.shapes)
        problems += [
            f"{name}: the mutant mentions nothing that the statement of {theorem.name} mentions"
            for name in theorem.named("mutants")
            if (spoken := answer.notions - {theorem.statement}) and not spoken & of[name].notions
        ]
        problems += [
            f"{name}: the instance does not use {theorem.name}"
            for name in theorem.named("instances")
            if not of[name].uses(theorem.name)
        ]
    return FormalRow(claim.name, names, tuple(sorted(axioms)), tuple(problems))


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
    listed = formal_claims(folder)
    claims = [claim for claim in listed if claim.theorems]
    disorder = problems_of_sources(folder)
    with tempfile.TemporaryDirectory() as temporary:
        disorder += compiled(folder, build or Path(temporary))
        rows = [] if disorder else rows_of(claims, build or Path(temporary))
    missing = sorted(({claim.name for claim in listed} | formal) - {claim.name for claim in claims})
    rows += [FormalRow(name, (), (), ("a formal claim without a theorem",)) for name in missing]
    order = [claim.name for claim in claims] + missing
    rows.sort(key=lambda r: order.index(r.claim))
    return rows + [FormalRow("sources", (), (), tuple(disorder))] * bool(disorder)


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
