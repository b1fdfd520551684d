"""The Coq sources: what must not stand in them, and their compilation from clean, on all cores."""

import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from pathlib import Path

HERE = Path(__file__).parent
SECONDS_A_FILE = 120  # of processor time, so that a busy machine fails nothing
COQC = ["coqc", "-Q", ".", "C2A", "-w", "-notation-overridden,-ambiguous-paths,-parsing"]
FORBIDDEN = r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|bypass_check|\w+ Checking)\b"
DEFINING = """From Import Module Section End Set Unset Declare Delimit Bind Notation Arguments Variables? Implicit
Local Record Definition Inductive Fixpoint"""  # how a sentence of Statements.v may begin


def without_comments(source: str) -> str:
    """`source` without its comments, which nest."""
    depth, kept = 0, []
    for piece in re.split(r"(\(\*|\*\))", source):
        if piece == "(*":
            depth += 1
        elif piece == "*)" and depth:
            depth -= 1
        elif not depth:
            kept.append(piece)
    return "".join(kept)


def problems_of_sources(folder: Path) -> list[str]:
    """Forbidden words, files unknown to `_CoqProject`, and anything but definitions in `Statements.v`."""
    files = {path.name: without_comments(path.read_text()) for path in sorted(folder.glob("*.v"))}
    listed = re.findall(r"^\S+\.v$", (folder / "_CoqProject").read_text(), flags=re.M)
    problems = [f"{name} is not in _CoqProject" for name in files if name not in listed]
    problems += [f"{name} of _CoqProject does not exist" for name in listed if name not in files]
    problems += [f"{name}: {word[0]}" for name, text in files.items() for word in re.finditer(FORBIDDEN, text)]
    sentences = re.split(r"\.(?:\s+|$)", files.get("Statements.v", "").strip())
    allowed = re.compile(f"(?:{'|'.join(DEFINING.split())})\\b")
    return problems + [f"Statements.v: not a definition: {s[:60]}" for s in sentences if s and not allowed.match(s)]


def coqc(build: Path, name: str) -> tuple[str, str]:
    """Compiles `name` in `build`: its output, and what went wrong; one of them may be empty."""
    limited = ["sh", "-c", 'ulimit -S -t "$0" && exec "$@"', str(SECONDS_A_FILE), *COQC, name]
    run = subprocess.run(limited, cwd=build, capture_output=True, text=True)
    if run.returncode == -signal.SIGXCPU:
        return "", f"{name}: not compiled within {SECONDS_A_FILE} s of processor time"
    return run.stdout, f"{name} does not compile: {run.stderr.strip()[-500:]}" if run.returncode else ""


def dependencies(build: Path) -> dict[str, list[str]]:
    """The files of `build` that each of its files requires, by coqdep."""
    names = sorted(path.name for path in build.glob("*.v"))
    run = subprocess.run(["coqdep", "-Q", ".", "C2A", *names], cwd=build, capture_output=True, text=True, check=True)
    rules = re.findall(r"^(\S+)\.vo .*?: \1\.v(.*)$", run.stdout, flags=re.M)
    return {f"{name}.v": [f"{each}.v" for each in re.findall(r"(\w+)\.vo\b", needs)] for name, needs in rules}


def compiled(folder: Path, build: Path) -> list[str]:
    """Copies the sources to `build` and compiles each once what it requires is compiled; returns what went wrong."""
    for path in folder.glob("*.v"):
        shutil.copy(path, build)
    order, running, problems = TopologicalSorter(dependencies(build)), dict[Future[tuple[str, str]], str](), list[str]()
    order.prepare()
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        while order.is_active() and not problems:
            running |= {cores.submit(coqc, build, name): name for name in order.get_ready()}
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                problems += filter(None, [ended.result()[1]])
                order.done(running.pop(ended))
    return problems
