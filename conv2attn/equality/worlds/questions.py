"""Arguments of an oracle, and the search for the same tensor among those of the first network."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from conv2attn.equality.worlds.units import LIMIT, deviations, nearest

MATCHED = 0.9  # above this share of matching numbers, the rest is looked up number by number
SAMPLE = 999  # numbers that distinguish most tensors, at a hundredth of the cost


@final
@dataclass(frozen=True, eq=False)
class Question:
    """The arguments of an oracle in one call.

    `keys` and `squares` are (worlds, n): the numbers, and the mean squares of their changes under shaking. The results
    of exp are positive, and zero for arguments near the number `positive`. `results` are the kept results.
    """

    operator: str
    keys: Tensor
    squares: Tensor
    positive: float | None = None
    results: Any = None

    @cached_property
    def masked(self) -> Tensor | None:
        """(worlds, n) the arguments whose result is zero, if any."""
        masked = self.keys == self.positive if self.positive else None
        return masked if masked is not None and bool(masked.any()) else None

    @cached_property
    def lively(self) -> Tensor:
        """(n,) the numbers that are unmasked in every world."""
        return torch.ones(self.keys.shape[1], dtype=torch.bool) if self.masked is None else ~self.masked.all(0)

    @cached_property
    def sample(self) -> Tensor:
        """The indices of the first unmasked numbers."""
        return torch.nonzero(self.lively).flatten()[:SAMPLE]


class Match(NamedTuple):
    """The number of a tensor of the first network, and each number's distance in units.

    `order` are the indices of the second network's numbers in it, if they are in another order.
    """

    number: int
    units: Tensor
    order: Tensor | None = None


def match_in_order(question: Question, tensors: Sequence[Question], turn: int, whole: bool) -> Match | None:
    """The first tensor, from number `turn` on, with the question's numbers in order: all if `whole`, else most."""
    for number in (*range(turn, len(tensors)), *range(turn)):
        if not lies_alike(question, tensors[number]):
            continue
        units = deviations(tensors[number].keys, tensors[number].squares, question.keys, question.squares)
        hit, lively = units <= LIMIT, question.lively
        if bool(hit.all()) if whole else int((hit & lively).sum()) > MATCHED * int(lively.sum()):
            return Match(number, units)
    return None


def lies_alike(question: Question, other: Question) -> bool:
    """Whether most of a sample of the unmasked numbers agree element by element."""
    if other.keys.shape != question.keys.shape:
        return False
    few = [t[:, question.sample] for each in (other, question) for t in (each.keys, each.squares)]
    return not bool(deviations(*few).median() > LIMIT)


def match_in_another_order(question: Question, tensors: Sequence[Question]) -> Match | None:
    """The first tensor with the question's numbers one to one, in any order, such as channels last for channels first.

    Each number is looked up by itself. Equal numbers are refused: their assignment would be ambiguous, and an unused
    number of the first network would not be noticed.
    """
    # If numbers are in order and a few differ too much, reordering cannot help.
    if any(lies_alike(question, candidate) for candidate in tensors):
        return None
    k, q, here = question.keys, question.squares.double(), torch.nonzero(question.lively).flatten()
    for number, candidate in enumerate(tensors):
        keys, squares = candidate.keys, candidate.squares.double()
        # The sums differ by less than the sum of rounding effects, unless the numbers differ.
        if keys.shape != k.shape or bool(((keys - k).sum(1).abs() > LIMIT * (squares + q).sqrt().sum(1)).any()):
            continue
        there = torch.argsort(keys.sum(0))
        if question.positive:
            there = there[(keys[:, there] != question.positive).any(0)]
        chunk = keys.T[there], squares.T[there], keys.T
        pick, units = nearest(chunk, k.T[here].contiguous(), q.T[here].contiguous()) if len(there) else (there, here)
        if len(there) == len(here) == len(pick.unique()) and bool((units <= LIMIT).all()):
            order, every = torch.zeros(len(k[0]), dtype=torch.long), torch.zeros(len(k[0]), dtype=torch.float64)
            order[here], every[here] = there[pick], units.double()
            return Match(number, every, order)
    return None
