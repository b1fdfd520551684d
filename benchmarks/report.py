"""The measurements as JSON-ready data and as the Markdown of README.md."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.layers import ALL_PAIRS, FAST, LARGEST_ATTENTION

WAYS = ("native", *FAST, *ALL_PAIRS)
TARGETS = {"conv": 1.05, "gather": 2.0, "separable": 3.0}


def cell(row: Mapping[str, Any], way: str) -> str:
    """Median and ratio to native, or what it would take."""
    timing = row["timings"].get(way)
    if timing is None:
        return f"not run: {row['expected_seconds'][way]:.3g} s expected"
    ratio = "" if way == "native" else f" ({timing['ratio']:.3g}x)"
    return f"{timing['median']:.3g}{ratio}"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [head, ["---"] * len(head), *rows])


def verdict(reached: bool) -> str:
    """Whether a target was met, in a word."""
    return "met" if reached else "missed"


def targets(data: Mapping[str, Any]) -> list[list[str]]:
    """Rows (target, wanted, measured, met or missed)."""
    network, soft, growth = data["network"], data["soft_layer"], data["tokens"]
    rows = []
    for way, wanted in TARGETS.items():
        ratio = network[way]["ratio"]
        rows.append([f"whole network, {way}", f"at most {wanted}x native", f"{ratio:.3f}x", verdict(ratio <= wanted)])
    rows.append(["separable, time", "50x faster than dense", f"{soft['faster']:.3g}x", verdict(soft["faster"] >= 50)])
    smaller = soft["smaller"]
    rows.append(["separable, memory", "50x smaller than unchunked", f"{smaller:.3g}x", verdict(smaller >= 50)])
    rows.append(["separable, tokens", "linear (exponent at most 1.1)", f"{growth['exponent']:.3f}"])
    rows[-1].append(verdict(growth["exponent"] <= 1.1))
    largest = max(row["mebibytes"] for row in data["stem_memory"])
    rows.append(["first layer, every engine", "under 1024 MiB", f"{largest:.0f} MiB", verdict(largest < 1024)])
    return rows


def markdown(data: Mapping[str, Any]) -> str:
    """README.md of this folder."""
    machine, sides = data["machine"], data["sides"]
    network = [
        [
            way,
            f"{t['median']:.1f}",
            f"{t['low']:.1f} to {t['high']:.1f}",
            f"{t['ratio']:.3f}",
            f"{t['best']:.3f}",
            t["rounds"],
        ]
        for way, t in data["network"].items()
    ]
    layers = [
        [row["name"], row["signature"], row["count"], *(cell(row, way) for way in WAYS)] for row in data["layers"]
    ]
    stem = [
        [row["way"], f"{row['mebibytes']:.0f}", f"{row['milliseconds']:.0f}", f"{100 * row['share']:.3g} %"]
        for row in data["stem_memory"]
    ]
    soft, growth = data["soft_layer"], data["tokens"]
    points = [[p["side"], p["tokens"], f"{p['median']:.2f}", f"{p['per_token']:.1f}"] for p in growth["points"]]
    return f"""# Speed and memory

Written by `python -m benchmarks`; the numbers with their spreads are in `results/cpu.json`. Batch 1, float32,
inference, image side {sides}, {machine["threads"]} threads, {machine["processor"]}, torch {machine["torch"]}.
Times are medians in milliseconds. The functions of a row are measured in turn, round after round. A ratio to native
is the median of the ratios of the rounds, so noise of the machine affects all functions alike. Load of the machine at
the start: {machine["load"]:.1f}.

{table(["target", "wanted", "measured", ""], targets(data))}

## Whole network: ResNet-18

{table(["way", "median", "smallest to third quartile", "ratio to native", "of the smallest", "rounds"], network)}

`separable` computes the softmax of every query and multiplies by all of its nonzero weights.

## Layers

{table(["first such layer", "convolution", "layers", *WAYS], layers)}

`dense unchunked` is the dense formula with no limit on memory. `scaled_dot_product_attention` is torch's, on as many
heads, queries and keys, with queries, keys and values as wide as the layer's input. Engines that compare all pairs are
not run where the attention takes more than {LARGEST_ATTENTION / 2**30:.0f} GiB; the expected time is the number of
scores (heads x queries x keys) times the time per score in the largest layer that was run.

## Memory

Each engine runs in its own process. The figure is the growth of the resident set during the run.

A 3x3 layer with 64 channels at side {soft["side"]}: separable {soft["separable_mebibytes"]:.1f} MiB, the dense formula
unchunked {soft["unchunked_mebibytes"]:.0f} MiB.

The first layer (49 heads; its attention would take {data["stem_attention_gibibytes"]:.3g} GiB):

{table(["engine", "MiB", "ms", "queries computed"], stem)}

For `dense` only the first chunks of queries are computed, since every chunk takes the same memory.

## Growth with the number of tokens

`separable`, a 3x3 layer with 64 channels: time grows as tokens to the power {growth["exponent"]:.3f} (least squares).

{table(["side", "tokens", "ms", "ns per token"], points)}

## Compile and export

Converted networks under `torch.compile(fullgraph=True, dynamic=True)` and `torch.export` with free batch and sides;
tests/attention/laws.py tests each line.

| engine | compiled | exported | in a graph |
| --- | --- | --- | --- |
| `conv`, `gather` | one graph for all sizes | all sizes | asserts that centres and sharpness did not change |
| `separable` | one graph for all sizes | all sizes | whole axes, no bands; asserts the same unless trained |
| `sdpa` | one graph for all sizes | up to the side where its features are accurate | asserts side and values |
| `dense` | one graph for all sizes | all sizes | all queries at once: no chunks, hence no limit on memory |
| `auto` | one graph for all sizes | all sizes | the engine chosen from the values that were read |

A layer is one node of `conv2attn.attention.tracing.symbolic_trace`. [compiled.md](compiled.md)
measures compiled and eager networks, the cost of one call, and a training step; [training.md](training.md) measures
trained heads, forward and backward.
"""
