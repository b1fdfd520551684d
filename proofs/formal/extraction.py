"""The proved checker of certificates as a program: extracted from Coq to OCaml, compiled, and run on files.

    python -m proofs.formal.extraction [FILE ...]     builds it, and runs it on these files

Without files it runs on the samples and on what check-span writes about the networks in examples/. Everything must be
confirmed, and refused once the weights or the dual vectors that decide have the opposite sign.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .sources import coqc

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
EXAMPLES = HERE.parents[1] / "examples"
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


def turned(text: str) -> str:
    """The certificates of `text` whose weights or dual vectors are not all zero, these with the opposite sign."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    kept: list[str] = []
    while lines:
        _, kind, heads, queries, *_ = map(int, lines[0].split())
        length = (2 if kind else 3) + queries * (1 + heads + kind)
        part, lines = lines[:length], lines[length:]
        places = range(2 + heads + 1, length, heads + 2) if kind else (2,)
        fixed = 0 if kind else 1  # the denominator of the weights keeps its sign
        numbers = {n: list(map(int, part[n].split())) for n in places}
        if not any(any(row[fixed:]) for row in numbers.values()):
            continue
        for n, row in numbers.items():
            part[n] = " ".join(map(str, row[:fixed] + [-x for x in row[fixed:]]))
        kept += part
    return "\n".join(kept) + "\n"


def zoo(folder: Path) -> list[Path]:
    """Certificates that check-span writes about each trained network of attention in examples/."""
    files = [folder / f"{network.stem}.txt" for network in sorted(EXAMPLES.glob("attention-*.pt"))]
    for file in files:
        network, command = EXAMPLES / f"{file.stem}.pt", [sys.executable, "-m", "conv2attn", "check-span", "--quiet"]
        run = subprocess.run([*command, str(network), "--certificate", str(file)], capture_output=True, text=True)
        if run.returncode not in (0, 1):
            raise ExtractionError(f"check-span {network.name}: {run.stderr.strip()[-300:]}")
    return files


def confirmed(program: Path, path: Path) -> bool:
    """Whether every certificate of a file is confirmed, and refused with its weights or duals turned; says so."""
    text = path.read_text()
    found, opposite = answers(program, text), answers(program, turned(text))
    good = bool(found) and all(found) and bool(opposite) and not any(opposite)
    changed = f"{opposite.count(False)} of {len(opposite)} refused with the opposite sign"
    if path.parent == SAMPLES:  # small: each of their integers counts
        refused = [not all(answers(program, each) or [False]) for each in corrupted(text)]
        good, changed = good and all(refused), f"{changed}, {sum(refused)} of {len(refused)} with one integer changed"
    print(f"{path.name}: {sum(found)} of {len(found)} confirmed; {changed}")
    return good


def main(files: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = built(Path(folder) / "check-span-certificate")
            paths = [*map(Path, files)] or [*sorted(SAMPLES.glob("*.txt")), *zoo(Path(folder))]
        except ExtractionError as error:
            print(error)
            return 3
        wrong = [path for path in paths if not confirmed(program, path)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
