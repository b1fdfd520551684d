"""What a run of a network shows of one attention, and the rules by which it is replaced."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

Rule = Callable[[str, Tensor], Tensor]
"""The attention to use in a layer, given its name and its own attention."""


@final
@dataclass(frozen=True, eq=False)
class Silence:
    """The rule by which whatever is multiplied by attention is zero, but for given attention of some calls."""

    passing: Mapping[tuple[str, int], Tensor] = field(default_factory=dict)

    def __call__(self, name: str, attention: Tensor, number: int = 0) -> Tensor:
        """What passes in this call of a layer; zero where nothing of this shape does."""
        given = self.passing.get((name, number))
        return given if given is not None and given.shape == attention.shape else torch.zeros_like(attention)


@final
@dataclass(eq=False)
class Attended:
    """One attention of one call of a module: its weights, and what they are made of.

    `query`, `key` and `value` are (..., tokens, width), None where they were not seen. `scores` are the numbers in the
    run of the products of queries and keys in its scores, and whether these are turned; `softmaxes` those of which it
    is made, which are `turned` where their columns are queries; `maps` the shapes of all feature maps in front of it in
    the run. `multiplies` says whether it was seen to multiply values, and `columns` that it is a softmax over queries
    that was not. `own` is the attention of the network, whatever the rule gives.
    """

    name: str
    attention: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    columns: bool = False
    scores: dict[int, bool] = field(default_factory=dict)
    multiplies: bool = True
    softmaxes: frozenset[int] = frozenset()
    turned: bool = False
    number: int = 0
    maps: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        self.own = self.attention

    @property
    def call(self) -> tuple[str, int]:
        """Its name, and the number in the run of attention of this name."""
        return self.name, self.number


@final
@dataclass(eq=False)
class Running:
    """A module that runs: how often it has attended in this call, and the first tensor that it was called with."""

    module: nn.Module
    times: int
    first: Tensor | None


@final
@dataclass(frozen=True, eq=False)
class Opened:
    """A softmax that waits for its product with the values, and the modules that ran then, from the outermost."""

    weights: Tensor
    running: tuple[Running, ...]
    columns: bool
    products: frozenset[int]


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """A product that may be the scores of an attention."""

    query: Tensor
    key: Tensor
    shape: tuple[int, ...]


def innermost(running: Sequence[Running]) -> Running:
    """The module that attends: the innermost of those that run, and no nn.Softmax."""
    places = (each for each in reversed(running) if not isinstance(each.module, nn.Softmax))
    return next(places, running[0])


def is_turned(attention: Tensor, opened: Opened) -> bool:
    """Whether attention is the transpose of its softmax over keys."""
    weights = opened.weights.mT if opened.columns else opened.weights
    if attention.shape[-1] != attention.shape[-2] or weights.numel() != attention.numel():
        return attention.shape[-2:] == weights.mT.shape[-2:] != weights.shape[-2:]
    weights = weights.reshape(attention.shape)
    if not opened.columns:
        return torch.equal(weights.mT, attention) and not torch.equal(weights, attention)
    # Over columns, what stands behind the softmax (shares over keys, dropout, a mask) leaves weights nearer to
    # themselves than to their transpose.
    return float((weights.mT * attention).sum()) > float((weights * attention).sum())
