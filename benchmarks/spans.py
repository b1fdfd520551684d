"""`python -m benchmarks.spans [--quick]`: time and memory of check-span for one layer, against its grid.

Every measurement is made in a fresh process of one thread, which asks for the 3x3 offsets; `python -m benchmarks.spans
HEADS SIDE` prints one as JSON. HEADS are "soft" (nine, quadratic, alpha 0.9, in float32, whose attention is computed
chunk by chunk), "sharp" (the same at alpha 46, which hold in the interior), "hard" (a converted 3x3 convolution), or
"stem" (a converted 7x7 convolution of stride 2, 49 heads). "facts" are those of `conv2attn.heads`, for 12 layers of 12
random heads on 14x14, over SIDE images.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import torch
from torch import nn

from benchmarks.memory import MIB, peak_bytes
from conv2attn import MultiHeadSelfAttention, check_span, convert, heads
from conv2attn.attention import QuadraticEncoding
from conv2attn.report.markup import markdown_table

CASES = (
    *(("soft", side) for side in (14, 28, 56, 64)),
    *(("sharp", side) for side in (14, 28, 56, 64)),
    *(("hard", side) for side in (14, 56, 224)),
    ("stem", 224),
    *(("facts", images) for images in (2, 4, 8)),
)
QUICK = (("soft", 7), ("hard", 14), ("stem", 28), ("facts", 1))
SHIFTS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def layer_of(kind: str) -> MultiHeadSelfAttention:
    """The layer that a name stands for."""
    match kind:
        case "soft" | "sharp":
            alpha = {"soft": 0.9, "sharp": 46.0}[kind]
            return MultiHeadSelfAttention(1, 1, QuadraticEncoding(torch.tensor(SHIFTS, dtype=torch.float32), alpha))
        case "stem":
            return convert(nn.Conv2d(3, 64, 7, stride=2, padding=3))
        case _:
            return convert(nn.Conv2d(64, 64, 3, padding=1))


def measure(kind: str, side: int) -> dict[str, Any]:
    """Measures here, after a small grid, so that what libraries allocate once is not counted."""
    torch.set_num_threads(1)
    if kind == "facts":
        return measure_facts(side)
    layer = layer_of(kind)
    check_span(layer, grid=(8, 8))
    before, began, busy = peak_bytes(), time.perf_counter(), time.process_time()
    row = check_span(layer, grid=(side, side)).rows[0]
    spent, worked = time.perf_counter() - began, time.process_time() - busy
    found = {"heads": kind, "side": side, "queries": row.conditions[1].queries, "verdict": row.verdict.value}
    return {**found, "seconds": spent, "processor": worked, "mebibytes": (peak_bytes() - before) / MIB}


def measure_facts(images: int) -> dict[str, Any]:
    """Measures `heads` on attention that is random."""
    drawn = torch.Generator().manual_seed(0)
    scores = torch.randn(12, images, 12, 196, 196, generator=drawn)
    network = {f"layer {place}": torch.softmax(2 * each, -1) for place, each in enumerate(scores)}
    before, began, busy = peak_bytes(), time.perf_counter(), time.process_time()
    report = heads(network)
    spent, worked = time.perf_counter() - began, time.process_time() - busy
    found = {"heads": f"facts, {images} images", "side": 14, "queries": 12 * images * 196, "verdict": "-"}
    assert len(report.layers) == 12
    return {**found, "seconds": spent, "processor": worked, "mebibytes": (peak_bytes() - before) / MIB}


def apart(kind: str, side: int) -> dict[str, Any]:
    """Measures in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.spans", kind, str(side)]
    single = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, env=single).stdout)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    head = ("heads", "grid", "queries", "verdict", "seconds", "processor seconds", "MiB more")
    cells = [
        [row["heads"], f"{row['side']}x{row['side']}", row["queries"], row["verdict"]]
        + [f"{row[key]:.3g}" for key in ("seconds", "processor", "mebibytes")]
        for row in rows
    ]
    return markdown_table(head, cells)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        load = f"Load of the machine when measuring began: {os.getloadavg()[0]:.1f}."
        measured = [apart(*case) for case in (QUICK if "--quick" in sys.argv else CASES)]
        print(f"{load} The limit of memory is 512 MiB.\n\n{table(measured)}")
