"""Measurements in a process of their own, on one thread, so that none finds what another has left in memory."""

import json
import os
import subprocess
import sys
from typing import Any


def apart(module: str, *arguments: object) -> dict[str, Any]:
    """The JSON that `python -m benchmarks.MODULE ARGUMENTS` prints in a fresh process."""
    single = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, env=single).stdout)
    return found
