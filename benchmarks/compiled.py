"""A converted ResNet-18, eager and compiled, against the native network; the cost of a call; a training step.

`python -m benchmarks.compiled` prints compiled.md. Every time is of the processor on one thread, since other programs
share the machine; a ratio is the median of the ratios round by round.
"""

import copy
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import torch
from torch import Tensor, nn

from benchmarks.layers import network, on
from benchmarks.timing import Timing, interleave
from conv2attn.attention import set_engine
from conv2attn.models import attention_layers, convert
from conv2attn.report.markup import markdown_table

ALPHAS = (1.0, 5.0, 46.0)
EAGER = ("conv", "gather", "separable")
COMPILED = ("conv", "gather")


def converted(model: nn.Module, engine: str, alpha: float | None = None) -> nn.Module:
    """The network as attention by one engine, at another sharpness if one is given."""
    attention = convert(model)
    for layer in attention_layers(attention).values() if alpha else ():
        layer.encoding.alpha.data.fill_(alpha)
    return set_engine(attention, engine)


def measured(functions: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = 3) -> dict[str, Timing]:
    """Times of the processor of functions that take turns."""
    return interleave(functions, seconds, rounds, time.process_time)


def table(timings: dict[str, Timing]) -> str:
    """Milliseconds and ratios to the first row."""
    rows = [(name, f"{t.low:.3g}", f"{t.ratio:.2f}", f"{t.best:.2f}", t.rounds) for name, t in timings.items()]
    return markdown_table(("way", "smallest, ms", "ratio to native", "of the smallest", "rounds"), rows)


def eager(model: nn.Module, image: Tensor, seconds: float) -> str:
    """Eager engines against the eager native network."""
    ways = {"native": model} | {engine: converted(model, engine) for engine in EAGER}
    ways |= {f"separable, alpha {alpha:g}": converted(model, "separable", alpha) for alpha in ALPHAS}
    return table(measured({name: on(way, image) for name, way in ways.items()}, seconds))


def compiled(model: nn.Module, image: Tensor, seconds: float) -> str:
    """Compiled engines against the compiled native network; says on stderr when each is compiled."""
    functions, start = {}, time.monotonic()
    for name in ("native", *COMPILED):
        way = torch.compile(model if name == "native" else converted(model, name), fullgraph=True)
        functions[name] = on(way, image)
        functions[name]()
        print(f"{name} compiled after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return table(measured(functions, seconds))


def one_call(seconds: float) -> str:
    """A converted layer beside nn.Conv2d on an image of four pixels a side: what a call costs beyond its arithmetic."""
    conv = nn.Conv2d(4, 4, 3, padding=1)
    ways, image = {"native": conv, "conv": converted(conv, "conv")}, torch.randn(1, 4, 4, 4)
    return table(measured({name: on(way, image) for name, way in ways.items()}, seconds, 100))


def training_step(side: int, seconds: float) -> str:
    """A step of the trainable conversion at alpha 5 beside a native one, batch 4."""
    model, _ = network(side)
    model, image = model.train(), torch.randn(4, 3, side, side)
    attention = convert(copy.deepcopy(model), trainable=True, alpha=5.0).train()

    def step(module: nn.Module) -> Callable[[], None]:
        def run() -> None:
            module.zero_grad()
            module(image).square().mean().backward()

        return run

    return table(measured({"native": step(model), "auto": step(attention)}, seconds, 2))


TEXT = """# Calls, steps and compiled networks

Written by `python -m benchmarks.compiled`: ResNet-18 at side {side}, batch 1, float32, one thread, milliseconds of the
processor, since the machine was shared (load {load:.1f}); torch {torch}. A ratio is the median of the ratios round by
round; beside it stands that of the smallest times.

## Compiled, against the native network compiled

Wanted: `conv` at most 1.03, `gather` at most 1.4.

{compiled}

## Eager, against the native network

Wanted: `conv` at most 1.03, `gather` at most 1.5, `separable` at most 2.2 at every alpha.

{eager}

## One call

A layer of four channels on 4x4 pixels. Wanted: at most 0.015 ms over nn.Conv2d.

{call}

## A training step

A trainable conversion at alpha 5, batch 4, {training_side}x{training_side}. Wanted: at most 4.

{training}
"""


@click.command()
@click.option("--seconds", default=10.0, help="For each table.")
@click.option("--side", default=224, help="Of the image.")
def main(seconds: float, side: int) -> None:
    """Times calls, training steps, and eager and compiled networks."""
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    model, image = network(side)
    training_side = min(64, side)
    training = training_step(training_side, seconds)
    with torch.inference_mode():
        tables = {"call": one_call(seconds), "eager": eager(model, image, seconds)}
        tables["compiled"] = compiled(model, image, seconds)
    sizes = {"side": side, "training_side": training_side}
    click.echo(TEXT.format(load=load, torch=torch.__version__, training=training, **sizes, **tables), nl=False)


if __name__ == "__main__":
    main()
