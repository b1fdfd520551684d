"""The stamp that says of which sources, with which tools, Coq confirmed everything: `make proofs` writes it last.

    python -m proofs.formal.stamp           says whether the stamp is of these sources and tools; exit 3 where not
    python -m proofs.formal.stamp --write   writes it, after `make proofs` ran whole

Compiling the formal layer takes minutes, and its answer is a function of its sources and of Coq. So tests run Coq whole
only where one of them differs from the stamp, and on the schedule, where `CONV2ATTN_COQ=always` is set.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def main(arguments: list[str]) -> int:
    """Writes the stamp, or says whether it is of this tree."""
    if "--write" in arguments:
        stamp = {"sources": digest_of_sources(), "tools": tools()}
        (HERE / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    reason = why_run()
    print(f"the stamp of the formal layer: {reason or 'of these sources and tools'}")
    return 3 if reason else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
