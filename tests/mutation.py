"""Mutation testing: changes each file of `bounds`, `basis` and `equivalence`, one small change at a time.

    python tests/mutation.py                                            everything; rewrites the committed table
    python tests/mutation.py --files conv2attn/bounds/leak.py --jobs 2  some files or folders; the others stay

A mutant is killed by a failing test, by a test that does not end, or by a crash. It meets, fastest first and for a few
seconds, those of its folder's tests that execute its statement. Whatever survives stands in tests/survivors/ with the
reason why it may; a survivor without one makes the exit code 1. What is stopped goes on where it was, unless a source
text has changed.

The tests are collected once. In a fork for each mutant, the code of the mutated function is exchanged; mutants of what
runs at import time are imported anew. The unchanged package goes both ways first, and must pass.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests/conftest.py: torch reads it when it is first imported

import argparse
import gc
import hashlib
import json
import pickle
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from types import FunctionType

import flint  # noqa: F401  imported once, before the forks
import pytest
import torch  # noqa: F401
from covering import Covered, Session, Tracing
from forks import KILLED, LATER, SURVIVED, UNUSABLE, exchange, in_forks
from mutants import ROOT, copy_package
from mutations import Mutant, mutants_of
from survivors import update

TESTS = {
    "bounds": ("tests/bounds/edges/*.py", "conv2attn/bounds"),
    "basis": ("tests/basis/**/*.py", "conv2attn/basis"),
    "equivalence": ("tests/test_certificates_*.py", "tests/test_planted_errors.py", "conv2attn/equivalence"),
}
COLLECTING = 100  # seconds
MOST = 30.0  # seconds of tests that a mutant meets: more than all of bounds and basis take


class Run:
    """Mutants of some files: `folder` holds a copy of their package, from which it is imported; `state` remembers."""

    def __init__(self, folder: Path, files: list[str], tests: list[str], state: Path, jobs: int):
        self.folder, self.files, self.tests, self.state, self.jobs = folder, files, tests, state, jobs
        self.texts = {file: (folder / file).read_text() for file in files}
        self.pickled = state.with_suffix(".covered")
        self.killers = state.with_name("mutants.killers")
        self.outcomes: dict[tuple[str, ...], str] = {}

    def outcomes_of(self, files: list[str]) -> dict[tuple[str, ...], str]:
        """The outcome of every mutant of these files: first of those that need no import."""
        self.mutants = {mutant.key: mutant for file in files for mutant in mutants_of(file, self.texts[file])}
        self.remember()
        for _ in in_forks([("the session of the tests", self.collect)], 1):
            self.remember()
        self.covered: Covered = pickle.loads(self.pickled.read_bytes())
        if left := [mutant for mutant in self.mutants.values() if mutant.key not in self.outcomes]:
            self.note(in_forks([("the package, imported anew", lambda: self.import_anew(None))], 1))
            self.note(in_forks([(m.key, lambda m=m: self.import_anew(m)) for m in left], self.jobs))
        return {key: self.outcomes[key] for key in self.mutants}

    def remember(self) -> None:
        """Reads the outcomes that are known."""
        if self.state.exists():
            lines = map(json.loads, self.state.read_text().splitlines())
            self.outcomes.update((tuple(key), outcome) for key, outcome in lines)

    def killed(self, mutant: Mutant, report: pytest.TestReport) -> None:
        """In a fork: a test that fails kills the mutant, and is remembered."""
        with self.killers.open("a") as file:
            print(json.dumps([mutant.key, report.nodeid]), file=file)
        os._exit(KILLED)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that a mutant meets: first the one that killed it last time, under other sources too.

        Then the fastest, until their time is up: what only slower ones would kill is said to survive.
        """
        lines = map(json.loads, self.killers.read_text().splitlines() if self.killers.exists() else ())
        killers = {tuple(key): test for key, test in lines}
        tests = self.covered.tests_of(mutant, Counter(killers.values()))
        tests.sort(key=lambda test: test != killers.get(mutant.key))
        spent = accumulate(self.covered.seconds[test] for test in tests)
        return [test for test, seconds in zip(tests, spent, strict=True) if test == tests[0] or seconds <= MOST]

    def note(self, results: Iterable[tuple[object, str]]) -> None:
        """Keeps outcomes as they come."""
        with self.state.open("a") as file:
            for key, outcome in results:
                if key in self.mutants:
                    self.outcomes[key] = outcome
                    print(json.dumps([key, outcome]), file=file, flush=True)
                elif outcome != "survived":
                    raise SystemExit(f"{key}: {outcome}")

    def pytest(self, tests: Iterable[str], session: Session) -> int:
        """Collects, in a fork whose standard output goes nowhere; the session's loop does the rest."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        paths = [str(self.folder / test) for test in tests]
        return pytest.main([*paths, f"--rootdir={self.folder}", "-q", "-p", "no:cacheprovider"], [session])

    def collect(self) -> None:
        """In a fork: collects all tests, sees which lines they execute, and tries what needs no import."""
        tracing = Tracing(self.folder, self.files)

        def loop(session: Session) -> None:
            sys.settrace(None)
            sys.dont_write_bytecode = True
            living: dict[str, list[FunctionType]] = {file: [] for file in self.files}
            for thing in gc.get_objects():
                if type(thing) is FunctionType and thing.__code__.co_filename in tracing.files:
                    living[tracing.files[thing.__code__.co_filename]].append(thing)

            def change(file: str, text: str) -> bool:
                return exchange(living[file], str(self.folder / file), self.texts[file], text)

            def cover() -> None:
                for file, text in self.texts.items():
                    change(file, text)
                sys.settrace(tracing)
                covered = session.cover()
                sys.settrace(None)
                self.pickled.write_bytes(pickle.dumps(covered))

            if not self.pickled.exists():
                self.note(in_forks([("the package, unchanged", cover)], 1))
            self.covered = pickle.loads(self.pickled.read_bytes())

            def attempt(mutant: Mutant) -> None:
                if not change(mutant.file, mutant.source):
                    os._exit(LATER)
                session.on_failure = partial(self.killed, mutant)
                session.run(self.tests_of(mutant), self.covered.seconds)

            fast = [m for m in self.mutants.values() if m.key not in self.outcomes and not self.covered.is_imported(m)]
            self.note(
                (key, outcome)
                for key, outcome in in_forks([(m.key, lambda m=m: attempt(m)) for m in fast], self.jobs)
                if outcome != "later"
            )
            os._exit(SURVIVED)

        sys.dont_write_bytecode = False  # what is compiled here serves all who import anew
        sys.settrace(tracing)
        self.pytest(self.tests, Session(loop, UNUSABLE, tracing))
        os._exit(UNUSABLE)

    def import_anew(self, mutant: Mutant | None) -> None:
        """In a fork: imports the package, with one file changed, and runs the tests that may notice."""
        read = SourceFileLoader.get_data
        chosen = self.tests_of(mutant) if mutant else list(self.covered.seconds)
        changed = str(self.folder / mutant.file) if mutant else ""

        def read_changed(loader: SourceFileLoader, path: str) -> bytes:
            if mutant and path == changed:
                return mutant.source.encode()
            if mutant and path == cache_from_source(changed):
                raise OSError(f"{path} is of the unchanged file")
            return read(loader, path)

        SourceFileLoader.get_data = read_changed

        def loop(session: Session) -> None:
            if mutant:
                session.on_failure = partial(self.killed, mutant)
            new = [test for test in session.items if test not in self.covered.seconds]  # parameters name tests
            session.run([test for test in chosen if test in session.items] + new, self.covered.seconds)
            os._exit(SURVIVED)

        def attempt(files: list[str]) -> None:
            signal.setitimer(signal.ITIMER_PROF, COLLECTING)
            code = KILLED if mutant else UNUSABLE
            self.pytest(files, Session(loop, code))
            os._exit(code)

        files = list(dict.fromkeys(test.partition("::")[0] for test in chosen))
        if not files:
            os._exit(SURVIVED)
        if mutant and len(files) > 1:  # to collect one file is quicker, and mostly enough
            if (child := os.fork()) == 0:
                attempt(files[:1])
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code < 0:
                os.kill(os.getpid(), -code)
            if code != SURVIVED:
                os._exit(code)
        attempt(files)


def run_part(part: str, given: list[str], jobs: int) -> int:
    """Runs the mutants of those files of a folder that are given; 1 where a survivor has no reason."""
    every = [path.relative_to(ROOT) for path in sorted((ROOT / "conv2attn" / part).rglob("*.py"))]
    files = [str(path) for path in every if any(path.is_relative_to(one) for one in given)]
    if not files:
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_package(folder)
        tests = [path for pattern in TESTS[part] for path in sorted(folder.glob(pattern))]
        others = {*(folder / "tests").glob("test_*.py")} - {*tests}
        sources = {path for top in ("conv2attn", "tests") for path in (folder / top).rglob("*.py")} - others
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:16]
        state = Path(tempfile.gettempdir()) / f"mutants-{part}-{digest}"
        print(f"{part}: {len(files)} files; progress is in {state}", flush=True)
        run = Run(folder, [*map(str, every)], [str(path.relative_to(folder)) for path in tests], state, jobs)
        outcomes = run.outcomes_of(files)
        sys.path.remove(str(folder))
    return update(part, files, outcomes)


def main(arguments: list[str] | None = None) -> int:
    """Runs the mutants of some files; 1 where a survivor has no reason."""
    known = tuple(f"conv2attn/{part}" for part in TESTS)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", nargs="+", default=known, metavar="PATH", help="files or folders; all if absent")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    options = parser.parse_args(arguments)
    if absent := [given for given in options.files if not (given.startswith(known) and (ROOT / given).exists())]:
        parser.error(f"{', '.join(absent)}: no file or folder in {', '.join(known)}")
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: not at least 1")
    os.environ["CONV2ATTN_PROFILE"] = "mutation"
    return max([run_part(part, options.files, options.jobs) for part in TESTS])


if __name__ == "__main__":
    sys.exit(main())
