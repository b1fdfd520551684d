"""Mutation testing of one room: seeded errors of cosmic-ray, each against the tests that execute its statement.

Nothing is written but the results: a mutant is a source that an import hook hands to a forked process. A mutant is
found if a test fails on it, or if its tests take ten times as long; processor time counts, since a busy machine is
slow for all. Usage: python .ci/mutation.py ROOM COUNT SEED.
"""

import ast
import datetime
import difflib
import functools
import json
import math
import os
import random
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
CACHING = f"{ROOT}/conv2attn/", f"{ROOT}/tests/"
LAST = "<!-- /mutation -->\n"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
sys.path.append(str(ROOT / ".venv" / "mutation"))

from mutants import QUIETLY, exit_code  # noqa: E402

STAGES = 0, 40, 400
"""The quickest tests are tried first, up to these numbers of them in one process; what 400 do not find has survived."""


class Change(NamedTuple):
    """The source of a file with one error in `line`."""

    path: Path
    line: int
    source: str

    @property
    def difference(self) -> str:
        """The lines before and after."""
        lines = difflib.unified_diff(self.path.read_text().splitlines(), self.source.splitlines(), lineterm="", n=0)
        shown = [line for line in lines if line[:2] not in ("--", "++", "@@")]
        return "\n".join([f"{self.path.relative_to(ROOT)}:{self.line}", *shown])


class Coverage(NamedTuple):
    """The tests that execute each line of each file ("" at import), and seconds of each test and of the rest."""

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]
    start: float

    def tests(self, path: Path, line: int) -> list[str]:
        """Tests that execute the statement at `line`, quickest first.

        If it is executed at import, all of them, those that execute anything of the file first.
        """
        lines = {int(number): tests for number, tests in self.lines.get(str(path), {}).items()}
        file, span = {test for tests in lines.values() for test in tests}, statement_at(path, line)
        chosen = {test for number, tests in lines.items() if number in span for test in tests} - {""}
        return sorted(chosen or self.seconds, key=lambda test: (test not in file, self.seconds[test]))


def statement_at(path: Path, line: int) -> range:
    """The lines of the innermost statement at `line`, without the body of a compound one."""
    statements = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.stmt)]
    spans = []
    for node in statements:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        body = getattr(node, "body", None)
        spans.append(range(first, body[0].lineno if body else node.end_lineno + 1))
    return min((span for span in spans if line in span), key=len, default=range(line, line + 1))


