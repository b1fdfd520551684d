"""`python -m benchmarks.content [--quick]`: attention that reads content, beside the same layer without positions.

The reference has the same queries, keys, values and output, and torch's own attention without positions (q.k). Times
are of the processor, which other programs disturb less.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from benchmarks.timing import interleave
from conv2attn.layers.attention import Encoding, EngineName, MultiHeadSelfAttention
from conv2attn.report.markup import markdown_table

HEADS = 9
ALPHA = 0.05  # small enough for the features of squares in float32 on 64 x 64 tokens


@final
@dataclass(frozen=True)
class Size:
    """Tokens along a side, images, channels; whether the plain formula is timed too, and steps."""

    side: int
    batch: int
    width: int
    formula: bool = True
    step: bool = True


SIZES = (
    Size(16, 1, 64),
    Size(16, 8, 64),
    Size(32, 1, 64),
    Size(32, 8, 64, formula=False, step=False),
    Size(64, 1, 64),
    Size(64, 8, 64, formula=False, step=False),
    Size(16, 1, 400),
    Size(32, 1, 400),
)
QUICK = (Size(6, 1, 8), Size(5, 2, 8))
WANTED = {"learned q.k + q.r": "step 1.15 at 16, 400 wide", "quadratic, all four terms": "1.3"}


def layer(family: str, terms: str, size: Size, engine: EngineName) -> MultiHeadSelfAttention:
    """Nine heads of the paper's classifier: keys as wide as a token, values the tokens themselves."""
    torch.manual_seed(0)
    encoding = (
        Encoding.of("quadratic", torch.randn(HEADS, 2), ALPHA)
        if family == "quadratic"
        else Encoding.of("learned", HEADS, (size.side - 1,) * 2, size.width // 2)
    )
    made = MultiHeadSelfAttention(
        size.width, size.width, encoding, value=False, d_key=size.width, terms=terms, affine=True, engine=engine
    )
    with torch.no_grad():
        for weight in (made.query, made.position_key):
            if weight is not None:
                weight *= size.width**-0.5
        if made.position_key is not None:
            made.position_key[..., 0] /= size.side
    return made


def calls(size: Size) -> dict[str, Any]:
    """The layers by what they are, the reference first."""
    ways: dict[str, Any] = {
        "q.k alone": layer("quadratic", "qk", size, "sdpa"),
        "learned q.k + q.r": layer("learned", "qk+qr", size, "sdpa"),
        "quadratic, all four terms": layer("quadratic", "qk+qr+uk+vr", size, "sdpa"),
    }
    if size.formula:
        ways["learned q.k + q.r, dense"] = layer("learned", "qk+qr", size, "dense")
        ways["quadratic, all four terms, dense"] = layer("quadratic", "qk+qr+uk+vr", size, "dense")
    return ways


def forward(network: Any, image: Tensor) -> Callable[[], Any]:
    """The forward pass alone."""

    def run() -> None:
        with torch.no_grad():
            network(image)

    return run


def step(network: Any, image: Tensor) -> Callable[[], Any]:
    """Forward and backward pass."""

    def run() -> None:
        network.zero_grad()
        network(image).square().sum().backward()

    return run


def rows_of(size: Size, seconds: float) -> list[list[str]]:
    """A row for each layer: milliseconds of the reference's or its own passes, and multiples of the reference."""
    image, ways = torch.randn(size.batch, size.width, size.side, size.side), calls(size)
    passes = {"forward": forward, "step": step} if size.step else {"forward": forward}
    timings = {
        name: interleave({way: make(each, image) for way, each in ways.items()}, seconds, 2, time.process_time)
        for name, make in passes.items()
    }
    rows = []
    for way in ways:
        cells = [
            f"{timings[name][way].low:.3g} ({timings[name][way].best:.2f})" if name in timings else "-"
            for name in ("forward", "step")
        ]
        rows.append([str(size.side), str(size.batch), str(size.width), way, *cells, WANTED.get(way, "-")])
    return rows


def main(quick: bool = False) -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    head = ("side", "batch", "width", "scores", "forward, ms", "step, ms", "wanted")
    rows = [row for size in (QUICK if quick else SIZES) for row in rows_of(size, 0.0 if quick else 0.5)]
    print(
        "Nine heads; in brackets multiples of the same layer with q.k alone, whose attention is torch's own. `dense` "
        f"is the plain formula, without a tensor of queries x keys x width.\n\n{markdown_table(head, rows)}"
    )


if __name__ == "__main__":
    main("--quick" in sys.argv)
