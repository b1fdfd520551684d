"""Where two outputs differ most."""

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equivalence.outputs import leaves, other_kind, wide


@final
@dataclass(frozen=True)
class Gap:
    """Where two outputs differ most: the path to the tensor, the place in it, both numbers, and how many are off."""

    output: str
    place: tuple[int, ...]
    original: float
    converted: float
    count: int


def widest_gap(first: Any, second: Any, limit: float) -> Gap | None:
    """Where two outputs differ most, and how many numbers do by more than `limit`.

    None where they are of other kinds, or where the first holds no finite number.
    """
    ours, theirs = dict(leaves(first)), dict(leaves(second))
    if list(ours) != list(theirs) or any(other_kind(ours[where], theirs[where]) for where in ours):
        return None
    gaps = {where: gap(ours[where], theirs[where]) for where in ours if ours[where].numel()}
    where = max(gaps, key=lambda each: gaps[each].max().item(), default="")
    if not where or gaps[where].max() < 0:
        return None
    place = tuple(int(i) for i in torch.unravel_index(gaps[where].argmax(), gaps[where].shape))
    original, converted = (parts(side[where])[place].item() for side in (ours, theirs))
    count = sum(int((each > limit).any(-1).sum()) for each in gaps.values())
    return Gap(where, place[:-1], original, converted, count)


def most_different(first: Any, second: Any, count: int) -> list[int]:
    """The numbers of `count` images, those first whose outputs differ most, as far as these come one an image."""
    ours, theirs = dict(leaves(first)), dict(leaves(second))
    most = torch.zeros(count)
    for where in ours.keys() & theirs.keys():
        alike = not other_kind(ours[where], theirs[where])
        if alike and ours[where].numel() and ours[where].shape[:1] == (count,):
            most = most.maximum(gap(ours[where], theirs[where]).flatten(1).amax(1).cpu())
    return sorted(range(count), key=lambda number: -most[number].item())


def gap(first: Tensor, second: Tensor) -> Tensor:
    """|second - first| of two tensors of one kind: infinite where only the second is not finite, -1 where the first is
    not; for the real and the imaginary part apart, along one more axis."""
    ours, theirs = parts(first), parts(second)
    return (theirs - ours).abs().nan_to_num(math.inf, math.inf).masked_fill(~ours.isfinite(), -1.0)


def parts(tensor: Tensor) -> Tensor:
    """The numbers of a tensor with 53 bits, real and imaginary part along one more axis."""
    return torch.view_as_real(wide(tensor)) if tensor.is_complex() else wide(tensor)[..., None]
