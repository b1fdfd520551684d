"""The record of each layer that attends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from conv2attn.arguments import Patterns, Selection
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.positions import Unread
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

GIVEN = "its weights are an argument of each call, and are not read"


@final
@dataclass(frozen=True, eq=False)
class Windows:
    """The places of the tokens of each window in the grid of the image: `places` (windows, tokens), -1 for none.

    They are those of queries and keys, or of the queries alone if the keys are at `around`, as in a halo.
    """

    places: NDArray[np.int64]
    grid: AttentionGrid
    around: NDArray[np.int64] | None = None

    @property
    def keys(self) -> NDArray[np.int64]:
        """The places of the keys of each window."""
        return self.places if self.around is None else self.around


@final
@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a layer, row by row: `sides` of the grid of its keys, and the number of `leading` tokens before it.

    With `windows`, one image is several rows of the batch, and `sides` are those of one window, or empty if its tokens
    are in no order of rows and columns. `sites` are the places of queries on the keys; None if the numbers of tokens
    determine them.
    """

    sides: Sides
    leading: int = 0
    windows: Windows | None = None
    sites: Sites | None = None


@final
@dataclass(frozen=True, eq=False)
class Read:
    """One layer: its `attention`, its `tokens`, and its `weights`, (W_out W_val of each head, bias) in float64.

    `attention` is a tensor or array (images, heads, queries, keys), a layer of this project, positions alone, or the
    reason why it is unread. `tokens` and `weights` are None if unknown. `replay` is the residual of the formula over
    the output's spread, None if nothing was replayed. `unplaced` is the reason why its tokens are unknown. `centers`
    (images, heads, queries, axes) are the centres that content moves in a quadratic head, None if it moves none.
    `reordered` says that in the run its tokens or heads are elsewhere: in another order, or heads not on the second
    axis.
    """

    name: str
    attention: Any
    tokens: Tokens | None = None
    weights: tuple[Tensor, Tensor | None] | None = None
    replay: float | None = None
    notes: tuple[str, ...] = ()
    unplaced: str = ""
    centers: Tensor | None = None
    reordered: bool = False

    @staticmethod
    def of_layer(
        name: str,
        layer: MultiHeadSelfAttention,
        attention: Any,
        tokens: Tokens | None,
        centers: Tensor | None = None,
    ) -> "Read":
        """The record of a layer of this project, with its own weights; without weights if each call gives them."""
        if layer.weights.numbers == 0:
            return Read(name, attention, tokens, notes=(GIVEN,), centers=centers)
        bias = None if layer.bias is None else layer.bias.detach().cpu().double()
        weights = (layer.weights.dense().detach().cpu().double(), bias)
        return Read(name, attention, tokens, weights, centers=centers)

    @property
    def unread(self) -> str:
        """The reason why it is unread; empty if it is read."""
        return self.attention.reason if isinstance(self.attention, Unread) else ""


@final
@dataclass(frozen=True, eq=False)
class Reads:
    """The records of the layers of one model, made one after the other in each iteration: `make` takes their names.

    `sampled` says that attention was observed in a run, whose inputs are a sample. `counts` are the numbers of queries
    and keys of layers, if known.
    """

    names: tuple[str, ...]
    make: Callable[..., Iterator[Read]]
    sampled: bool = False
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(reads: Sequence[Read], sampled: bool = False) -> "Reads":
        """The records of layers that were already read."""
        by_name: Mapping[str, Read] = {each.name: each for each in reads}
        shapes = {name: tuple(getattr(each.attention, "shape", ())) for name, each in by_name.items()}
        counts = {name: shape[-2:] for name, shape in shapes.items() if len(shape) in (3, 4)}
        return Reads(tuple(by_name), lambda names: (by_name[name] for name in names), sampled, counts)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Read]:
        return self.make(self.names)

    def only(self, patterns: Patterns) -> "Reads":
        """The layers whose names match the patterns.

        Raises:
            UsageError: a pattern fits none (C2A008).
        """
        selection = Selection.of(patterns)
        selection.check(self.names, "layer that attends")
        return replace(self, names=tuple(filter(selection.wants, self.names)))
