"""A session of pytest that hands its tests to a loop of ours, and sees which lines each of them executes."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from forks import UNUSABLE
from mutations import Mutant


class Covered(NamedTuple):
    """What the unchanged package does: seconds and executed lines of each test, and the lines run at import."""

    seconds: dict[str, float]
    lines: dict[str, set[tuple[str, int]]]
    imported: set[tuple[str, int]]

    def is_imported(self, mutant: Mutant) -> bool:
        """Whether the mutant's statement runs while the package is imported or the tests are collected."""
        return any((mutant.file, line) in self.imported for line in mutant.lines)

    def tests_of(self, mutant: Mutant, kills: Counter[str]) -> list[str]:
        """The tests that execute the mutant's statement; of what a file does when imported, all, its users first.

        The fastest come first, and those that have killed: an order that changes no outcome.
        """
        places = {(mutant.file, line) for line in mutant.lines}
        if self.is_imported(mutant):
            users = {test for test, lines in self.lines.items() if any(file == mutant.file for file, _ in lines)}
            chosen = [*self.lines]
        else:
            users, chosen = set(), [test for test, lines in self.lines.items() if places & lines]
        return sorted(chosen, key=lambda test: (test not in users, self.seconds[test] / (1 + kills[test])))


class Tracing:
    """Records the lines of some files that run between `start` and `stop`."""

    def __init__(self, folder: Path, files: Iterable[str]):
        self.files = {str(folder / file): file for file in files}
        self.seen: set[tuple[str, int]] = set()

    def __call__(self, frame, event, argument):
        file = self.files.get(frame.f_code.co_filename)
        if file is None:
            return None

        def local(frame, event, argument):
            if event == "line":
                self.seen.add((file, frame.f_lineno))
            return local

        return local


class Session:
    """A pytest plugin that collects, then hands its tests to `loop` instead of running them."""

    def __init__(self, loop: Callable[["Session"], None], when_not_collected: int, tracing: Tracing | None = None):
        self.loop, self.when_not_collected, self.tracing = loop, when_not_collected, tracing
        self.on_failure: Callable[[pytest.TestReport], None] = fail
        self.fixtures: dict[str, set] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        """Registers the profile of hypothesis that the environment asks for: always the same, and no shrinking."""
        from hypothesis import HealthCheck, Phase, settings

        quick = {"phases": [Phase.explicit, Phase.generate], "report_multiple_bugs": False, "database": None}
        same = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck)}
        settings.register_profile("mutation", max_examples=100, **quick, **same)

    def pytest_runtestloop(self, session):
        if session.testsfailed:
            os._exit(self.when_not_collected)
        self.items = {item.nodeid: item for item in session.items}
        self.loop(self)
        return True

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.on_failure(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Lines that run for a fixture count for every test that asks for it."""
        if self.tracing is None:
            return (yield)
        outer, self.tracing.seen = self.tracing.seen, self.fixtures.setdefault(fixturedef.argname, set())
        try:
            return (yield)
        finally:
            self.tracing.seen = outer

    def run(self, tests: list[str], seconds: dict[str, float]) -> None:
        """Runs tests in this process until one fails; each ends in a time that is measured on the processor."""
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            signal.setitimer(signal.ITIMER_PROF, 5 + 10 * seconds.get(test, 1))
            item, after = self.items[test], self.items[following] if following else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def cover(self) -> Covered:
        """Runs all tests once."""
        imported, seconds, lines = self.tracing.seen, {}, {}
        tests = list(self.items)
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            clear_caches()
            self.tracing.seen = lines[test] = set()
            began = time.process_time()
            item, after = self.items[test], self.items[following] if following else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            seconds[test] = time.process_time() - began
        for test, item in self.items.items():
            lines[test].update(*(self.fixtures.get(name, ()) for name in getattr(item, "fixturenames", ())))
        return Covered(seconds, lines, imported)


def clear_caches() -> None:
    """Forgets what functions remember, so that every test executes what it uses."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "conv2attn":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def fail(report: pytest.TestReport) -> None:
    """A test that fails on the unchanged package ends everything."""
    print(report.nodeid, report.longreprtext, file=sys.stderr)
    os._exit(UNUSABLE)
