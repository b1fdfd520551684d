"""For each operator, a table of single arguments and their results."""

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from conv2attn.equality.worlds.units import LIMIT, Chunk, nearest, tolerance


@final
class NumberTable:
    """Chunks of arguments, (n, worlds), each sorted by the sum over worlds."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[Chunk]] = {}

    def results(self, operator: str, keys: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        """Results (NaN for new arguments), and each argument's distance from the nearest in the table, in units."""
        out, least = torch.full_like(keys, math.nan), torch.full_like(keys[:, 0], math.inf)
        for chunk in self.chunks.get(operator, ()):
            left = torch.nonzero(least > LIMIT).flatten()
            if not len(left):
                break
            row, units = nearest(chunk, keys[left], squares[left])
            near = units <= LIMIT
            out[left[near]] = chunk[2][row[near]]
            least[left] = torch.minimum(least[left], units)
        return out, least

    def entered(self, operator: str, keys: Tensor, squares: Tensor, fresh: Callable[[int], Tensor]) -> Tensor:
        """The results of new arguments, which are added to the table; neighbours within rounding share a result.

        Args:
            fresh: draws n results, (worlds, n).
        """
        order = torch.argsort(keys.sum(1))
        keys, squares = keys[order], squares[order]
        apart = torch.ones(len(keys), dtype=torch.bool)
        apart[1:] = ((keys[1:] - keys[:-1]).abs() > LIMIT * tolerance(squares[1:], squares[:-1], keys[1:])).any(1)
        group = torch.cumsum(apart, 0) - 1
        drawn = fresh(int(group[-1]) + 1).T.contiguous()
        chunks = self.chunks.setdefault(operator, [])
        chunks.append((keys[apart], squares[apart], drawn))
        # Chunks are merged so that each is at least twice as large as the next: a lookup in all of them costs little
        # more than one in the largest.
        while len(chunks) > 1 and len(chunks[-1][0]) * 2 > len(chunks[-2][0]):
            last, before = chunks.pop(), chunks.pop()
            joined = [torch.cat(pair) for pair in zip(before, last, strict=True)]
            by_sum = torch.argsort(joined[0].sum(1))
            chunks.append((joined[0][by_sum], joined[1][by_sum], joined[2][by_sum]))
        return drawn[group[torch.argsort(order)]]
