"""Training steps of trained heads, on one thread: `python -m benchmarks.training [--quick]` prints training.md.

Every time is of the processor, since other programs share the machine; each is the smallest of the rounds.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import torch
from torch import Tensor, nn

import conv2attn
from benchmarks.processes import MIB, apart, peak_bytes
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention, set_engine
from conv2attn.networks.zoo import ClassifierPlan
from conv2attn.networks.zoo.classifier import ClassifierBlock
from conv2attn.report.markup import markdown_table
from conv2attn.theory.basis import cut_softmax, isotropic

EPOCH, LAYERS = 50_000, 6
WIDTH, SIDES, LIMIT = 64, (16, 32, 48, 64), 64 * MIB


def interleaved(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of the processor that each function takes, the smallest over rounds in which all take turns."""
    best = dict.fromkeys(functions, float("inf"))
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = time.process_time()
            function()
            if turn:
                best[name] = min(best[name], 1e3 * (time.process_time() - start))
    return best


def step(compute: Callable[[Tensor], Tensor], image: Tensor) -> Callable[[], None]:
    """One forward and backward pass."""

    def run() -> None:
        image.grad = None
        compute(image).square().mean().backward()

    return run


def plain(layer: MultiHeadSelfAttention, image: Tensor) -> Tensor:
    """The paper's formula in five products: displacements, scores, softmax without subnormals, values, output."""
    encoding, side = isotropic(layer.positions), image.shape[-1]
    assert encoding is not None
    assert layer.output is not None
    assert layer.bias is not None
    index = torch.arange(side)
    grid = torch.cartesian_prod(index, index).float()
    delta = grid[None] - grid[:, None]
    vectors = torch.cat([delta.square().sum(-1, keepdim=True), delta], -1)
    alpha = encoding.alpha[:, None]
    bias = -alpha * torch.cat([torch.ones_like(alpha), -2 * encoding.center], -1)
    attention = cut_softmax(torch.einsum("hp,qkp->hqk", bias, vectors))
    mixed = torch.einsum("hqk,bck->bhqc", attention, image.flatten(2))
    result = torch.einsum("bhqc,och->bqo", mixed, layer.output) + layer.bias
    return result.mT.unflatten(2, image.shape[2:])


class PlainAttention(nn.Module):
    """The layer by the plain formula."""

    def __init__(self, layer: MultiHeadSelfAttention):
        super().__init__()
        self.layer = layer

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, *sides) to the same."""
        return plain(self.layer, image)


def networks(rounds: int, cases: Mapping[int, int]) -> str:
    """A block of the paper's network by the plain formula and by the engine that `auto` takes; batches by side."""
    rows = []
    for side, batch in cases.items():
        torch.manual_seed(0)
        blocks = [ClassifierBlock(ClassifierPlan(side=2 * side), 9) for _ in range(2)]
        blocks[1].load_state_dict(blocks[0].state_dict())
        image = torch.randn(batch, 400, side, side, requires_grad=True)
        torch.testing.assert_close(plain(blocks[0].attention, image), blocks[0].attention(image), rtol=1e-3, atol=1e-4)
        engine = blocks[0].attention.which_engine(image)
        blocks[1].attention = PlainAttention(blocks[1].attention)
        found = interleaved({n: step(b, image) for n, b in zip(("auto", "plain"), blocks, strict=True)}, rounds)
        hours = {n: ms * LAYERS * EPOCH / batch / 3.6e6 for n, ms in found.items()}
        times = [f"{found[n] / batch:.0f}" for n in ("plain", "auto")]
        ratio = f"{found['plain'] / found['auto']:.2f}x"
        rows.append([f"{side}x{side}", batch, *times, engine, ratio, *(f"{hours[n]:.1f}" for n in ("plain", "auto"))])
    header = ("tokens", "batch", "plain, ms", "ours, ms", "engine", "faster", "epoch, plain, h", "epoch, ours, h")
    return markdown_table(header, rows)


def trained_heads(kind: str) -> MultiHeadSelfAttention:
    """Nine trained heads: quadratic by dense, or generalised by the engine that `auto` takes, under `LIMIT`."""
    torch.manual_seed(0)
    centers, root = torch.randn(9, 2) * 2, torch.eye(2) + 0.1 * torch.randn(9, 2, 2)
    encoding = (
        Encoding.of("quadratic", centers, 0.5) if kind == "quadratic" else Encoding.of("generalised", centers, root)
    )
    layer = MultiHeadSelfAttention(WIDTH, WIDTH, encoding, d_head=WIDTH, value=False)
    return set_engine(layer, "dense" if kind == "quadratic" else "auto", LIMIT)


