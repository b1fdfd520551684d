"""`python -m benchmarks.gpu [--device cuda] [--quick]`: the figures of one accelerator, in benchmarks/gpu.md.

A row is written to benchmarks/gpu.jsonl as soon as it is measured, and whatever fails is a row that says so. Each
section runs in a process of its own, which is ended when its minutes are over: an illegal access or a kernel that never
ends costs the rest of one section. Beside the checkout it needs torch alone: what else the package imports is unpacked
from wheels/, which `make wheels` fills, where it is not installed. On a CPU the program rehearses: it prints the page.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WHEELS = ROOT / "wheels"


def unpack_wheels(folder: Path, into: Path) -> None:
    """Unpacks the wheels of a folder, and appends them to the path: what is installed goes first."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
    sys.path.append(str(into))


if WHEELS.is_dir() and not all(map(find_spec, ("click", "flint", "msgspec", "rich", "safetensors"))):
    UNPACKED = tempfile.TemporaryDirectory()
    unpack_wheels(WHEELS, Path(UNPACKED.name))

import torch  # noqa: E402

from benchmarks.__main__ import code_hash, processor  # noqa: E402
from benchmarks.accelerator_answers import differences, reports  # noqa: E402
from benchmarks.accelerator_times import calls, times  # noqa: E402
from conv2attn.errors import UsageError, first_line  # noqa: E402
from conv2attn.report.markup import markdown_table  # noqa: E402

PAGE = Path(__file__).parent / "gpu.md"
LINES = PAGE.with_suffix(".jsonl")
MINUTES = (4.5, 1.0, 1.0, 1.5)
"""What each section may take; the tests that take a device have the rest of ten."""
Rows = Callable[[torch.device, bool], Iterable[tuple[str, ...]]]
# The figures first: of fifteen minutes on a lent machine they are what nothing else can give.
SECTIONS: dict[str, tuple[Rows, tuple[str, ...]]] = {
    "Time beside the native network": (
        times,
        ("network", "format", "way", "forward ms", "forward, times native", "forward and backward, times native"),
    ),
    "What a call asks of the host": (
        calls,
        ("layer", "host, us", "kernels", "waits, forward", "waits, step", "captured in a CUDA graph"),
    ),
    "Hard heads beside the convolution: the largest difference over the largest output": (
        differences,
        ("format", "engine", "whole numbers", "other numbers"),
    ),
    "Certificates": (reports, ("format", "conversion", "with a planted error", "check-span of a layer")),
}


def measured(title: str, device: torch.device, quick: bool) -> Iterator[dict[str, Any]]:
    """The lines of one section: a row and its seconds; where the section itself fails, why."""
    start = time.monotonic()
    try:
        for row in SECTIONS[title][0](device, quick):
            yield {"section": title, "row": list(row), "seconds": round(time.monotonic() - start, 3)}
            start = time.monotonic()
    except Exception as error:
        yield {"section": title, "failed": f"{type(error).__name__}: {first_line(error)}"}


def page(device: torch.device, quick: bool) -> str:
    """The page of one device, measured in this process."""
    return page_of([line for title in SECTIONS for line in measured(title, device, quick)], note_of(device, quick))


def page_of(lines: Iterable[dict[str, Any]], note: str) -> str:
    """The page that lines make: for each section its table, and what failed."""
    parts = ["# conv2attn on an accelerator", note]
    lines = list(lines)
    for title, (_, columns) in SECTIONS.items():
        mine = [line for line in lines if line["section"] == title]
        rows = [tuple(line["row"]) for line in mine if "row" in line]
        failed = [f"Not measured further: {line['failed']}." for line in mine if "failed" in line]
        parts += [f"## {title}", markdown_table(columns, rows) if rows else "No row was measured.", *failed]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def note_of(device: torch.device, quick: bool) -> str:
    """The machine, the versions and the code."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    machine = f"{processor() if device.type == 'cpu' else name}, torch {torch.__version__}"
    told = "Measured on" if device.type != "cpu" else "Rehearsed on a CPU, so that no figure is one of a GPU:"
    sizes = ", small sizes" if quick else ""
    return f"{told} {machine}, CUDA {torch.version.cuda or 'absent'}{sizes}. Code measured: `{code_hash('gpu')}`."


def run_alone(title: str, options: list[str], minutes: float, lines: Path) -> None:
    """Runs a section in a process of its own, which appends its lines; a line says how it ended where it failed."""
    command = [sys.executable, "-m", "benchmarks.gpu", *options, "--section", title, "--lines", str(lines)]
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=60 * minutes).returncode
        failed = f"its process ended with exit code {code}" if code else None
    except subprocess.TimeoutExpired:
        failed = f"{minutes:g} minutes were over"
    if failed:
        append(lines, {"section": title, "failed": failed})


def append(lines: Path, line: dict[str, Any]) -> None:
    """Writes one line, which is then on the disk whatever happens next."""
    with lines.open("a") as file:
        file.write(json.dumps(line) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Figures, host, graphs, equality and certificates on an accelerator."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", default="cuda", help="where to compute; one that is missing is an error")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs, not how fast")
    parser.add_argument("--lines", type=Path, default=LINES, help="the file of lines")
    parser.add_argument("--section", choices=SECTIONS, help="measure this section alone, in this process")
    options = parser.parse_args(arguments)
    try:
        device = torch.empty(1, device=options.device).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError("C2A002", f"device {options.device!r} is not available", "Run it where one is.") from error
    if options.section:
        for line in measured(options.section, device, options.quick):
            append(options.lines, line)
        return
    options.lines.unlink(missing_ok=True)
    told = ["--device", options.device, *["--quick"] * options.quick]
    for title, minutes in zip(SECTIONS, MINUTES, strict=True):
        run_alone(title, told, minutes, options.lines)
    written = options.lines.read_text().splitlines() if options.lines.exists() else []
    text = page_of(map(json.loads, written), note_of(device, options.quick))
    if options.quick or device.type == "cpu":
        print(text)
    else:
        PAGE.write_text(text)
        print(f"written: {PAGE.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
