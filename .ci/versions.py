"""Run the demo, the README and a quick part of the tests on each Python here and at each end of the ranges.

.ci/versions.py TEST... builds one environment at a time outside the checkout, deletes it, and writes its line of
docs/versions.md. .ci/versions.py --only 3.13 TEST... runs the lines of one Python, and fails where none can be run.
.ci/versions.py --other runs the demo and the README on one other Python, in at most two minutes for its environment,
and writes nothing.
"""

import argparse
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SETS = {"pinned": "constraints.txt", "oldest": ".ci/oldest.txt", "newest": ""}
"""Constraints of each set of versions; the newest have none."""
ENDS = {"oldest": PYTHONS[0], "newest": "3.13"}
"""The Python with which each end of the ranges runs: the oldest releases have no wheels for later ones."""
MINUTES = 2
"""What the environment of --other may take, so that no run of everything waits for gigabytes."""
HEAD = """# Versions that were run

`make versions` builds an environment for each line, one at a time, runs `conv2attn demo`, the README and a quick part
of the tests in it, deletes it, and writes the line. *pinned* is `constraints.txt`, *oldest* the floors of
`pyproject.toml`, *newest* whatever pip installs. A Python or a floor without a line here is not promised.

| Python | versions | torch | demo | README and quick tests | date |
| --- | --- | --- | --- | --- | --- |
"""


class Line(NamedTuple):
    """What one environment ran."""

    python: str
    versions: str
    torch: str
    demo: str
    tests: str
    date: str


def lines_of(page: str) -> dict[tuple[str, str], Line]:
    """The lines of a page, by the minor version of Python and the set of versions."""
    rows = [
        Line(*(cell.strip() for cell in row.strip("|").split("|"))) for row in page.splitlines() if row[:3] == "| 3"
    ]
    return {(minor(line.python), line.versions): line for line in rows}


def minor(version: str) -> str:
    """Python 3.13.0 as "3.13"."""
    return ".".join(version.split(".")[:2])


def interpreter(python: str) -> str | None:
    """An interpreter of this minor version that runs, on the path or below pyenv's folder."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*sorted(map(str, home.glob(f"{python}.*/bin/python")), reverse=True), shutil.which(f"python{python}")]
    ask = "import sys, ensurepip, venv; print('.'.join(map(str, sys.version_info[:2])))"
    for place in filter(None, places):
        answer = subprocess.run([place, "-c", ask], capture_output=True, text=True)
        if answer.stdout.strip() == python:
            return place
    return None


def build(python: str, constraints: str, folder: Path, seconds: float | None) -> Path:
    """An environment with this project and what its tests need; the path of its Python.

    Raises:
        subprocess.SubprocessError: something cannot be installed, or not in so many seconds.
    """
    end = None if seconds is None else time.monotonic() + seconds
    binary = folder / "bin" / "python"
    pins = folder / "pins.txt"
    given = folder / "given.txt"
    pip = [str(binary), "-m", "pip", "install", "-qq", "-c", str(pins)]
    steps = [
        [python, "-m", "venv", str(folder)],
        [str(binary), str(ROOT / ".ci" / "install_torch.py"), str(given), str(pins)],
        [*pip, "-e", f"{ROOT}[graph,testing,train]", "pytest-timeout"],
    ]
    folder.mkdir(exist_ok=True)
    given.write_text((ROOT / constraints).read_text() if constraints else "# no version is pinned\n")
    for step in steps:
        left = None if end is None else max(1.0, end - time.monotonic())
        with subprocess.Popen(step, cwd=folder, stdout=sys.stderr, start_new_session=True) as process:
            try:
                code = process.wait(left)
            except BaseException:  # a pip that a step began would go on downloading into a folder that is gone
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if code:
            raise subprocess.CalledProcessError(code, step)
    return binary


def outcome(binary: Path, *arguments: str) -> tuple[bool, str]:
    """Whether a module ends with exit code 0 in the checkout, and its last words."""
    # PYTHONPATH would lend the environment what it lacks.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [str(binary), "-m", *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(answer.stdout[-4000:], file=sys.stderr)
    last = answer.stdout.strip().rpartition("\n")[2]
    counts = re.findall(r"\d+ (?:passed|failed|errors?)", last)
    words = ", ".join(counts) or ("ran" if answer.returncode == 0 else f"exit code {answer.returncode}")
    return answer.returncode == 0, words


def run(python: str, versions: str, tests: list[str]) -> bool | None:
    """Builds the environment of a line, runs and writes the line: whether everything passed, None without a Python."""
    place = interpreter(python)
    if place is None:
        print(f"Python {python} is not installed: no line for it")
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            binary = build(place, SETS[versions], Path(folder) / "environment", None)
        except subprocess.SubprocessError as error:
            print(f"Python {python}, {versions}: no environment ({error}): no line for it")
            return False
        ask = "import platform, torch; print(platform.python_version(), torch.__version__)"
        version, torch = subprocess.check_output([binary, "-c", ask], text=True).split()
        demo_ran, demo = outcome(binary, "conv2attn", "demo")
        tests_ran, quick = outcome(binary, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    line = Line(version, versions, torch, demo, quick, datetime.date.today().isoformat())
    lines = lines_of(PAGE.read_text() if PAGE.exists() else "")
    lines[python, versions] = line
    order = sorted(lines.items(), key=lambda item: (PYTHONS.index(item[0][0]), list(SETS).index(item[0][1])))
    PAGE.write_text(HEAD + "".join(f"| {' | '.join(each)} |\n" for _, each in order))
    print(f"Python {version}, {versions}: demo {demo}; tests {quick}")
    return demo_ran and tests_ran


def run_other() -> bool:
    """The demo and the README on the newest other Python; True where no environment can be made in time."""
    own = minor(".".join(map(str, sys.version_info[:2])))
    others = ((python, interpreter(python)) for python in reversed(PYTHONS) if python != own)
    python, place = next(((python, place) for python, place in others if place), ("", None))
    if place is None:
        print(f"not run: the demo and the README on another Python than {own}, since none is installed")
        return True
    with tempfile.TemporaryDirectory() as folder:
        try:
            binary = build(place, SETS["pinned"], Path(folder) / "environment", 60 * MINUTES)
        except (subprocess.SubprocessError, OSError):
            print(f"not run: the demo and the README on Python {python}: no environment in {MINUTES} minutes")
            return True
        demo_ran, demo = outcome(binary, "conv2attn", "demo")
        readme_ran, readme = outcome(binary, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_readme.py")
    print(f"Python {python}: demo {demo}; README {readme}")
    return demo_ran and readme_ran


def chosen(only: str | None) -> Iterator[tuple[str, str]]:
    """The lines to run: every Python with the pinned versions, then both ends of the ranges."""
    lines = [*((python, "pinned") for python in PYTHONS), *((python, versions) for versions, python in ENDS.items())]
    return (line for line in lines if only in (None, line[0], "-".join(line)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="a Python, such as 3.13, or one of its lines, such as 3.13-newest")
    parser.add_argument("--other", action="store_true")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    ran = [run_other()] if options.other else [run(*line, options.tests) for line in chosen(options.only)]
    # A line that was asked for by name and has no Python is a failure; of all lines, those that can be run.
    sys.exit(True not in ran or False in ran or (options.only is not None and None in ran))
