"""The proved checker of certificates as a program: extracted from Coq to OCaml, compiled, and run on files.

    python -m proofs.formal.extraction [FILE ...]     builds it, and runs it on these files; on the samples without any

Every sample must be confirmed, and refused once any of its integers that matter is changed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .sources import coqc

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
SOURCES = ("Checker.v", "Extract.v", "span_checker_main.ml")
COMPILER = "ocamlfind ocamlopt -w -a -package zarith -linkpkg span_checker.mli span_checker.ml span_checker_main.ml -o"


class ExtractionError(RuntimeError):
    """The checker could not be built here."""


def built(target: Path) -> Path:
    """The program at `target`, made anew.

    Raises:
        ExtractionError: coqc, ocamlfind or Zarith is missing, or one of them failed.
    """
    missing = [name for name in ("coqc", "ocamlfind") if not shutil.which(name)]
    if missing:
        raise ExtractionError(f"the proved checker is not built here: {' and '.join(missing)} missing")
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            shutil.copy(HERE / name, folder)
        problems = [problem for name in SOURCES[:2] for _, problem in [coqc(Path(folder), name)] if problem]
        if problems:
            raise ExtractionError(problems[0])
        run = subprocess.run([*COMPILER.split(), str(target.resolve())], cwd=folder, capture_output=True, text=True)
        if run.returncode:
            raise ExtractionError(f"ocamlopt: {(run.stderr or run.stdout).strip()[-500:]}")
    return target


def answers(program: Path, text: str) -> list[bool]:
    """Whether the proved checker confirms each certificate in `text`; empty if it is not a file of certificates."""
    run = subprocess.run([str(program), "/dev/stdin"], input=text, capture_output=True, text=True)
    if run.returncode not in (0, 1):
        return []
    return [line == "confirmed" for line in run.stdout.splitlines()]


def corrupted(text: str) -> list[str]:
    """The first certificate of `text` alone, with one integer changed: each of its weights, or of its last dual row."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    place = -1 if lines[0].split()[1] == "1" else 2
    numbers = lines[place].split()
    changed = [[*numbers[:n], str(-int(x) or 10**6), *numbers[n + 1 :]] for n, x in enumerate(numbers)]
    return ["\n".join([*lines[:place], " ".join(each), *lines[place:][1:]]) + "\n" for each in changed]


def main(files: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = built(Path(folder) / "check-span-certificate")
        except ExtractionError as error:
            print(error)
            return 3
        wrong = 0
        for path in map(Path, files) if files else sorted(SAMPLES.glob("*.txt")):
            found = answers(program, path.read_text())
            refused = [not all(answers(program, text) or [False]) for text in corrupted(path.read_text())]
            good = bool(found) and all(found) and (bool(files) or all(refused))
            wrong += not good
            verdict = f"{sum(found)} of {len(found)} confirmed"
            print(f"{path.name}: {verdict}; {sum(refused)} of {len(refused)} corruptions refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
