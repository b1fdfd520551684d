"""Checks, by changes of the scores, that each attention row belongs to its own query and each column to its own key.

With attention silenced, small noise is added to the products of queries and keys. Let u be the change of the scores. To
first order, a softmax with weights a changes a row by a (u - c), where c is the mean of u weighted by a. If the noise
is multiplied by a number g per query, each row must change g times as much, whatever is computed between scores and
weights. If it is multiplied by a number f per key, a row must change by a (f u - d): two numbers per row, c and d, must
explain all of its keys.

The test is split in two if c and d do not explain a row (its heads are mixed, for example), or if its rows have weight
at two keys only, since two numbers explain two keys in any order. The inputs of each softmax must then respond to noise
on the products, and attention must respond to noise on its softmaxes. Both halves are linear, so each key responds in
proportion to its own noise, and is identified by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Attended, Running, Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import IN_MEMORY
from conv2attn.networks.reading.responses import EPSILON, Call, Stored, different_calls, sums_of_run
from conv2attn.networks.reading.watch import Marked, Softmaxed, Watch

SMALL = 1e-6
"""Size of the changes of scores: small enough that weights respond in proportion."""
GONE = 1e-6
"""Weights below this share of their former value count as zero."""
AT_ONCE = 64
"""Number of rows compared at once."""
OFF = 1e-3
"""Residuals up to this share of the largest change count as zero."""
OTHER_ROWS = "a row of its weights depends on other queries than its own"
OTHER_COLUMNS = "its columns of weights are not in the order of its keys"
FEW_KEYS = "some of its keys have weight only in rows of at most two keys, which do not identify the keys"
OTHER_WAY = "its weights come from its scores by more than a softmax, so their keys are unknown"
UNSEEN_SCORES = (
    "its queries and keys were not observed, so the order of its weights is unknown: "
    "compute scores as a product of matrices"
)
NO_ANSWER = "its weights do not respond to a change of its scores, so their keys are unknown"
NO_VALUES = (
    "no product of its softmax with values was observed, so its values are unknown: "
    "multiply values by matmul, einsum or fused attention"
)

Numbers = Mapping[int, bool]
"""By the number of a product or softmax within a run: whether its columns are queries."""
Change = Callable[[Tensor], Tensor]
"""The change added to scores or weights (..., queries, keys)."""
Use = Callable[[Attended, Running], None]


@final
@dataclass(frozen=True)
class Order:
    """By call, the `reasons` why the order of its queries and keys is unknown, and the queries of reordered `rows`.

    In `turned` calls, keys are the first factor of the scores and queries the second.
    """

    reasons: dict[Call, str] = field(default_factory=dict)
    rows: dict[Call, Tensor] = field(default_factory=dict)
    turned: set[Call] = field(default_factory=set)


def order_of(alone: Perturbed) -> Order:
    """The order of the queries and keys of all attention, measured by its scores."""
    order, unseen = Order(), set[Call]()
    reasons, rows = order.reasons, order.rows
    of_scores, of_softmaxes = dict[Call, Numbers](), dict[Call, Numbers]()

    def look(attended: Attended, _: Running) -> None:
        call = attended.call
        if not attended.multiplies:
            reasons[call] = NO_VALUES
        elif attended.scores:
            of_scores[call] = attended.scores
            of_softmaxes[call] = dict.fromkeys(attended.softmaxes, attended.turned)
        elif attended.query is None and attended.value is not None:
            unseen.add(call)

    def either_way(ask: Callable[[Mapping[Call, Numbers]], dict[Call, str]], calls: Iterable[Call]) -> dict[Call, str]:
        """The reasons why calls are out of order, with either factor of their products as the queries."""
        doubtful = ask({call: of_scores[call] for call in calls})
        others = {call: of_scores[call] for call, why in doubtful.items() if why == OTHER_ROWS}
        others = {call: {number: not way for number, way in each.items()} for call, each in others.items()}
        for call in others.keys() - ask(others).keys():
            of_scores[call] = others[call]
            order.turned.add(call)
            del doubtful[call]
        return doubtful

    weigh(alone, look)
    # The whole path from products to weights is tested first: most layers pass, and it includes every step in between.
    tested = [call for call in of_scores if call not in reasons]
    doubtful = either_way(lambda scores: out_of_order(alone, scores, rows=rows), tested)
    # Where linear layers mix the heads, the response of the whole path is a sum over heads, each with its own c and d,
    # which two numbers per row cannot explain. Each half of the path is linear, so each column responds by exactly its
    # own factor.
    halves = {call: of_softmaxes[call] for call in doubtful if of_softmaxes[call]}

    def in_front(scores: Mapping[Call, Numbers]) -> dict[Call, str]:
        return out_of_order(alone, scores, {call: halves[call] for call in scores}, front=True)

    front = either_way(in_front, halves)
    behind = out_of_order(alone, of_scores, {call: each for call, each in halves.items() if call not in front})
    for call in halves:
        doubtful[call] = front.get(call) or behind.get(call, "")
    # Sparse attention may leave weight on two keys only. With noise in place of the products, all scores are nearly
    # equal, so more keys have weight.
    few = {call: of_scores[call] for call, why in doubtful.items() if why == FEW_KEYS and call not in halves}
    doubtful |= dict.fromkeys(few, "") | out_of_order(alone, few, even=True)
    silent = unseen | {call for call, why in doubtful.items() if why == NO_ANSWER}
    answering = answering_input(alone) if silent else set[Call]()  # attention by position alone responds to neither
    for call, why in doubtful.items():
        if why and (why != NO_ANSWER or call in answering):
            reasons.setdefault(call, why)
    for call in answering & unseen:
        reasons.setdefault(call, UNSEEN_SCORES)
    return order


def out_of_order(
    alone: Perturbed,
    scores: Mapping[Call, Numbers],
    softmaxes: Mapping[Call, Numbers] | None = None,
    front: bool = False,
    even: bool = False,
    rows: dict[Call, Tensor] | None = None,
) -> dict[Call, str]:
    """The reasons why some row does not respond to noise on its query alone, or some column to noise on its key.

    Args:
        scores: by call its products of queries and keys, to which noise is added.
        softmaxes: by call its softmaxes; if passed, these calls alone are tested, by halves. In the `front` half, the
            inputs of the softmaxes must respond to noise on the products; in the other half, attention must respond to
            noise on the softmaxes.
        even: whether noise replaces the products, which makes the scores nearly equal.
        rows: receives the queries of rows in another order.
    """
    reasons, calls = dict[Call, str](), scores if softmaxes is None else softmaxes
    if not calls:
        return reasons
    of_products = {number: turned for call in calls for number, turned in scores[call].items()}
    of_softmaxes = {number: turned for each in (softmaxes or {}).values() for number, turned in each.items()}
    behind = softmaxes is not None and not front
    with SpooledTemporaryFile(IN_MEMORY) as file:
        stored = Stored(file)
        for run, change in (CHANGES | {BESIDE: noise} if behind else CHANGES).items():

            def keep(attended: Attended, _: Running, run: str = run) -> None:
                if attended.call in calls and not front:
                    stored.put(run, attended.call, attended.own.double())

            def marked(number: int, product: Tensor, run: str = run, change: Change = change) -> Tensor:
                if number not in of_products or (behind and run != BESIDE):
                    return product
                return moved(product, of_products[number], change, even)

            def softmaxed(
                number: int, scores: Tensor, result: Tensor, run: str = run, change: Change = change
            ) -> Tensor:
                if number not in of_softmaxes:
                    return result
                turned = of_softmaxes[number]
                if front:
                    # Masked keys have no weight, and their scores may be infinite.
                    weighty = torch.where(result > 0, scores, 0).double()
                    stored.put(run, number, weighty.mT if turned else weighty)
                    return result
                if run == "own":
                    stored.put("held", number, result.double())
                # Products change while softmaxes are held fixed: this shows any other path from products to weights.
                if run == BESIDE:
                    return stored.get("held", number)
                return moved(result, turned, change)

            weigh(alone, keep, marked, softmaxed)
        for call, each in calls.items():
            for key in each if front else [call]:
                answer = partial(stored.get, key=key)
                if behind and largest_change(answer("own"), answer(BESIDE)) > 0:
                    why, order = OTHER_WAY, None
                else:
                    why, order = why_not(answer)
                if order is not None and rows is not None and not why:
                    rows[call] = order
                elif order is not None:
                    why = OTHER_ROWS
                if why:
                    reasons.setdefault(call, why)
    return reasons


def moved(weights: Tensor, turned: bool, change: Change, alone: bool = False) -> Tensor:
    """Scores or weights with the change added, or the change `alone`; columns are queries if `turned`."""
    added = change(weights.mT).mT if turned else change(weights)
    return added if alone else added.add_(weights)


def why_not(answer: Callable[[str], Tensor]) -> tuple[str, Tensor | None]:
    """The reason why rows are not queries, or columns not keys; empty if they are. And the queries of reordered
    rows."""
    own, moved, by_query = answer("own"), answer("moved"), answer("by query")
    factors, rows = numbers(own.shape[-2], 5)[:, None], None
    if not largest_change(own, moved) > SMALL**2:
        return NO_ANSWER, None
    if not in_proportion(own, moved, by_query, factors):
        change = moved - own
        ratio = ((by_query - own) * change).sum(-1) / change.pow(2).sum(-1).clamp_min(1e-300)
        rows = (ratio[..., None] - factors[:, 0]).abs().argmin(-1)
        once = bool((rows.sort(-1).values == torch.arange(len(factors))).all())
        if not once or not in_proportion(own, moved, by_query, factors[rows.flatten()]):
            return OTHER_ROWS, None
    by_key = answer("by key")
    if in_proportion(own, moved, by_key, numbers(own.shape[-1], 6)):
        return "", rows
    why = why_columns(own, moved, by_key)
    return why_columns(own, moved, by_key, shares=False) if why == OTHER_COLUMNS else why, rows


def largest_change(own: Tensor, moved: Tensor) -> float:
    """The largest change of a response."""
    return max(float((one - rows).abs().max()) for rows, one in in_parts(own, moved))


def noise(weights: Tensor) -> Tensor:
    """The noise on scores or weights, (..., queries, keys)."""
    generator = torch.Generator().manual_seed(weights.numel())
    return torch.randn(weights.shape, generator=generator, device="cpu", dtype=torch.float64).mul_(SMALL)


def numbers(count: int, seed: int) -> Tensor:
    """One number per query, or per key, from 0.5 to 1.5."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), device="cpu", dtype=torch.float64) + 0.5