def without_effect(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a file says what right code never asks: annotations, and `strict` of a zip; its (line, column) pairs."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.keyword) and node.arg == "strict":
            nodes.append(node)
    return [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in nodes if node]


def changes(room: str, exclude: list[str]) -> list[tuple[Path, str, int, int]]:
    """Every mutant of the room as (file, operator, occurrence, line), in a fixed order."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    names = [name for name in sorted(operator_names()) if not any(re.match(each, name) for each in exclude)]
    operators = [(name, get_operator(name)) for name in names]
    found = []
    for path in sorted((ROOT / "conv2attn" / room).rglob("*.py")):
        nodes, said = list(ast_nodes(get_ast(path.read_text()))), without_effect(path)
        for name, operator in operators:
            if operator.arguments():
                continue
            positions = (first for node in nodes for first, _ in operator().mutation_positions(node))
            found += [
                (path, name, occurrence, place[0])
                for occurrence, place in enumerate(positions)
                if not any(first <= place < last for first, last in said)
            ]
    return found


def planted(path: Path, name: str, occurrence: int, line: int) -> Change | None:
    """The source with that occurrence changed; None of `except module.Error`, which cosmic-ray cannot change."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    with suppress(AttributeError):
        return Change(path, line, mutate_code(path.read_text(), get_operator(name)(), occurrence))
    return None


class Watch:
    """A plugin of pytest that names each test to the coverage measurement and times it.

    Caches of the package and of the tests are emptied before, so that what they keep is executed by each.
    """

    def __init__(self, measurement):
        self.measurement = measurement
        self.seconds: dict[str, float] = {}

    def pytest_runtest_protocol(self, item) -> None:
        files = ((getattr(module, "__file__", None) or "", module) for module in list(sys.modules.values()))
        for module in [module for file, module in files if file.startswith(CACHING)]:
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
        self.measurement.switch_context(item.nodeid)
        self.seconds[item.nodeid] = time.process_time()

    def pytest_runtest_logfinish(self, nodeid) -> None:
        self.seconds[nodeid] = time.process_time() - self.seconds[nodeid]
        self.measurement.switch_context("")


def measure(room: str, tests: list[str], result: str) -> None:
    """Writes the `Coverage` of a room by tests that all pass; runs in a process of its own."""
    import coverage
    import pytest

    os.chdir(ROOT)
    os.environ["CONV2ATTN_PROFILE"] = "ci"
    measurement = coverage.Coverage(data_file=None, config_file=False, include=[f"{ROOT}/conv2attn/{room}/*"])
    measurement.start()
    watch = Watch(measurement)
    code = pytest.main([*tests, *QUIETLY], plugins=[watch])
    measurement.stop()
    data = measurement.get_data()
    lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    start = time.process_time() - sum(watch.seconds.values())
    Path(result).write_text(json.dumps([int(code), lines, watch.seconds, start]))


def coverage_of(room: str, tests: list[str]) -> Coverage:
    """Which tests execute which lines, once for all mutants."""
    from forks import FORKS

    with tempfile.NamedTemporaryFile() as result:
        process = FORKS.Process(target=measure, args=(room, tests, result.name))
        process.start()
        process.join()
        content = Path(result.name).read_text()
    code, *measured = json.loads(content or "[70, {}, {}, 0]")
    if code != 0:
        raise SystemExit(f"the tests of {room} end with code {code} without any mutant: pytest {' '.join(tests)}")
    return Coverage(*measured)


def survives(change: Change, coverage: Coverage) -> bool:
    """Whether the tests that execute the statement pass, the quickest of them where they are many."""
    tests = coverage.tests(change.path, change.line)
    for first, last in pairwise(STAGES):
        stage = tests[first:last]
        limit = math.ceil(10 * (coverage.start + sum(coverage.seconds[test] for test in stage)))
        code = exit_code(change.path, change.source, stage, limit) if stage else 0
        if code == 4:  # the mutant changes names of tests
            code = exit_code(change.path, change.source, sorted({test.partition("::")[0] for test in stage}))
        if code not in (0, 1, 2, -signal.SIGXCPU):
            raise SystemExit(f"the tests did not run (code {code}): {change.difference}")
        if code != 0:
            return False
    return True


def record(room: str, count: int, found: int, seed: int) -> None:
    """Puts the result of a room in the table of CONTRIBUTING.md, in place of an older one."""
    row = f"| {room} | {datetime.date.today()} | {count} of seed {seed} | {found} | {found / count:.0%} |\n"
    before, _, after = PAGE.read_text().partition(LAST)
    kept = [line for line in before.splitlines(keepends=True) if not line.startswith(f"| {room} |")]
    PAGE.write_text("".join([*kept, row, LAST, after]))


def judged(room: str, count: int, seed: int) -> Iterator[tuple[Change, bool]]:
    """Seeded mutants of a room, each with whether it survives."""
    config = tomllib.loads((ROOT / "mutation.toml").read_text())
    if room not in config["rooms"]:
        raise SystemExit(f"ROOM is one of {', '.join(config['rooms'])} in mutation.toml")
    every = changes(room, config["operators"]["exclude"])
    drawn = (planted(*each) for each in random.Random(seed).sample(every, len(every)))
    chosen = list(islice(filter(None, drawn), count))
    coverage = coverage_of(room, config["rooms"][room])
    print(f"{room}: {len(every)} mutants, {len(chosen)} are tried against {len(coverage.seconds)} tests", flush=True)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield from zip(chosen, pool.map(lambda change: survives(change, coverage), chosen), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> None:
    room, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tried = found = 0
    for tried, (change, survived) in enumerate(judged(room, count, seed), 1):
        found += not survived
        print(f"{tried} survived: {change.difference}" if survived else f"{tried} found", flush=True)
        record(room, tried, found, seed)
    print(f"{room}: {found} of {tried} mutants are found")


if __name__ == "__main__":
    main()
