"""Random functions that two networks share: arguments that are equal but for rounding get equal results."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import COPIES, SCALES, Shadow, Unfollowed, cast, scale_of
from conv2attn.equality.worlds.units import LIMIT, Chunk, deviations, mean_squares, nearest, tolerance

MATCHED = 0.9  # of a tensor's numbers, above which the rest is looked up number by number
LOUD = 1e6  # of results that only one network was given: so large that a maximum does not hide them


@dataclass(frozen=True)
class Parting:
    """The first tensor of the second network in which an oracle meets new arguments."""

    operator: str
    place: str
    new: int
    total: int
    units: float


class Oracles:
    """The table of arguments and results.

    In a quick run (two worlds) each tensor of the second network must be found whole among those of the first; in a
    full run what is not found whole is looked up number by number. The results of exp are positive, and zero for
    arguments down at the number `positive`.
    """

    def __init__(self, seed: int, dtype: torch.dtype = torch.float64, worlds: int = 6, one_sided: Tensor | None = None):
        self.worlds, self.quick, self.dtype, self.seed = worlds, worlds == len(SCALES), dtype, seed
        self.scales = SCALES * (worlds // len(SCALES))
        self.copies = [(w, w * COPIES + i) for w in range(worlds) for i in range(COPIES)]
        self.loud = one_sided  # results to be replaced by LOUD ones
        self.worst, self.parting, self.arguments = 0.0, None, 0
        self.chunks: dict[str, list[Chunk]] = {}
        self.tensors: dict[str, list[tuple[Tensor, Tensor, Any]]] = {}
        self.turn: dict[str, int] = {}
        self.results: tuple[list[Tensor], list[Tensor]] = ([], [])
        self.unmatched: dict[int, int] = {}  # of a quick run: tensors of the first network that the second has not met

    parting: Parting | None

    def fresh(self, number: int, worlds: int, count: int, positive: float | None) -> Tensor:
        """(worlds, count) random numbers, the same for the same number."""
        generator = torch.Generator().manual_seed(self.seed * 10**12 + number)
        dtype = torch.float32 if self.quick else torch.float64
        out = torch.randn(worlds, count, generator=generator, device="cpu", dtype=dtype)
        if positive:
            return out.mul_(0.3).exp_()
        return out.mul_(torch.tensor([scale_of(w) for w in range(worlds)])[:, None])

    def whole_match(self, name: str, k: Tensor, q: Tensor, lively: Tensor) -> tuple[Tensor | None, Any]:
        """The deviations from a tensor of the first network, and what is kept of its results; None if there is none."""
        tensors, turn = self.tensors.get(name, []), self.turn.get(name, 0)
        for i in (*range(turn, len(tensors)), *range(turn)):
            keys, squares, results = tensors[i]
            if keys.shape != k.shape:
                continue
            # A thousand numbers tell most tensors apart, at a hundredth of the cost.
            if not deviations(keys[:, :999], squares[:, :999], k[:, :999], q[:, :999]).median() <= LIMIT:
                continue
            units = deviations(keys, squares, k, q)
            hit = units <= LIMIT
            enough = int((hit & lively).sum()) > MATCHED * int(lively.sum())
            if bool(hit.all()) if self.quick else enough:
                self.turn[name] = i + 1
                self.worst = max(self.worst, float(units[hit].max()) if len(k[0]) else 0.0)
                return units, results
        return None, None

    def ask(self, name: str, shadow: Shadow, place: str, second: bool, positive: float | None = None) -> Shadow:
        """The results of an oracle for a shadow; without a place its results need not enter both networks."""
        shape = shadow.copies[0].shape
        copies = [t.clamp(min=positive) for t in shadow.copies] if positive else shadow.copies
        k = torch.stack([t.reshape(-1) for t in copies[::COPIES]])
        q = mean_squares(copies, self.dtype)
        if not math.isfinite(float(k.sum())) or not math.isfinite(float(q.sum())):
            raise Unfollowed(f"{name} of a number that is not finite")
        self.arguments += len(k[0])
        lively = (k != (positive or math.nan)).any(0)
        units, match = self.whole_match(name, k, q, lively) if second else (None, None)
        if self.quick:
            out = self.quick_results(name, k, q, match, place, second, positive)
        else:
            rest = torch.nonzero(lively).flatten()
            out = self.looked_up(
                name, k.T.contiguous(), q.T.contiguous(), rest, units, match, place, second, positive
            ).T
        out = out.masked_fill(k == positive, 0.0) if positive else out
        if not self.quick:
            if not second:
                self.tensors.setdefault(name, []).append((k, q, out))
            if place:
                self.results[second].append(out[0])
            if self.loud is not None:
                out = torch.where(torch.isin(out[:1], self.loud), LOUD * (1 + out.abs()), out)
        return Shadow(cast(row.reshape(shape), i, self.dtype) for row in out for i in range(COPIES))

    def quick_results(
        self, name: str, k: Tensor, q: Tensor, match: int | None, place: str, second: bool, positive: float | None
    ) -> Tensor:
        """Results for a whole tensor: those of its match, or fresh ones."""
        if second and place and match is None:
            raise Unfollowed("the second network asks a tensor that the first did not ask")
        number = self.arguments if match is None else match
        if second:
            self.unmatched.pop(number, None)
        else:
            self.tensors.setdefault(name, []).append((k, q.bfloat16(), number))
            self.unmatched.update({number: len(k[0])} if place else {})
        return self.fresh(number, len(k) if positive else len(SCALES), len(k[0]), positive)

    def looked_up(
        self,
        name: str,
        k: Tensor,
        q: Tensor,
        rest: Tensor,
        units: Tensor | None,
        match: Tensor | None,
        place: str,
        second: bool,
        positive: float | None,
    ) -> Tensor:
        """Results number by number, (n, worlds): of the matching tensor, of the table, or fresh ones that enter it."""
        out = torch.zeros_like(k)
        out[rest] = math.nan
        if match is not None and units is not None:
            hit = rest[units[rest] <= LIMIT]
            out[hit] = match.T[hit]
        for chunk in self.chunks.get(name, ()):
            left = rest[out[rest, 0].isnan()]
            if not len(left):
                break
            row, gaps = nearest(chunk, k[left], q[left])
            near = gaps <= LIMIT
            out[left[near]] = chunk[2][row[near]]
            if second and bool(near.any()):
                self.worst = max(self.worst, float(gaps[near].max()))
        new = torch.nonzero(out[:, 0].isnan()).flatten()
        if second and self.parting is None and len(new) and place:
            medians = [float(nearest(chunk, k[new], q[new])[1].median()) for chunk in self.chunks.get(name, ())]
            self.parting = Parting(name, place, len(new), len(rest), min(medians, default=math.inf))
        if len(new):
            new = new[torch.argsort(k[new].sum(1))]
            out[new] = self.entered(name, k[new], q[new], positive)
        return out

    def entered(self, name: str, k: Tensor, q: Tensor, positive: float | None) -> Tensor:
        """Fresh results for new arguments, sorted by their sums over worlds; both enter the table."""
        apart = torch.ones(len(k), dtype=torch.bool)  # neighbours in order that are one number share a result
        apart[1:] = ((k[1:] - k[:-1]).abs() > LIMIT * tolerance(q[1:], q[:-1], k[1:])).any(1)
        group = torch.cumsum(apart, 0) - 1
        fresh = self.fresh(self.arguments, len(k[0]), int(group[-1]) + 1, positive).T.contiguous()
        chunks = self.chunks.setdefault(name, [])
        chunks.append((k[apart], q[apart], fresh))
        # Few chunks, each at least twice the next: a lookup in all of them costs little more than one in the largest.
        while len(chunks) > 1 and len(chunks[-1][0]) * 2 > len(chunks[-2][0]):
            last, before = chunks.pop(), chunks.pop()
            keys, squares, results = (torch.cat(pair) for pair in zip(before, last, strict=True))
            order = torch.argsort(keys.sum(1))
            chunks.append((keys[order], squares[order], results[order]))
        return fresh[group]

    def one_sided(self) -> Tensor:
        """The results that only one of the networks got; of a quick run the sizes of such tensors of the first."""
        if self.quick:
            return torch.tensor([*self.unmatched.values()])
        empty = torch.zeros(1, dtype=torch.float64)
        one, two = (torch.cat([empty, *results]) for results in self.results)
        return torch.cat((one[~torch.isin(one, two)], two[~torch.isin(two, one)]))
