"""Tasks in forks of this process, and functions that get other code in one of them."""

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType

SURVIVED, KILLED, UNUSABLE, LATER = 0, 1, 3, 4  # exit codes of forks
OUTCOMES = {SURVIVED: "survived", KILLED: "killed", LATER: "later", -signal.SIGPROF: "time"}
MEMORY = 16 << 30  # bytes of addresses, of which torch alone takes a few


def in_forks(tasks: Iterable[tuple[object, Callable[[], None]]], jobs: int) -> Iterator[tuple[object, str]]:
    """Runs each task in a fork, `jobs` at a time; yields its label and outcome."""
    running: dict[int, object] = {}

    def ended() -> tuple[object, str]:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code == UNUSABLE:
            raise SystemExit(f"the unchanged package fails, or the runner does: {running[child]}")
        return running.pop(child), OUTCOMES.get(code, "crash")

    for label, task in tasks:
        if len(running) == jobs:
            yield ended()
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            try:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                task()
                os._exit(SURVIVED)
            except BaseException as error:
                print(label, repr(error), file=sys.stderr)
            finally:
                os._exit(UNUSABLE)
        running[child] = label
    while running:
        yield ended()


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and all within it, in order."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def exchange(functions: list[FunctionType], path: str, original: str, changed: str) -> bool:
    """Gives the living functions of a file the code of its changed text; whether that is possible."""
    before, after = (list(codes_of(compile(text, path, "exec"))) for text in (original, changed))
    names = [(code.co_qualname, code.co_firstlineno) for code in before]
    alike, new = Counter(names), dict(zip(names, after, strict=False))
    for function in functions:
        name = function.__code__.co_qualname, function.__code__.co_firstlineno
        if len(before) != len(after) or alike[name] > 1 or new[name].co_freevars != function.__code__.co_freevars:
            return False
    for function in functions:
        function.__code__ = new[function.__code__.co_qualname, function.__code__.co_firstlineno]
    return True
