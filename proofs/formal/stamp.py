"""The stamp that says of which sources, with which tools, Coq confirmed everything: the last act of a run that did.

    python -m proofs.formal.stamp           says whether the stamp is of these sources and tools; exit 3 where not
    python -m proofs.formal.stamp --write   compiles, asks Coq and coqchk, runs both programs, and then writes it

Compiling the formal layer takes minutes, and its answer is a function of its sources and of Coq. So tests run Coq whole
only where one of them differs from the stamp, and on the schedule, where `CONV2ATTN_COQ=always` is set.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import extraction
from .check import check
from .independent import problems_of_terms
from .sources import HERE, without_comments

STAMP = "stamp.json"
SOURCES = ("*.v", "*.py", "*.ml", "_CoqProject", "claims.toml")
LIBRARIES = ("mathcomp", "Flocq", "Coquelicot", "Interval")


def digest_of_sources(folder: Path = HERE) -> str:
    """The sha256 of names and contents of all sources of the formal layer; comments of Coq do not count."""
    found = sorted({path for pattern in SOURCES for path in folder.glob(pattern)})
    contents = [
        (path.name, without_remarks(path.read_text()) if path.suffix == ".v" else path.read_text()) for path in found
    ]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def without_remarks(source: str) -> str:
    """A Coq source without comments and line breaks, which it is the same without; with strings it stays as it is."""
    return source if '"' in source else " ".join(without_comments(source).split())


def tools() -> dict[str, str]:
    """Versions of Coq and of its OCaml, and a digest of the names and sizes of the libraries; empty without Coq."""
    if not shutil.which("coqc"):
        return {}

    def said(*options: str) -> str:
        return subprocess.run(["coqc", *options], capture_output=True, text=True, check=True).stdout.strip()

    contrib = Path(said("-where")) / "user-contrib"
    files = sorted(path for library in LIBRARIES for path in (contrib / library).rglob("*.vo"))
    sizes = [(str(path.relative_to(contrib)), path.stat().st_size) for path in files]
    return {
        "coq and ocaml": said("--print-version"),
        "libraries": hashlib.sha256(json.dumps(sizes).encode()).hexdigest(),
    }


def stamped(folder: Path = HERE) -> dict[str, object]:
    """What the stamp says; empty where there is none."""
    path = folder / STAMP
    return json.loads(path.read_text()) if path.exists() else {}


def why_run(folder: Path = HERE) -> str:
    """The reason to run Coq whole; empty where the stamp is of these sources and these tools."""
    if os.environ.get("CONV2ATTN_COQ") == "always":
        return "CONV2ATTN_COQ=always"
    stamp = stamped(folder)
    if stamp.get("sources") != digest_of_sources(folder):
        return "the sources are not those of the stamp"
    return "" if stamp.get("tools") == tools() else "the tools are not those of the stamp"


def problems_of_a_run(build: Path) -> list[str]:
    """Compiles everything in `build`, asks Coq of each claim, coqchk of each term, and runs both extracted programs."""
    rows = check(build=build)
    problems = [f"{row.claim}: {problem}" for row in rows if not row.holds for problem in row.problems or ("fails",)]
    for question in build.glob("Question*.vo"):  # they print, and prove nothing
        question.unlink()
    problems = problems or problems_of_terms(build, libraries=True)
    if not problems and extraction.main([]):
        problems = ["the extracted programs do not answer as they should"]
    return problems


def write() -> list[str]:
    """Writes the stamp if a whole run finds nothing wrong; returns what it finds.

    The digest is taken before the run and again after it: a source that changes meanwhile was not what Coq read.
    """
    before = digest_of_sources()
    with tempfile.TemporaryDirectory() as build:
        problems = problems_of_a_run(Path(build))
    if not problems and digest_of_sources() != before:
        problems = ["a source changed during the run"]
    if not problems:
        stamp = {"sources": before, "tools": tools()}
        (HERE / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    return problems


def main(arguments: list[str]) -> int:
    """Writes the stamp after a whole run, or says whether it is of this tree."""
    if "--write" in arguments and (problems := write()):
        print(*problems, "no stamp was written", sep="\n")
        return 1
    reason = why_run()
    print(f"the stamp of the formal layer: {reason or 'of these sources and tools'}")
    return 3 if reason else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
