"""Processes forked from one that has imported libraries, but nothing of this package: there is one for all tests.

What runs in them by name stands here, since a process imports the module of its function first.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
PLUGINS = ["anyio.pytest_plugin", "pytest_timeout", "xdist.looponfail", "xdist.plugin"]
"""What pytest imports when it starts in a fork, where it is installed."""
LIBRARIES = ["flint", "hypothesis", "pytest", "scipy.optimize", "torch._dynamo", "torch.distributed"]
FORKS.set_forkserver_preload([*PLUGINS, *LIBRARIES, "torch.export._trace"])
BYTECODE = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"


def run_apart(target: Callable[..., object], *arguments: object) -> int | None:
    """The exit code of a function in such a process, once it has ended."""
    process = FORKS.Process(target=start, args=(target, *arguments))
    process.start()
    process.join()
    return process.exitcode


def start(target: Callable[..., object], *arguments: object) -> None:
    """Calls a function. The first process compiles a file of the package for all, also where Python is not to."""
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(BYTECODE)
    target(*arguments)


def import_with_rooms(room: str, imported: Path) -> None:
    """Imports a room and adds its name to a file, then does so for each room in it, in a fork of this process.

    Python imports a package before what is in it, so a fork has what an import of its room alone would have.
    """
    module = import_module(room)
    with imported.open("a") as file:
        file.write(f"{room}\n")
    for inner in sorted(Path(str(module.__file__)).parent.glob("*/__init__.py")):
        process = multiprocessing.get_context("fork").Process(
            target=import_with_rooms, args=(f"{room}.{inner.parent.name}", imported)
        )
        process.start()
        process.join()


def check_rules(module: str, names: Sequence[str]) -> None:
    """Ends with 1 if a class of a module, imported alone, has no rule of `document`."""
    kinds = [getattr(import_module(module), name) for name in names]
    document = import_module("conv2attn.report").document
    sys.exit(any(document.dispatch(kind) is document.dispatch(object) for kind in kinds))


def run_with_streams(code: str, output: Path, closed: Sequence[str]) -> None:
    """Runs code with some streams closed, for which Python has None, and the others in a file."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        if name in closed:
            setattr(sys, name, None)
            os.close(stream)
        else:
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    exec(code, {})