def growth(kind: str, side: int) -> dict[str, Any]:
    """Milliseconds of a step, MiB by which the process grew, and the engine; in this process."""
    torch.set_num_threads(1)
    layer = trained_heads(kind)
    step(layer, torch.randn(1, WIDTH, 8, 8, requires_grad=True))()
    image, before = torch.randn(1, WIDTH, side, side, requires_grad=True), peak_bytes()
    engine = layer.which_engine(image) if layer.engine == "auto" else layer.engine
    run = step(layer, image)
    run()  # what is imported at the first recomputation is not to be timed
    start = time.process_time()
    run()
    elapsed = time.process_time() - start
    return {"ms": 1e3 * elapsed, "mebibytes": (peak_bytes() - before) / MIB, "engine": engine}


def generalised(sides: tuple[int, ...]) -> str:
    """Generalised heads beside quadratic ones by dense, each in a process of its own."""
    rows = []
    for side in sides:
        row: list[str | int] = [side**2]
        for kind in ("quadratic", "generalised"):
            found = apart("training", "--growth", kind, side)
            row += [f"{found['ms']:.0f}", f"{found['mebibytes']:.0f}"]
        rows.append([*row, found["engine"]])
    return markdown_table(("tokens", "quadratic, ms", "MiB", "generalised, ms", "MiB", "engine"), rows)


def silent(rounds: int, cases: tuple[tuple[int, int], ...]) -> str:
    """A step of a 3x3 layer on 16x16 tokens with and without silent content, by dense."""
    rows = []
    for channels, batch in cases:
        torch.manual_seed(0)
        conv, image = nn.Conv2d(channels, channels, 3, padding=1), torch.randn(batch, channels, 16, 16)
        image.requires_grad_()
        layers = {c: conv2attn.convert(conv, trainable=True, content=c, alpha=5.0) for c in ("none", "silent")}
        found = interleaved({c: step(set_engine(layer, "dense"), image) for c, layer in layers.items()}, rounds)
        rows.append(
            [channels, batch, *(f"{ms:.1f}" for ms in found.values()), f"{found['silent'] / found['none']:.2f}x"]
        )
    return markdown_table(("channels", "batch", "without, ms", "with, ms", "longer"), rows)


TEXT = """Forward and backward, float32, milliseconds of the processor.

## The paper's network

One of its six blocks (width 400, nine quadratic heads) per image, against the same block by the formula of the paper in
five products, subnormal weights cut in both. An epoch is 50,000 images and six blocks, scaled from this.

N tokens take `9 N (400 N + 400^2)` multiply-adds by the plain formula: mixing tokens, and the product with the output
weights. That product remains whatever mixes the tokens, so that at equal speed of products nothing is faster by more
than `1 + N / 400`: 1.64x, 3.56x and 11.2x at sides of 16, 32 and 64. Wanted were 1.2x, 6x and 20x: the last two exceed
that bound.

{networks}

## Generalised heads

Nine heads with full covariances beside as many quadratic ones by `dense`: 64 channels, one image, a memory limit of
64 MiB; MiB by which the process grew. Queries are taken in boxes of 8x8 that read only the keys with weight: beyond the
reach of a head, some 12 pixels here, time grows like the tokens.

{generalised}

## Silent content

A 3x3 layer on 16x16 tokens, by `dense`. Attention that depends on the content is one softmax for each image, and
without content one for the whole batch: hence the growth with the batch.

{silent}
"""


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: whether it runs, not how fast.")
@click.option("--growth", "asked", nargs=2, hidden=True)
def main(quick: bool, asked: tuple[str, str] | None) -> None:
    """Training steps, timed."""
    if asked:
        click.echo(json.dumps(growth(asked[0], int(asked[1]))))
        return
    torch.set_num_threads(1)
    rounds = 1 if quick else 3
    text = TEXT.format(
        networks=networks(rounds, {4: 1} if quick else {16: 20, 32: 4, 64: 1}),
        generalised=generalised(SIDES[:1] if quick else SIDES),
        silent=silent(rounds, ((8, 1),) if quick else ((32, 1), (32, 8), (64, 4), (128, 1), (128, 8))),
    )
    click.echo(text, nl=False)


if __name__ == "__main__":
    main()
