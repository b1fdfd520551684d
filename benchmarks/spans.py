"""`python -m benchmarks.spans [--quick]`: time and memory of check-span for one layer, against its grid.

Every measurement is made in a fresh process of one thread, which asks for the 3x3 offsets; `python -m benchmarks.spans
HEADS SIDE` prints one as JSON. HEADS are "soft" (nine, quadratic, alpha 0.9, in float32, whose attention is computed
chunk by chunk), "sharp" (the same at alpha 46, which hold in the interior), "hard" (a converted 3x3 convolution), or
"stem" (a converted 7x7 convolution of stride 2, 49 heads). "facts" are those of `conv2attn.heads` about the soft heads,
"facts of images" about 12 layers of 12 random heads on 14x14, over SIDE images; "images" is check-span of one of these.
Names of `NETWORKS` are vision transformers of random weights, read on 8 images of SIDE pixels by `heads`, or by
check_span after the words "check-span of".
"""

import json
import sys
import time
from typing import Any

import torch
from torch import nn

from benchmarks.processes import MIB, apart, peak_bytes
from conv2attn import MultiHeadSelfAttention, check_span, convert, heads
from conv2attn.layers.attention import Encoding
from conv2attn.report.markup import markdown_table
from studies.transformer import TransformerPlan, VisionTransformer

CASES = (
    *(("soft", side) for side in (14, 28, 56, 64)),
    *(("sharp", side) for side in (14, 28, 56, 64)),
    *(("hard", side) for side in (14, 56, 224)),
    ("stem", 224),
    ("facts", 64),
    *((kind, images) for kind in ("facts of images", "images") for images in (2, 4, 8, 16)),
)
NETWORKS = {
    "small": (16, 2, 1, 4),
    **{f"ViT-S/14, layers: {layers}": (384, 6, layers, 14) for layers in (1, 2, 8, 12)},
    **{f"ViT-L/14, layers: {layers}": (1024, 16, layers, 14) for layers in (1, 2, 3)},
}
"""Width, heads, layers and side of a patch."""
CHECKED = "check-span of "
SMALL, LARGEST = ("small", 16), ("ViT-L/14, layers: 3", 518)
READ = (
    ("ViT-S/14, layers: 12", 224),
    *((name, 518) for name in NETWORKS if name.endswith((": 1", ": 2", ": 3", ": 8"))),
    *((f"{CHECKED}ViT-S/14, layers: {layers}", 518) for layers in (1, 2, 8)),
)
RETURNED = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(MIB))
"""With these, glibc returns every freed block of a mebibyte at once."""
QUICK = (("soft", 7), ("hard", 14), ("stem", 28), ("facts of images", 1))
HEAD = """One layer, asked for the 3x3 offsets, under a limit of 512 MiB. Facts are those of `conv2attn.heads`: of nine
soft heads, and of 12 layers of 12 heads over images; "images" is check-span of one such layer over images."""
ABOUT_NETWORKS = """Facts of networks that are read as they run, and check-span of their layers for the 3x3 offsets,
on 8 images: what the resident set grows by beside the weights. Wanted are 2048 MiB whatever the number of layers.
glibc keeps freed blocks of up to 32 MiB; in the last row it returns them from 1 MiB on (`MALLOC_MMAP_THRESHOLD_`
and `MALLOC_TRIM_THRESHOLD_`)."""
SHIFTS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def layer_of(kind: str) -> MultiHeadSelfAttention:
    """The layer that a name stands for."""
    match kind:
        case "soft" | "sharp" | "facts":
            alpha = 46.0 if kind == "sharp" else 0.9
            return MultiHeadSelfAttention(
                1, 1, Encoding.of("quadratic", torch.tensor(SHIFTS, dtype=torch.float32), alpha)
            )
        case "stem":
            return convert(nn.Conv2d(3, 64, 7, stride=2, padding=3))
        case _:
            return convert(nn.Conv2d(64, 64, 3, padding=1))


def measure(kind: str, side: int) -> dict[str, Any]:
    """Measures here, after a small grid, so that what libraries allocate once is not counted."""
    torch.set_num_threads(1)
    asks = heads if kind.startswith("facts") else check_span
    if kind.endswith("images"):
        drawn = torch.Generator().manual_seed(0)
        scores = torch.randn(12 if asks is heads else 1, side, 12, 196, 196, generator=drawn)
        given: Any = {f"layer {place}": torch.softmax(2 * each, -1) for place, each in enumerate(scores)}
        shape = {"heads": f"{kind}, {side}", "side": 14, "queries": len(scores) * side * 196}
    else:
        given = layer_of(kind)
        asks(given, grid=(8, 8))
        shape = {"heads": kind, "side": side}
    before, began, busy = peak_bytes(), time.perf_counter(), time.process_time()
    report: Any = asks(given, grid=(shape["side"], shape["side"]))
    spent, worked = time.perf_counter() - began, time.process_time() - busy
    queries = side**2 if asks is heads else report.rows[0].deciding.queries
    found = {"queries": queries, "verdict": report.verdict.value if asks is check_span else "-", **shape}
    return {**found, "seconds": spent, "processor": worked, "mebibytes": (peak_bytes() - before) / MIB}


def measure_network(asked: str, side: int, images: int = 8) -> dict[str, Any]:
    """Measures `heads` or check-span of a network here, after that of a small one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def network(name: str, side: int) -> tuple[nn.Module, torch.Tensor]:
        width, count, layers, patch = NETWORKS[name]
        plan = TransformerPlan(side, patch, 3, width, count, layers, 4 * width)
        return VisionTransformer(plan).eval(), torch.randn(images, 3, side, side)

    def ask(network: nn.Module, inputs: torch.Tensor) -> Any:
        if asked.startswith(CHECKED):
            return check_span(network, example_input=inputs).rows
        return heads(network, inputs).layers

    name = asked.removeprefix(CHECKED)
    ask(*network("small", 16))
    given = network(name, side)
    before, busy = peak_bytes(), time.process_time()
    found = ask(*given)
    assert len(found) == NETWORKS[name][2]
    assert all(layer.heads for layer in found)  # read
    worked = time.process_time() - busy
    return {"network": asked, "side": side, "processor": worked, "mebibytes": (peak_bytes() - before) / MIB}


def table_of_networks(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    cells = [[r["network"], str(r["side"]), f"{r['processor']:.0f}", f"{r['mebibytes']:.0f}"] for r in rows]
    return markdown_table(("network", "side", "processor seconds", "MiB more"), cells)


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
        measured_by = measure_network if sys.argv[1].removeprefix(CHECKED) in NETWORKS else measure
        print(json.dumps(measured_by(sys.argv[1], int(sys.argv[2]))))
    else:
        measured = [apart("spans", *case) for case in (QUICK if "--quick" in sys.argv else CASES)]
        quick = "--quick" in sys.argv
        read = [apart("spans", *each) for each in ([SMALL] if quick else READ)]
        returned = apart("spans", *(SMALL if quick else LARGEST), **RETURNED)
        read.append({**returned, "network": f"{returned['network']}, freed blocks returned"})
        print(f"{HEAD}\n\n{table(measured)}\n\n{ABOUT_NETWORKS}\n\n{table_of_networks(read)}")
