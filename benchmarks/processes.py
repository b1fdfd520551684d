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


def output_of(module: str, *arguments: object, **variables: str) -> str:
    """The text that `python -m benchmarks.MODULE ARGUMENTS` prints in a fresh process on one thread."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    environment = {**os.environ, **ALONE, **variables}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def apart(module: str, *arguments: object, **variables: str) -> dict[str, Any]:
    """The JSON that it prints, with these environment variables."""
    found: dict[str, Any] = json.loads(output_of(module, *arguments, **variables))
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
