"""One attention as seen in a run of a network, and the rules that replace it."""

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
    """The rule that sets everything multiplied by attention to zero, except for given attention in some calls."""

    passing: Mapping[tuple[str, int], Tensor] = field(default_factory=dict)

    def __call__(self, name: str, attention: Tensor, number: int = 0) -> Tensor:
        """The attention to use in this call of a layer: the given one if its shape fits, otherwise zeros."""
        passed = self.passing.get((name, number))
        return passed if passed is not None and passed.shape == attention.shape else torch.zeros_like(attention)


@final
@dataclass(eq=False)
class Attended:
    """One attention of one call of a module: its weights, and the tensors that they were computed from.

    `query`, `key` and `value` are (..., tokens, width), or None if they were not observed. `scores` maps the number,
    within the run, of each product of queries and keys in its scores to whether the product is transposed. `softmaxes`
    are the numbers of the softmaxes that it was computed from; `turned` says whether their columns are queries. `maps`
    are the shapes of all feature maps computed before it in the run. `multiplies` says that it was observed to multiply
    values, `columns` that it is a softmax over queries that was not. `own` is the network's attention, whatever the
    rule returns.
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
        """Its name, and its number among the run's attentions of this name."""
        return self.name, self.number


@final
@dataclass(eq=False)
class Running:
    """A running module: how often it has attended in this call, and the first tensor of its arguments."""

    module: nn.Module
    times: int
    first: Tensor | None


@final
@dataclass(frozen=True, eq=False)
class Opened:
    """A softmax whose product with values is still to come, and the modules that ran at the time, outermost first."""

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
    """The module that attends: the innermost running module that is not an nn.Softmax."""
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
    # For a softmax over columns, later steps (shares over keys, dropout, a mask) leave the weights nearer to the
    # softmax than to its transpose.
    return float((weights.mT * attention).sum()) > float((weights * attention).sum())
