"""The proved checker of certificates and the proved bound of rows as programs: extracted from Coq, compiled, and run.

    python -m proofs.formal.extraction [FILE ...]     builds both, and runs the checker on these files

Without files it runs on the samples and on what check-span writes about the networks in examples/. Everything must be
confirmed, and refused once the weights or the dual vectors that decide have the opposite sign; samples/refused/ holds
files that must be refused as they are. The bound of a row of each convolution in examples/ must be what the twin in
Python says.
"""

import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import torch

from conv2attn.theory.bounds import Arithmetic, Head
from conv2attn.theory.bounds.by_key import heads_of_row
from conv2attn.theory.bounds.row import Setting

from ..ROW import OutputChannel
from .sources import coqc

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
REFUSED = SAMPLES / "refused"
EXAMPLES = HERE.parents[1] / "examples"
SOURCES = ("Checker.v", "Rows.v", "Extract.v", "integers.ml", "span_checker_main.ml", "row_bound_main.ml")
COMPILER = "ocamlfind ocamlopt -w -a -package zarith -linkpkg integers.ml {0}.mli {0}.ml {0}_main.ml -o"


class ExtractionError(RuntimeError):
    """The checker could not be built here."""


def built(target: Path) -> tuple[Path, ...]:
    """The checker of certificates and the bound of rows, made anew in the folder `target`.

    Raises:
        ExtractionError: coqc, ocamlfind or Zarith is missing, or one of them failed.
    """
    missing = [name for name in ("coqc", "ocamlfind") if not shutil.which(name)]
    if missing:
        raise ExtractionError(f"the proved checker is not built here: {' and '.join(missing)} missing")
    with tempfile.TemporaryDirectory() as folder:
        for source in SOURCES:
            shutil.copy(HERE / source, folder)
        coq = [source for source in SOURCES if source.endswith(".v")]
        problems = [problem for source in coq for _, problem in [coqc(Path(folder), source)] if problem]
        if problems:
            raise ExtractionError(problems[0])
        programs = tuple(target.resolve() / name for name in ("span_checker", "row_bound"))
        for program in programs:
            command = [*COMPILER.format(program.name).split(), str(program)]
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if run.returncode:
                raise ExtractionError(f"ocamlopt: {(run.stderr or run.stdout).strip()[-500:]}")
    return programs


def answers(program: Path, text: str) -> list[bool]:
    """Whether the proved checker confirms each certificate in `text`; empty if it is not a file of certificates."""
    run = subprocess.run([str(program), "/dev/stdin"], input=text.encode(), capture_output=True)
    if run.returncode not in (0, 1):
        return []
    return [line == b"confirmed" for line in run.stdout.splitlines()]


def bounds_of_rows(program: Path, text: str) -> list[int | None]:
    """The proved bound of each row in `text`, times 2^256, None where it has none; empty if these are no rows."""
    run = subprocess.run([str(program), "/dev/stdin"], input=text.encode(), capture_output=True)
    if run.returncode not in (0, 1):
        return []
    return [None if line == b"none" else int(line) for line in run.stdout.splitlines()]


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
    verdicts = answers(program, text)
    if not (verdicts and all(verdicts)):
        print(f"{path.name}: {sum(verdicts)} of {len(verdicts)} confirmed")
        return False
    opposite = answers(program, turned(text))
    good = bool(opposite) and not any(opposite)
    changed = f"{opposite.count(False)} of {len(opposite)} refused with the opposite sign"
    if path.parent == SAMPLES:  # small: each of their integers counts
        refused = [not all(answers(program, each) or [False]) for each in corrupted(text)]
        good, changed = good and all(refused), f"{changed}, {sum(refused)} of {len(refused)} with one integer changed"
    print(f"{path.name}: {sum(verdicts)} of {len(verdicts)} confirmed; {changed}")
    return good


def rows_of(network: Path) -> list[OutputChannel]:
    """For each convolution of a state dict its output channel of largest weights, with exact and with soft heads."""
    rows = []
    for weight in torch.load(network, weights_only=True).values():
        if weight.dim() < 3:
            continue
        sums, terms = weight.double().abs().flatten(1).sum(1), weight[0].numel()
        head = Head(5.0, (0.0,) * (weight.dim() - 2))
        heads = heads_of_row(head, (224,) * head.axes, Arithmetic("float32", by_axis=True), 0.0)
        for soft, casts in product((None, heads), (1, 2)):
            settings = Setting.of(terms, "float32"), Setting.of(terms, "float32", casts=casts)
            rows.append(OutputChannel.of(sums.max().item(), 0.0, 1.0, *settings, soft))
    return rows


def bounded(program: Path, rows: list[OutputChannel]) -> bool:
    """Whether the proved program and its twin bound each row alike; says so."""
    bounds = bounds_of_rows(program, "\n".join(row.written() for row in rows))
    alike = bounds == [row.bound for row in rows] and None not in bounds
    print(f"{len(rows)} rows of convolutions: bounds {'as' if alike else 'NOT AS'} proved")
    return alike


def main(files: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            program, rows = built(Path(folder))
            paths = [*map(Path, files)] or [*sorted(SAMPLES.glob("*.txt")), *zoo(Path(folder))]
        except ExtractionError as error:
            print(error)
            return 3
        wrong = [path for path in paths if not confirmed(program, path)]
        hostile = [] if files else sorted(REFUSED.glob("*.txt"))
        wrong += [path for path in hostile if any(answers(program, path.read_text()))]
        print(*[f"{path.name}: {'CONFIRMED' if path in wrong else 'refused'}" for path in hostile], sep="\n")
        right = all(bounded(rows, rows_of(path)) for path in sorted(EXAMPLES.glob("resnet*.pt")))
    return 1 if wrong or not right else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
