"""The heads of a start, the runs that set and measure them layer by layer, and the report.

For two layers of two heads on 7x7 tokens: `offsets={"layers.0.self_attn": [(0, 1), (-1, 0)], "layers.1.self_attn":
[(1, 1), (0, 0)]}, sides=(7, 7), alpha=2.0`. The first head begins at the token to the right of its query.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.capture import capture
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.trial import Trial
from conv2attn.report import Document, Notes, Report, Table, counted, document


@final
@dataclass(frozen=True)
class StartedHead:
    """One head that begins as a soft shift.

    Args:
        offset: key - query that it attends to most.
        alpha: its sharpness, in inverse squared tokens.
        mass: its attention at the offset on tokens of noise, averaged over images and queries whose target is on the
            grid.
        quadratic: the mass of the quadratic head of this sharpness.
        bound: the largest deficit of such a query's attention from the quadratic head's, from the formula of the cosine
            kernel and the norms of the noise tokens.
        peaked: the share of such queries that attend most to the token at the offset.
    """

    layer: str
    head: int
    offset: tuple[int, ...]
    alpha: float
    mass: float
    quadratic: float
    bound: float
    peaked: float


@final
@dataclass(frozen=True, repr=False)
class Start(Report):
    """The result of `start_at_convolution`.

    Args:
        heads: a row for each head.
        channels: number of position channels, the first of the width; 0 if positions were kept or tables of biases set.
        frequencies: frequencies per axis.
        silenced: modules whose output in the position channels is zero at the start.
        notes: unchanged parts, with reasons; offsets that kept positions cannot distinguish.
    """

    schema: ClassVar[str] = "conv2attn.start/1"
    heads: tuple[StartedHead, ...]
    channels: int = 0
    frequencies: int = 0
    silenced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@document.register
def _(start: Start, verbose: bool = False) -> Document:
    """A row for each head."""
    layers = len({head.layer for head in start.heads})
    summary = f"{counted(len(start.heads), 'head')} in {counted(layers, 'layer')} begin as shifts"
    columns = ("layer", "head", "offset", "alpha", "mass", "quadratic", "bound")
    rows = tuple(
        (h.layer, h.head, ",".join(map(str, h.offset)), h.alpha, h.mass, h.quadratic, h.bound) for h in start.heads
    )
    waves = f"{start.channels} position channels, which begin without content: {start.frequencies} waves per axis"
    blurred = [head.peaked for head in start.heads if head.peaked < 1]
    elsewhere = (
        f"at {counted(len(blurred), 'head')} up to {1 - min(blurred, default=1.0):.0%} of the queries attend more to "
        "another token than the one at the offset"
        + ("; more waves help: wider heads and a larger alpha" if start.channels else "")
    )
    notes = (*start.notes, *([elsewhere] if blurred else []), *([waves] if start.channels else []))
    return Document((summary,), (Table(columns, rows), *([Notes(notes)] if notes else [])))


Offset = tuple[int, ...]
KernelSize = int | Literal["image"]
ROUNDING = 1e-3
"""Largest rounding error of one attention weight on noise, in float32: scores of size 50 have an error of 1e-5 each."""


@final
@dataclass(frozen=True, eq=False)
class Shifts:
    """Heads to begin as shifts.

    Args:
        trial: the network, its layers and its inputs.
        offsets: offsets of the heads of each layer.
        sides: sides of the grid of tokens, or of a window.
        alpha: sharpness, in inverse squared tokens.
    """

    trial: Trial
    offsets: Mapping[str, Sequence[Offset]]
    sides: tuple[int, ...]
    alpha: float

    @staticmethod
    def dealt(trial: Trial, sides: tuple[int, ...], kernel_size: KernelSize, alpha: float, seed: int) -> "Shifts":
        """Heads of the offsets of a kernel: the least used ones first, in random order among equals.

        Raises:
            UsageError: the kernel does not fit the grid (C2A001, C2A006).
        """
        offsets = kernel_offsets(kernel_size, sides)
        generator, times = torch.Generator().manual_seed(seed), dict.fromkeys(offsets, 0)
        chosen = dict[str, list[Offset]]()
        for name, layer in trial.layers.items():
            while len(mine := chosen.setdefault(name, [])) < layer.heads:
                order = [offsets[index] for index in torch.randperm(len(offsets), generator=generator, device="cpu")]
                for offset in sorted(order, key=times.__getitem__)[: layer.heads - len(mine)]:
                    times[offset] += 1
                    mine.append(offset)
        return Shifts(trial, chosen, sides, alpha)

    @property
    def tokens(self) -> int:
        """Tokens on the grid."""
        return math.prod(self.sides)

    def heads(self, layer: StartLayer) -> Iterator[tuple[Offset, Tensor, Tensor]]:
        """The offset of each head of a layer, and views of its queries and keys, (width, d)."""
        queries, keys = layer.query.split(layer.width), layer.key.split(layer.width)
        return zip(self.offsets[layer.name], queries, keys, strict=True)

    def run(self, action: Callable[[StartLayer, Tensor], None]) -> None:
        """Runs the network; before each layer calls `action` with its last tokens in float64, (images, tokens, d)."""
        self.trial.run(lambda layer, tokens: action(layer, tokens[:, -self.tokens :].cpu().double()))

    def rows(
        self,
        scores: Callable[[str, Offset], Tensor] | None = None,
        leading_score: float = 0.0,
        images: int | None = None,
    ) -> tuple[StartedHead, ...]:
        """One row per head: its attention on the inputs, with the quadratic head's.

        Args:
            scores: computes the scores of a layer's head at an offset, (images or 1, queries, keys); without it the
                bound is measured.
            leading_score: score of leading tokens.
            images: number of images to use; all by default.
        Raises:
            UnsupportedError: the attention of a layer is not observed, or a head attends elsewhere than its scores
                imply (C2A604).
        """
        captured, rows = capture(self.trial.network, self.trial.inputs), list[StartedHead]()
        for name, offsets in self.offsets.items():
            maps = captured[name]
            if not isinstance(maps, Tensor) or maps.shape[1] != len(offsets) or maps.shape[-2] < self.tokens:
                shape = f"{maps.shape[1]} of {maps.shape[-2]}" if isinstance(maps, Tensor) else maps.reason
                reason = f"{name}: its attention is not one of {len(offsets)} heads of {self.tokens} queries ({shape})"
                raise UnsupportedError("C2A604", reason, "Correct its attribute num_heads, or take another network.")
            computed = maps[:images, :, -self.tokens :].cpu().double()
            leading = (max(0, maps.shape[-1] - self.tokens), 0)
            for head, offset in enumerate(offsets):
                expected = None
                if scores is not None:
                    expected = nn.functional.pad(scores(name, offset), leading, value=leading_score).softmax(-1)
                rows.append(self.row(name, head, computed[:, head], expected))
        return tuple(rows)

    def row(self, name: str, head: int, computed: Tensor, expected: Tensor | None) -> StartedHead:
        """The row of a head, from its attention as computed and by formula, (images or 1, queries, keys).

        Raises:
            UnsupportedError: computed and expected attention differ by more than rounding (C2A604).
        """
        offset, target = self.offsets[name][head], computed if expected is None else expected
        if target.shape[1:] != computed.shape[1:] or not (computed - target).abs().max() <= ROUNDING:
            reason = f"{name}: head {head} attends elsewhere than its queries and keys imply"
            remedy = "Layers that turn or norm queries and keys, or mix heads, are not covered."
            raise UnsupportedError("C2A604", reason, remedy)
        mass, least, largest, quadratic = (
            kernel.attention_at_offset(attention[..., -self.tokens :], self.sides, offset)
            for attention in (
                computed,
                target,
                computed.amax(-1, keepdim=True).expand_as(computed),
                kernel.quadratic(self.sides, offset, self.alpha).softmax(-1),
            )
        )
        bound = float((quadratic - least).max().clamp(min=0)) + (0.0 if expected is None else ROUNDING)
        peaked = float((mass == largest).double().mean())
        return StartedHead(name, head, offset, self.alpha, float(mass.mean()), float(quadratic.mean()), bound, peaked)


def kernel_offsets(kernel_size: KernelSize, sides: tuple[int, ...]) -> list[Offset]:
    """The offsets of a kernel's taps, or all between two tokens of the grid.

    Raises:
        UsageError: a size below 1, or whose taps lie off a grid with these sides (C2A001), or no size (C2A006).
    """
    if kernel_size == "image":
        return list(product(*(range(1 - side, side) for side in sides)))
    if type(kernel_size) is not int:
        reason = f"kernel_size={kernel_size!r} is not a whole number or 'image'"
        raise UsageError("C2A006", reason, "Pass a positive whole number, or 'image'.")
    most = 2 * min(sides) - 1
    if not 1 <= kernel_size <= most:
        reason = f"kernel_size={kernel_size} does not fit a grid of {'x'.join(map(str, sides))} tokens"
        raise UsageError("C2A001", reason, f"Pass a size of at least 1 and at most {most}.")
    before = (kernel_size - 1) // 2
    return list(product(range(-before, kernel_size - before), repeat=len(sides)))
