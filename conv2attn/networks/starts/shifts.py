"""The heads that a start sets, and the runs that set and measure them layer by layer.

For two layers of two heads on 7x7 tokens: `offsets={"layers.0.self_attn": [(0, 1), (-1, 0)], "layers.1.self_attn":
[(1, 1), (0, 0)]}, sides=(7, 7), alpha=2.0`. The first head begins at the token to the right of its query.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import call_network
from conv2attn.errors import UsageError
from conv2attn.networks.capture import capture
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.start_report import StartedHead, started_heads
from conv2attn.networks.starts.trace import before_layers

Offset = tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class Shifts:
    """Heads that are to begin as shifts.

    Args:
        network, inputs: what is set, and what it is run on.
        layers: by name.
        offsets: of the heads of each layer.
        sides: of the grid of tokens, or of a window.
        alpha: sharpness, in inverse squared tokens.
    """

    network: nn.Module
    inputs: Any
    layers: Mapping[str, StartLayer]
    offsets: Mapping[str, Sequence[Offset]]
    sides: tuple[int, ...]
    alpha: float

    @property
    def tokens(self) -> int:
        """Tokens on the grid."""
        return math.prod(self.sides)

    def heads(self, layer: StartLayer) -> Iterator[tuple[Offset, Tensor, Tensor]]:
        """The offset of each head of a layer, and views of its queries and keys, (width, d)."""
        queries, keys = layer.query.split(layer.width), layer.key.split(layer.width)
        return zip(self.offsets[layer.name], queries, keys, strict=True)

    def run(self, action: Callable[[StartLayer, Tensor], None]) -> None:
        """Runs the network; before each layer calls `action` with its last tokens in float64, (images, tokens, d).

        Raises:
            UsageError: they are none, or not finite (C2A009).
        """

        def before(layer: StartLayer, tokens: Tensor) -> None:
            here = tokens[:, -self.tokens :].cpu().double()
            check_finite(layer.name, here)
            action(layer, here)

        with before_layers(self.layers, before):
            call_network(self.network, self.inputs)

    def rows(
        self,
        scores: Callable[[str, Offset], Tensor] | None = None,
        leading_score: float = 0.0,
        images: int | None = None,
    ) -> tuple[StartedHead, ...]:
        """The attention of each head on the inputs, beside the quadratic head's.

        Args:
            scores: before the softmax, of a layer's head at an offset, (images or 1, queries, keys); without them the
                bound is measured.
            leading_score: that of leading tokens.
            images: how many are looked at; all by default.
        Raises:
            UnsupportedError: a head attends elsewhere than its scores say (C2A604).
        """
        attention, rows = capture(self.network, self.inputs), list[StartedHead]()
        for name, offsets in self.offsets.items():
            maps, expected = attention[name], None
            if isinstance(maps, Tensor):
                maps = maps[:images]
                leading = (max(0, maps.shape[-1] - self.tokens), 0)
                if scores is not None:
                    padded = (nn.functional.pad(scores(name, each), leading, value=leading_score) for each in offsets)
                    expected = [each.softmax(-1) for each in padded]
            rows += started_heads(name, maps, offsets, self.alpha, self.sides, expected)
        return tuple(rows)


def check_finite(name: str, tokens: Tensor) -> None:
    """Raises: UsageError: the tokens of a layer are none, or not finite (C2A009)."""
    if not tokens.numel() or not tokens.isfinite().all():
        reason = f"{name}: its tokens are not finite, or there are none"
        raise UsageError("C2A009", reason, "Pass a finite example_input.")


def dealt(offsets: Sequence[Offset], layers: Mapping[str, StartLayer], seed: int) -> dict[str, list[Offset]]:
    """The offsets of the heads of each layer: the least used ones first, in random order among equals."""
    generator, times = torch.Generator().manual_seed(seed), dict.fromkeys(offsets, 0)
    chosen = dict[str, list[Offset]]()
    for name, layer in layers.items():
        while len(mine := chosen.setdefault(name, [])) < layer.heads:
            order = [offsets[index] for index in torch.randperm(len(offsets), generator=generator)]
            for offset in sorted(order, key=times.__getitem__)[: layer.heads - len(mine)]:
                times[offset] += 1
                mine.append(offset)
    return chosen
