"""`python -m benchmarks [--quick] [--output FOLDER]`: times everything, prints the tables and writes them."""

import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn

from benchmarks.layers import ALL_PAIRS, LayerCase, layer_cases, on, time_layer, time_network
from benchmarks.memory import peak
from benchmarks.report import markdown
from benchmarks.timing import interleave

THREADS = 2


def processor() -> str:
    """The model name of the processor, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def layers(sides: int, seconds: float) -> list[dict[str, Any]]:
    """One row a kind of layer: timings, and the expected seconds of what was not run."""
    rows: list[dict[str, Any]] = []
    for case in layer_cases(sides):
        click.echo(f"{case.name} ...", err=True)
        timings = {way: asdict(timing) for way, timing in time_layer(case, seconds).items()}
        found = {"name": case.name, "signature": case.signature, "count": case.count, "scores": case.scores()}
        rows.append({**found, "timings": timings})
    largest = max((row for row in rows if "dense" in row["timings"]), key=lambda row: row["scores"])
    for row in rows:
        missing = [way for way in ALL_PAIRS if way not in row["timings"]]
        scale = row["scores"] / largest["scores"] / 1e3
        row["expected_seconds"] = {way: scale * largest["timings"][way]["median"] for way in missing}
    return rows


def growth(sides: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """How the time of separable grows with the tokens: a power fitted by least squares."""
    layer = LayerCase("", nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.empty(0), 1).attention("separable")
    functions = {str(side): on(layer, torch.randn(1, 64, side, side)) for side in sides}
    points = [
        {"side": int(side), "tokens": int(side) ** 2, "median": t.median, "per_token": 1e6 * t.median / int(side) ** 2}
        for side, t in interleave(functions, seconds, 3).items()
    ]
    tokens, times = (np.log([p[key] for p in points]) for key in ("tokens", "median"))
    return {"points": points, "exponent": float(np.polyfit(tokens, times, 1)[0])}


def soft_layer(side: int, seconds: float) -> dict[str, float]:
    """Separable against dense for a 3x3 layer with 64 channels."""
    case = LayerCase("", nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.randn(1, 64, side, side), 1)
    timings = interleave({e: on(case.attention(e), case.image) for e in ("separable", "dense")}, seconds)
    sizes = [peak("3x3", way, side, THREADS).mebibytes for way in ("separable", "dense unchunked")]
    return {
        "side": side,
        "faster": timings["dense"].ratio,
        "smaller": sizes[1] / sizes[0],
        "separable_mebibytes": sizes[0],
        "unchunked_mebibytes": sizes[1],
    }


def measure(quick: bool) -> dict[str, Any]:
    """Everything, as plain data; `quick` takes a small image and hardly any time."""
    sides, seconds = (16, 0.0) if quick else (224, 2.0)
    load = os.getloadavg()[0]
    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        timed_network = {way: asdict(timing) for way, timing in time_network(sides, 10 * seconds).items()}
        rows = layers(sides, seconds)
        soft = soft_layer(sides // 4, seconds)
        tokens = growth((16, 32) if quick else (56, 112, 224, 448), 2 * seconds)
    click.echo("memory ...", err=True)
    engines = ("conv", "gather", "separable", "sdpa", "dense")
    return {
        "schema": "conv2attn-benchmarks-1",
        "sides": sides,
        "machine": {
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "load": load,
        },
        "network": timed_network,
        "layers": rows,
        "soft_layer": soft,
        "tokens": tokens,
        "stem_memory": [{"way": way, **vars(peak("stem", way, sides, THREADS))} for way in engines],
        "stem_attention_gibibytes": 4 * rows[0]["scores"] / 2**30,
    }


@click.command()
@click.option("--quick", is_flag=True, help="A small image and few rounds: whether it runs, not how fast.")
@click.option("--output", type=click.Path(path_type=Path), default=Path(__file__).parent, help="Folder to write into.")
def main(quick: bool, output: Path) -> None:
    """Speed and memory of the engines beside native convolutions."""
    data = measure(quick)
    text = markdown(data)
    (output / "results").mkdir(parents=True, exist_ok=True)
    (output / "results" / "cpu.json").write_text(json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")
    (output / "README.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
