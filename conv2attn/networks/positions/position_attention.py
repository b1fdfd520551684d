"""Attention by position alone: the scores of each head on a grid, or the reason why they are not known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.theory.basis import AttentionGrid


@final
@dataclass(frozen=True, eq=False)
class PositionAttention:
    """Attention of the heads of one layer by position alone: the softmax of `scores`.

    Args:
        scores: (heads, queries, keys + extra), in float64; the queries are pixels.
        grid: the pixels.
        dtype: of the parameters.
        how: the source of the scores, and the terms held at zero.
        uncertainty: bound on the rounding error of a score in float64.
        notes: remarks for reports.
        extra: keys that are no pixels (class tokens, registers), the last columns.
    Raises:
        UsageError: the scores are not those of the grid (C2A503).
    """

    scores: Tensor
    grid: AttentionGrid
    dtype: torch.dtype
    how: str
    uncertainty: float = 0.0
    notes: tuple[str, ...] = ()
    extra: int = 0

    def __post_init__(self) -> None:
        queries, keys = self.grid.shape
        if self.scores.shape[1:] != (queries, keys + self.extra):
            actual, expected = tuple(self.scores.shape[1:]), (queries, keys + self.extra)
            raise UsageError(
                "C2A503",
                f"scores of {actual} (queries, keys) are not those of a grid with {expected}",
                "Pass the --grid that the scores are of.",
            )

    @property
    def attention(self) -> Tensor:
        """The probabilities, (heads, queries, keys + extra), in float64."""
        return torch.softmax(self.scores, -1)


@final
@dataclass(frozen=True)
class Unread:
    """A layer whose attention was not determined, and the reason."""

    reason: str


def leading_note(tokens: int) -> tuple[str, ...]:
    """Note on leading tokens that are no pixels, if there are any."""
    return (f"leading tokens, of whose keys no target asks anything: {tokens}",) if tokens else ()


def windows_note(sides: Sequence[int] | None = None, placed: bool = False) -> str:
    """The note on a layer that attends in windows, with their sides if they are known."""
    of_sides = f" of {'x'.join(map(str, sides))}" if sides else ""
    where = (
        "measured where its windows stand in the image; check-span judges one window"
        if placed
        else "judged inside one, and at its borders, beyond which no head reads"
    )
    return f"in windows{of_sides}: {where}"
