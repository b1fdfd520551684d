"""Which token each key reads, and which query writes each token, asked of the run."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar, final

import torch
from torch import Tensor

Key = TypeVar("Key", bound=Hashable)
NONE, SEVERAL = -1, -2
"""In place of the number of a part: no part changes it, or more than one."""
FAINT = 1e-18
"""Squared changes below this share of the largest are rounding in float64."""
OFF = 0.01
"""What is off by this share of the distance between the numbers of two parts is off by rounding."""


def asked(count: int, changes: Callable[[Tensor], Mapping[Key, Tensor]]) -> dict[Key, Tensor]:
    """The one of `count` parts that changes each target, NONE or SEVERAL, from two runs.

    All parts change, then each a number of times as much. With d and d' the changes of a target, its part has the
    number `c = <d', d> / |d|^2`, and it is the only one if `d' - c d` is zero.

    Args:
        changes: the changes (..., width) of targets, linear in the amounts by which parts change.
    """
    whole, numbered = changes(torch.ones(count).double()), changes((torch.arange(count) + 0.5).double() / count)
    found = dict[Key, Tensor]()
    for key, change in whole.items():
        squares = change.pow(2).sum(-1)
        # If one part alone changes a target, the second change is its number times the first, so that nothing is left
        # of it.
        centre = (numbered[key] * change).sum(-1) / squares.clamp_min(1e-300)
        spread = (numbered[key] - centre[..., None] * change).pow(2).sum(-1).div(squares.clamp_min(1e-300)).sqrt()
        at = centre * count - 0.5
        alone = (spread < OFF / count) & ((at - at.round()).abs() < OFF)
        number = torch.where(alone, at.round().long(), SEVERAL)
        found[key] = torch.where(squares > FAINT * squares.max(), number, NONE)
    return found


@final
@dataclass(frozen=True)
class Heads:
    """The axis of heads among those in front of queries and keys, which are `lead`; all others are rows."""

    lead: tuple[int, ...]
    axis: int

    @property
    def count(self) -> int:
        """The number of heads."""
        return self.lead[self.axis]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(self.lead) // self.count

    def split(self, tensor: Tensor, rest: int) -> Tensor:
        """A tensor that ends in `rest` axes behind those in front, as (heads, rows, ...)."""
        behind = tensor.shape[tensor.ndim - rest :]
        return tensor.reshape(*self.lead, *behind).movedim(self.axis, 0).reshape(self.count, self.rows, *behind)

    def joined(self, tensor: Tensor) -> Tensor:
        """A tensor (heads, rows, ...) with the axes in front of queries and keys."""
        others = self.lead[: self.axis] + self.lead[self.axis + 1 :]
        return tensor.reshape(self.count, *others, *tensor.shape[2:]).movedim(0, self.axis)


def alike(orders: Tensor) -> Tensor | None:
    """The order in which all heads (heads, ...) read that read at all; None where they differ, or read several."""
    found = orders.amax(0)
    agree = bool(((orders == found) | (orders == NONE)).all()) and not bool((found == SEVERAL).any())
    return found if agree and bool((found >= 0).any()) else None


def covers(order: Tensor, count: int) -> bool:
    """Whether each of `count` numbers is in an order."""
    return len(order[order >= 0].unique()) == count


def index_in(order: Tensor, count: int) -> Tensor | None:
    """Where each of `count` numbers stands in an order, NONE where it does not; None where one stands there twice."""
    (places,) = (order >= 0).nonzero(as_tuple=True)
    if len(order[places].unique()) < len(places):
        return None
    found = torch.full((count,), NONE)
    found[order[places]] = places
    return found


def as_tokens(tensor: Tensor, channels: int) -> Tensor:
    """The tokens (tokens, channels) of a tensor whose channels lie along this axis."""
    return tensor.movedim(channels, -1).flatten(0, -2)


def as_tensor(tokens: Tensor, like: Tensor, channels: int) -> Tensor:
    """Tokens (tokens, channels) in the shape of a tensor."""
    return tokens.reshape(like.movedim(channels, -1).shape).movedim(-1, channels)
