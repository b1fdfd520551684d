"""`prove`: every claim of proofs/ decided again, here and now, each with its mutants."""

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conv2attn.errors import UsageError
from conv2attn.proof_report import ClaimResult, FormalResult, FormalRow, ProofReport, StepResult, table
from conv2attn.verdicts import Verdict

PACKAGE = "conv2attn.proofs"
FORMAL_CHECK = "conv2attn_formal_check"


def proofs_folder() -> Path:
    """The folder of claims: inside the installed package, or beside it in a checkout.

    Raises:
        UsageError: there is none.
    """
    here = Path(__file__).resolve().parent
    for folder in (here / "proofs", here.parent / "proofs"):
        if (folder / "core.py").is_file():
            return folder
    raise UsageError(
        "C2A301", "the folder of proofs is neither in the package nor beside it", "Install conv2attn again."
    )


def claim_names() -> tuple[str, ...]:
    """The names of all claims, in the order of proofs/README.md."""
    names: tuple[str, ...] = _load("").CLAIMS
    return names


def load_claim(name: str) -> Any:
    """The claim called `name`; `T1'` and `L3'` may be written so.

    Raises:
        UsageError: no claim has this name.
    """
    known = {each.casefold(): each for each in claim_names()}
    wanted = name.replace("'", "p").casefold()
    if wanted not in known:
        raise UsageError("C2A001", f"claim {name!r} is not one of {', '.join(known.values())}")
    return _load(known[wanted]).CLAIM


def prove(claims: Sequence[str] | None = None, formal: bool = False) -> ProofReport:
    """Decides every step of the claims, and that every mutant of theirs is refuted.

    Args:
        claims: names; all when absent or empty.
        formal: also check proofs/formal/ with Coq, where `coqc` is found.
    Raises:
        UsageError: a name is not that of a claim.
    """
    chosen = [load_claim(name) for name in (claims or claim_names())]
    results = tuple(decide_claim(claim) for claim in chosen)
    wanted = frozenset(claim.name for claim in chosen if claim.formal)
    layer = _check_formal(wanted) if formal else FormalResult("not asked for")
    return ProofReport(results, layer, detailed=bool(claims))


def decide_claim(claim: Any) -> ClaimResult:
    """The claim with the verdict of each step and of each mutant."""
    return ClaimResult(
        **{field: getattr(claim, field) for field in ClaimResult.copied_fields()},
        steps=tuple(_decide(step) for step in claim.steps),
        mutants=tuple(_decide(mutant) for mutant in claim.mutants),
    )


def _decide(step: Any) -> StepResult:
    return StepResult(step.says, step.formula, step.method, step.decide())


def _load(name: str) -> Any:
    """Module `name` of the folder of proofs, or the folder itself as a package; found by path, so not on sys.path."""
    if PACKAGE not in sys.modules:
        _run_file(PACKAGE, proofs_folder() / "__init__.py", package=True)
    return importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)


def _run_file(name: str, path: Path, package: bool = False) -> Any:
    """The module that the file at `path` is, under `name`."""
    folders = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec is not None  # the file exists
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check_formal(wanted: frozenset[str]) -> FormalResult:
    """Asks proofs/formal/check.py, which compiles in a folder of its own, for these claims and all that it knows."""
    script = proofs_folder() / "formal" / "check.py"
    missing = [what for what, found in (("coqc", shutil.which("coqc")), (script.name, script.is_file())) if not found]
    if missing:
        return FormalResult("not checked here", Verdict.UNSUPPORTED, f"{' and '.join(missing)} not found")
    rows = tuple(
        FormalRow(row.claim, tuple(row.theorems), tuple(row.axioms), tuple(row.problems), row.holds)
        for row in _run_file(FORMAL_CHECK, script).check(formal=wanted)
    )
    if rows and all(row.holds for row in rows):
        return FormalResult("checked", Verdict.HOLDS, rows=rows)
    return FormalResult("failed", Verdict.REFUTED, rows=rows)


if __name__ == "__main__":
    print(table(prove().claims), end="")
