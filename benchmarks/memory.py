"""Peak memory, each measurement in a process of its own: how far the resident set grows while the layer runs.

`python -m benchmarks.memory CASE WAY SIDES THREADS` prints it as JSON; CASE is 3x3 (64 channels) or stem (7x7,
stride 2, 3 channels), WAY an engine or "dense unchunked".
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import final

MIB = 2**20
CHUNKS = 2


@final
@dataclass(frozen=True)
class Peak:
    """MiB by which the resident set grew (a page, if it did not), milliseconds, and the share of queries computed."""

    mebibytes: float
    milliseconds: float
    share: float


def peak(case: str, way: str, sides: int, threads: int) -> Peak:
    """Measures in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", case, way, str(sides), str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Peak(**json.loads(done.stdout))


def measure(case: str, way: str, sides: int, threads: int) -> Peak:
    """Measures here. Of dense attention at the stem only the first `CHUNKS` chunks of queries are computed.

    A small image is computed first, so that what libraries allocate once is not counted.
    """
    import torch
    from torch import nn

    from conv2attn.attention import set_engine
    from conv2attn.attention.engines import dense
    from conv2attn.theorem import attention_for, read_convolution

    torch.set_num_threads(threads)
    conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if case == "stem" else nn.Conv2d(64, 64, 3, padding=1, bias=False)
    layer = attention_for(read_convolution(conv))
    set_engine(layer, way.split()[0], 2**40 if "unchunked" in way else None)
    image, share = torch.randn(1, conv.in_channels, sides, sides), 1.0
    with torch.inference_mode():
        layer(image[..., :8, :8])
        before, start = peak_bytes(), time.perf_counter()
        if case == "stem" and way == "dense":
            question = layer.question(layer.basis(), image)
            keys = layer.image_padding.pad(image)
            for queries, attention in islice(
                dense.attention_chunks(question.basis, keys, dense.queries_per_chunk(question)), CHUNKS
            ):
                keys.flatten(2) @ attention.flatten(1, 2).mT
                share = queries.stop / question.grid.shape[0]
        else:
            layer(image)
        elapsed = time.perf_counter() - start
    return Peak(max(peak_bytes() - before, resource.getpagesize()) / MIB, 1e3 * elapsed, share)


def peak_bytes() -> int:
    """The largest resident set of this process so far.

    Linux's `ru_maxrss` is inherited from the parent, however large that was; VmHWM is the process's own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    name, way, sides, threads = sys.argv[1:]
    print(json.dumps(vars(measure(name, way, int(sides), int(threads)))))
