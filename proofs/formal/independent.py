"""Coq's independent checker, `coqchk`, on the compiled files: a second kernel reads every term of every proof.

The libraries (Coq's own, MathComp, Flocq, Coquelicot, Interval) take nine tenths of that, so a shorter run admits them
and rechecks the files of this folder alone. What the libraries seal in a module then looks like an axiom of theirs.
"""

import subprocess
from pathlib import Path

from .answers import ALLOWED

UNSAFE = ("type-in-type", "unsafe (co)fixpoints", "is assumed")  # the last words of what coqchk must say


def problems_of_terms(build: Path, libraries: bool) -> list[str]:
    """Problems that coqchk finds in the files compiled in `build`; with `libraries` in all that they require, too."""
    names = [f"C2A.{path.stem}" for path in sorted(build.glob("*.vo"))]
    asked = names if libraries else [word for name in names for word in ("-norec", name)]
    command = ["coqchk", "-silent", "-o", "-Q", ".", "C2A", *asked]
    run = subprocess.run(command, cwd=build, capture_output=True, text=True)
    if run.returncode or not names:
        return [f"coqchk: {(run.stdout + run.stderr).strip()[-500:]}"]
    pieces = (piece.partition(":") for piece in (run.stdout + run.stderr).split("*"))
    said = {head.strip().split(" ", 3)[-1]: rest.split() for head, _, rest in pieces}
    problems = [f"coqchk: {what}: {' '.join(said[what])}" for what in UNSAFE if said[what] != ["<none>"]]
    axioms = [name for name in said["Axioms"] if name != "<none>"]
    allowed = {name for name in axioms if name.split(".", 2)[-1] in ALLOWED}
    return problems + [f"coqchk: axiom {a}" for a in axioms if a not in allowed and (libraries or a.startswith("C2A."))]
