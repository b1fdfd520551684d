"""Trained quadratic attention: nine heads of the paper's width, forward and backward, against the plain formula."""

import argparse
import json
import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import interleave
from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding, set_engine
from conv2attn.basis import cut_softmax

WIDTH, BATCH = 400, 4
SIDES = (16, 32, 64)


def layer_of(engine: str, device: str) -> MultiHeadSelfAttention:
    """Nine trained heads with centres between pixels, by one engine."""
    torch.manual_seed(0)
    centers = torch.randn(9, 2) * 2
    layer = MultiHeadSelfAttention(WIDTH, WIDTH, QuadraticEncoding(centers, 1.0), d_head=WIDTH, value=False)
    return set_engine(layer.to(device), engine, 2**33)


def plain(layer: MultiHeadSelfAttention, image: Tensor) -> Tensor:
    """The formula of the paper in five products: displacements, scores, softmax without subnormals, values, output."""
    side, device = image.shape[-1], image.device
    index = torch.arange(side, device=device)
    grid = torch.cartesian_prod(index, index).float()
    delta = grid[None] - grid[:, None]
    vectors = torch.cat([delta.square().sum(-1, keepdim=True), delta], -1)
    bias = -layer.encoding.alpha[:, None] * torch.cat(
        [torch.ones_like(layer.encoding.alpha[:, None]), -2 * layer.encoding.center], -1
    )
    attention = cut_softmax(torch.einsum("hp,qkp->hqk", bias, vectors))
    mixed = torch.einsum("hqk,bck->bhqc", attention, image.flatten(2))
    assert layer.output is not None
    assert layer.bias is not None
    result = torch.einsum("bhqc,och->bqo", mixed, layer.output) + layer.bias
    return result.mT.unflatten(2, image.shape[2:])


def step(compute: Callable[[Tensor], Tensor], image: Tensor) -> Callable[[], None]:
    """One forward and backward pass."""

    def run() -> None:
        image.grad = None
        compute(image).square().mean().backward()
        if image.device.type == "cuda":
            torch.cuda.synchronize()

    return run


def measure(side: int, seconds: float, device: str) -> dict[str, float]:
    """Median milliseconds of each way, and the engine that `auto` takes."""
    image = torch.randn(BATCH, WIDTH, side, side, device=device, requires_grad=True)
    layers = {engine: layer_of(engine, device) for engine in ("auto", "separable", "dense")}
    reference = layers["auto"]
    ways = {"plain": step(lambda x: plain(reference, x), image)}
    if side <= 32 or device == "cuda":
        ways |= {"dense": step(layers["dense"], image)}
    ways |= {name: step(layers[name], image) for name in ("separable", "auto")}
    timings = interleave(ways, seconds, 2)
    return {name: timing.median for name, timing in timings.items()}


def main() -> None:
    """Prints one JSON line per number of threads and side."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES))
    options = parser.parse_args()
    for threads in options.threads:
        torch.set_num_threads(threads)
        for side in options.sides:
            found = measure(side, options.seconds, options.device)
            best = {name: round(value, 3) for name, value in found.items()}
            ratio = round(found["plain"] / found["auto"], 2) if found["auto"] else math.nan
            print(json.dumps({"threads": threads, "side": side, **best, "plain / auto": ratio}), flush=True)


if __name__ == "__main__":
    main()
