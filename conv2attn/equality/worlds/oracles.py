"""Random functions that two networks share: arguments equal up to rounding get equal results."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conv2attn.equality.worlds.number_table import NumberTable
from conv2attn.equality.worlds.questions import Match, Question, match_in_another_order, match_in_order
from conv2attn.equality.worlds.shadows import COPIES, SCALES, SHAKES, Shadow, Unfollowed, cast, repeated
from conv2attn.equality.worlds.units import LIMIT, mean_squares

LOUD = 1e6  # size of results that only one network uses: so large that a maximum does not hide them


@dataclass(frozen=True)
class Parting:
    """The first tensor that the second network passes to an oracle and the first network did not."""

    operator: str
    place: str
    new: int
    total: int
    units: float


class Oracles:
    """The tensors evaluated by the first network, and the table of single arguments and results.

    In a quick run (two worlds) each tensor of the second network must be found whole among those of the first; in a
    full run other tensors are looked up number by number.
    """

    def __init__(self, seed: int, dtype: torch.dtype = torch.float64, worlds: int = 6, one_sided: Tensor | None = None):
        self.worlds, self.quick, self.dtype, self.seed = worlds, worlds == len(SCALES), dtype, seed
        self.scales = SCALES * (worlds // len(SCALES))
        self.loud = one_sided  # results to be replaced by LOUD numbers
        self.worst, self.arguments = 0.0, [0, 0]  # arguments of each network
        self.shakes = SHAKES  # shaken copies without repetitions: see `Calls.both`
        self.parting: Parting | None = None
        self.table = NumberTable()
        self.tensors: dict[str, list[Question]] = {}
        self.turn: dict[str, int] = {}
        # The results given to each network: those of one world, or in a quick run the numbers of whole tensors.
        self.results: tuple[list[Tensor], list[Tensor]] = ([], [])

    def begin_second(self, shakes: int) -> None:
        """Starts with the second network, or starts again with more shakes."""
        self.shakes, self.turn, self.worst, self.arguments[1] = shakes, {}, 0.0, 0
        self.results[1].clear()

    def refuse_quick(self, reason: str) -> None:
        """Leaves a case to the full run, since the fewer numbers of a quick run might not show a difference."""
        if self.quick:
            raise Unfollowed(reason)

    def spread(self, worlds: Sequence[Tensor]) -> Shadow:
        """A shadow with one tensor per world, the same in all its copies."""
        # Results of oracles do not depend on how stored numbers are shaken, so the shaken copies of a quick run are one
        # tensor, and later operators compute it once. A write into one would write into all: see `write`.
        shakes = min(self.shakes, 1) if self.quick else self.shakes
        return Shadow(t for w in worlds for t in repeated([cast(w, i, self.dtype) for i in range(1 + shakes)]))

    def fresh(self, number: int, question: Question, count: int) -> Tensor:
        """(worlds, count) random results, the same for the same number."""
        generator = torch.Generator().manual_seed(self.seed * 10**12 + number)
        dtype = torch.float32 if self.quick else torch.float64
        # After a maximum there are two more worlds. Results of exp are drawn for these too, since they are divided by
        # other results there.
        worlds = len(question.keys) if question.positive else self.worlds
        out = torch.randn(worlds, count, generator=generator, device="cpu", dtype=dtype)
        return out.mul_(0.3).exp_() if question.positive else out.mul_(torch.tensor(self.scales)[:, None])

    def ask(self, operator: str, shadow: Shadow, place: str, second: bool, positive: float | None = None) -> Shadow:
        """The results of an oracle for a shadow; if `place` is empty, only one of the networks may use them."""
        shape = shadow.copies[0].shape
        copies = shadow.copies if self.shakes else shadow.copies[::COPIES]
        if positive and any(bool((t < positive).any()) for t in copies):
            copies = [t.clamp(min=positive) for t in copies]
        k = torch.stack([t.reshape(-1) for t in copies[:: COPIES if self.shakes else 1]])
        q = mean_squares(copies, self.dtype) if self.shakes else torch.zeros_like(k)
        # The distance to infinity or NaN is no number, so such arguments cannot be compared.
        if not math.isfinite(float(k.sum())) or not math.isfinite(float(q.sum())):
            raise Unfollowed(f"{operator} of a number that is not finite")
        self.arguments[second] += len(k[0])
        question, tensors = Question(operator, k, q, positive), self.tensors.setdefault(operator, [])
        match = self.whole_match(question, tensors) if second else None
        if not self.quick:
            out = self.looked_up(question, match, place, second)
        elif second and place and match is None:
            raise Unfollowed("the second network evaluates a tensor that the first did not")
        else:
            number = sum(self.arguments) if match is None else tensors[match.number].results
            out = self.fresh(number, question, len(k[0]))
            out = out if match is None or match.order is None else out[:, match.order]
        out = out if question.masked is None else out.masked_fill(question.masked, 0.0)
        if not second:
            kept = {"squares": q.bfloat16(), "results": number} if self.quick else {"results": out}
            tensors.append(replace(question, **kept))
        if place:
            self.results[second].append(torch.tensor([number]) if self.quick else out[0])
        if self.loud is not None:
            out = torch.where(torch.isin(out[:1], self.loud), LOUD * (1 + out.abs()), out)
        return self.spread([row.reshape(shape) for row in out])

    def whole_match(self, question: Question, tensors: Sequence[Question]) -> Match | None:
        """The tensor of the first network that the second evaluates again."""
        match = match_in_order(question, tensors, self.turn.get(question.operator, 0), self.quick)
        if match is None and self.quick:
            match = match_in_another_order(question, tensors)
        if match is not None:
            self.turn[question.operator] = match.number + 1
            self.note(match.units)
        return match

    def note(self, units: Tensor) -> None:
        """Keeps the largest of the deviations that count as rounding."""
        near = units.where(units <= LIMIT, 0.0)
        self.worst = max(self.worst, float(near.max()) if len(near) else 0.0)

    def looked_up(self, question: Question, match: Match | None, place: str, second: bool) -> Tensor:
        """Results number by number: from the matching tensor, from the table, or fresh ones added to it."""
        operator, k, q = question.operator, question.keys.T.contiguous(), question.squares.T.contiguous()
        out, units, left = torch.zeros_like(k), torch.zeros_like(k[:, 0]), question.lively
        total = int(left.sum())
        if match is not None:
            hit = left & (match.units <= LIMIT)
            out[hit] = self.tensors[operator][match.number].results.T[hit]
            left = left & ~hit
        out[left], units[left] = self.table.results(operator, k[left], q[left])
        new = torch.nonzero(out[:, 0].isnan()).flatten()
        if second:
            self.note(units)
            if self.parting is None and len(new) and place:
                self.parting = Parting(operator, place, len(new), total, float(units[new].median()))
        if len(new):

            def fresh(count: int) -> Tensor:
                return self.fresh(sum(self.arguments), question, count)

            out[new] = self.table.entered(operator, k[new], q[new], fresh)
        return out.T

    def one_sided(self) -> Tensor:
        """The results that only one of the networks used."""
        empty = torch.zeros(1, dtype=torch.float64)
        one, two = (torch.cat([empty, *results]) for results in self.results)
        return torch.cat((one[~torch.isin(one, two)], two[~torch.isin(two, one)]))
