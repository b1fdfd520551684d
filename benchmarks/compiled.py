"""A converted ResNet-18, eager and compiled, against the native network; the cost of a call; a training step."""

import argparse
import copy
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.layers import network, on
from benchmarks.timing import Timing, interleave
from conv2attn.attention import set_engine
from conv2attn.models import attention_layers, convert

ALPHAS = (1.0, 5.0, 46.0)


def finished(function: Callable[[], Any], device: str) -> Callable[[], None]:
    """`function`, and on an accelerator the wait for its end."""

    def run() -> None:
        function()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def converted(model: nn.Module, engine: str, alpha: float | None = None) -> nn.Module:
    """The network as attention by one engine, at another sharpness if one is given."""
    attention = convert(model)
    for layer in attention_layers(attention).values() if alpha else ():
        layer.encoding.alpha.data.fill_(alpha)
    return set_engine(attention, engine)


def ratios(timings: dict[str, Timing]) -> dict[str, Any]:
    """Milliseconds of the reference, and the ratios of all others to it."""
    names = list(timings)
    return {names[0]: round(timings[names[0]].median, 3)} | {n: round(timings[n].ratio, 3) for n in names[1:]}


def eager(model: nn.Module, image: Tensor, seconds: float, device: str) -> dict[str, Any]:
    """Ratios of eager engines to the eager native network."""
    ways = {"native": model} | {engine: converted(model, engine) for engine in ("conv", "gather", "separable", "auto")}
    ways |= {f"separable, alpha {alpha:g}": converted(model, "separable", alpha) for alpha in ALPHAS}
    with torch.inference_mode():
        return ratios(interleave({k: finished(on(v, image), device) for k, v in ways.items()}, seconds, 3))


def compiled(model: nn.Module, image: Tensor, seconds: float, device: str) -> dict[str, Any]:
    """Ratios of compiled engines to the compiled native network."""
    ways = {"native": model} | {engine: converted(model, engine) for engine in ("conv", "gather", "separable")}
    with torch.inference_mode():
        functions = {k: finished(on(torch.compile(v, fullgraph=True), image), device) for k, v in ways.items()}
        return ratios(interleave(functions, seconds, 3))


def call_overhead(seconds: float, device: str) -> dict[str, float]:
    """Microseconds that a converted layer takes beyond nn.Conv2d on an image of four pixels a side."""
    conv = nn.Conv2d(4, 4, 3, padding=1).to(device)
    image, attention = torch.randn(1, 4, 4, 4, device=device), converted(conv, "conv")
    with torch.inference_mode():
        timings = interleave({"native": on(conv, image), "conv": on(attention, image)}, seconds, 1000)
    return {name: round(1e3 * timing.low, 1) for name, timing in timings.items()}


def training_step(seconds: float, device: str) -> dict[str, Any]:
    """Ratio of a step of the trainable conversion of ResNet-18 at alpha 5 to a native one: batch 4, 64x64."""
    model, _ = network(64)
    model, image = model.to(device).train(), torch.randn(4, 3, 64, 64, device=device)
    attention = convert(copy.deepcopy(model), trainable=True, alpha=5.0).train()

    def step(module: nn.Module) -> Callable[[], None]:
        def run() -> None:
            module.zero_grad()
            module(image).square().mean().backward()

        return finished(run, device)

    return ratios(interleave({"native": step(model), "auto": step(attention)}, seconds, 2))


def main() -> None:
    """Prints one JSON line per table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", type=int, default=224)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, image = network(options.side)
    model, image = model.to(options.device), image.to(options.device)
    arguments = (options.seconds, options.device)
    for name, table in (
        ("call", lambda: call_overhead(*arguments)),
        ("training step", lambda: training_step(*arguments)),
        ("eager", lambda: eager(model, image, *arguments)),
        ("compiled", lambda: compiled(model, image, *arguments)),
    ):
        print(json.dumps({"table": name, "threads": options.threads, "device": options.device, **table()}), flush=True)


if __name__ == "__main__":
    main()