CHANGES: dict[str, Change] = {
    "own": lambda weights: torch.zeros(weights.shape, dtype=torch.float64),
    "moved": noise,
    "by query": lambda weights: noise(weights).mul_(numbers(weights.shape[-2], 5)[:, None]),
    "by key": lambda weights: noise(weights).mul_(numbers(weights.shape[-1], 6)),
}
"""The change added to scores or weights in each run."""
BESIDE = "beside"
"""The run in which products change while softmaxes do not."""


def in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Chunks of rows (..., keys) of each tensor, since intermediate results take many times their memory."""
    return zip(*(each.flatten(0, -2).split(AT_ONCE) for each in tensors), strict=True)


def in_proportion(own: Tensor, moved: Tensor, other: Tensor, factors: Tensor) -> bool:
    """Whether a second change is the first times a factor of each row (queries, 1), or of each column (keys).

    Rows with hardly any change are ignored; each column that is not zero must change in some row.
    """
    largest, silent = largest_change(own, moved), torch.ones(own.shape[-1]) > 0
    some = ~silent
    for at, (rows, one, by_factor) in enumerate(in_parts(own, moved, other)):
        factor = factors if factors.ndim == 1 else factors[(at * AT_ONCE + torch.arange(len(rows))) % len(factors)]
        change = one - rows
        size = change.abs().amax(-1, keepdim=True)
        wrong = (by_factor - rows - factor * change).abs() > OFF * size
        if bool((wrong & (size > OFF * largest)).any()):
            return False
        # A column that never responds could belong to any key. Only columns without weight may be silent.
        some, silent = some | (rows != 0).any(0), silent & (change.abs() <= SMALL * largest).all(0)
    return factors.ndim > 1 or not bool((some & silent).any())


def why_columns(own: Tensor, moved: Tensor, by_key: Tensor, shares: bool = True) -> str:
    """The reason why noise times a number f of each key does not change the weights by `a (f u - d)`.

    Plain noise u changed them by `a (u - c)`. The slope a is proportional to the weight, as for `shares` of a softmax,
    or constant for all non-zero weights, as for the nearest point of the simplex (sparsemax). Each key with weight must
    be in a row of at least three weights.
    """
    factors = numbers(own.shape[-1], 6)
    weighted, identified = torch.zeros(own.shape[-1]) > 0, torch.zeros(own.shape[-1]) > 0
    for rows, one, other in in_parts(own, moved, by_key):
        live = rows.abs() > GONE * rows.abs().amax(-1, keepdim=True).clamp_min(1e-300)
        slopes = rows if shares else torch.ones_like(rows)
        enough = live.sum(-1) > 2
        weighted, identified = weighted | live.any(0), identified | live[enough].any(0)
        # Divided by the slopes, the second change minus f times the first is `c f - d`: a line in f, fitted in each
        # row.
        shown = torch.where(live, (other - rows - factors * (one - rows)) / slopes, 0)[enough]
        weights = live[enough].double()
        count = weights.sum(-1, keepdim=True)
        away = (factors - (weights @ factors)[:, None] / count) * weights
        shift = (shown - shown.sum(-1, keepdim=True) / count) * weights
        slope = (shift * away).sum(-1, keepdim=True) / away.pow(2).sum(-1, keepdim=True)
        # In a nearly even row, c and d average the noise of many keys and are near 0. The residual is then of second
        # order, so the tolerance includes the squared changes.
        changes = (torch.where(live, (each - rows) / slopes, 0)[enough].abs().amax(-1) for each in (one, other))
        most = OFF * shown.abs().amax(-1) + sum(each**2 for each in changes)
        if bool(((shift - slope * away).abs().amax(-1) > most).any()):
            return OTHER_COLUMNS
    return "" if bool(identified.any()) and not bool((weighted & ~identified).any()) else FEW_KEYS


def weigh(alone: Perturbed, use: Use, marked: Marked | None = None, softmaxed: Softmaxed | None = None) -> None:
    """Passes each call of each attention of a silenced run to `use`."""
    alone.run(Watch(alone.network, use, Silence(), marked=marked, softmaxed=softmaxed))


def answering_input(alone: Perturbed) -> set[Call]:
    """The calls whose attention changes with the input."""
    if alone.shape is None:
        return set()
    added = EPSILON * torch.randn(
        alone.shape, generator=torch.Generator().manual_seed(5), device="cpu", dtype=torch.float64
    )
    still, moved = (sums_of_run(alone.network, partial(alone.run, noise=noise)) for noise in (None, added))
    return different_calls(still, moved, torch.equal)
