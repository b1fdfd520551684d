"""Measurements in a process of their own, on one thread, so that none finds what another has left in memory."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 2**20
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def output_of(module: str, *arguments: object) -> str:
    """The text that `python -m benchmarks.MODULE ARGUMENTS` prints in a fresh process on one thread."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **ALONE}).stdout


def apart(module: str, *arguments: object) -> dict[str, Any]:
    """The JSON that it prints."""
    found: dict[str, Any] = json.loads(output_of(module, *arguments))
    return found


def peak_bytes() -> int:
    """The largest resident set of this process so far.

    Linux's `ru_maxrss` is inherited from the parent, however large that was; VmHWM is the process's own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
