"""Finds which token each key reads, and which query writes each token, from runs of the layer."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar, final

import torch
from torch import Tensor

from conv2attn.networks.reading.responses import NONE, SEVERAL, numbered

Key = TypeVar("Key", bound=Hashable)
FAINT = 1e-18
"""Squared changes below this share of the largest are float64 rounding."""


def changing_parts(count: int, changes: Callable[[Tensor], Mapping[Key, Tensor]]) -> dict[Key, Tensor]:
    """For each target, the number of the only part that changes it, of `count`, or NONE or SEVERAL; from two runs.

    Args:
        changes: the changes (..., width) of the targets, linear in the changes of the parts.
    """
    whole, ramped = changes(torch.ones(count).double()), changes((torch.arange(count) + 0.5).double() / count)
    parts = dict[Key, Tensor]()
    for key, change in whole.items():
        squares = change.pow(2).sum(-1)
        some = squares > FAINT * squares.max()
        parts[key] = torch.where(some, numbered(change, ramped[key], count).long(), NONE)
    return parts


@final
@dataclass(frozen=True)
class Heads:
    """The axis of heads among the leading axes `lead` of queries and keys; the other leading axes are rows."""

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
        """A tensor with `rest` axes after the leading ones, as (heads, rows, ...)."""
        width = tensor.shape[tensor.ndim - rest :]
        return tensor.reshape(*self.lead, *width).movedim(self.axis, 0).reshape(self.count, self.rows, *width)

    def joined(self, tensor: Tensor) -> Tensor:
        """A tensor (heads, rows, ...) with the leading axes of queries and keys."""
        others = self.lead[: self.axis] + self.lead[self.axis + 1 :]
        return tensor.reshape(self.count, *others, *tensor.shape[2:]).movedim(0, self.axis)


def alike(orders: Tensor) -> Tensor | None:
    """The common order of all heads (heads, ...) that read tokens; None if they differ or read several."""
    common = orders.amax(0)
    agree = bool(((orders == common) | (orders == NONE)).all()) and not bool((common == SEVERAL).any())
    return common if agree and bool((common >= 0).any()) else None


def covers(order: Tensor, count: int) -> bool:
    """Whether each of `count` numbers is in an order."""
    return len(order[order >= 0].unique()) == count


def index_in(order: Tensor, count: int) -> Tensor | None:
    """The position of each of `count` numbers in an order, NONE if absent; None if a number occurs twice."""
    (places,) = (order >= 0).nonzero(as_tuple=True)
    if len(order[places].unique()) < len(places):
        return None
    index = torch.full((count,), NONE)
    index[order[places]] = places
    return index


def as_tokens(tensor: Tensor, channels: int) -> Tensor:
    """The tokens (tokens, channels) of a tensor whose channels lie along this axis."""
    return tensor.movedim(channels, -1).flatten(0, -2)


def as_tensor(tokens: Tensor, like: Tensor, channels: int) -> Tensor:
    """Tokens (tokens, channels) in the shape of a tensor."""
    return tokens.reshape(like.movedim(channels, -1).shape).movedim(-1, channels)
