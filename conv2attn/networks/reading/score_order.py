"""Whether each row of attention is of its own query, and each column of its own key: asked of the scores.

With attention silenced, a small noise is added to the products of queries and keys. With u the noise times the slopes
of the scores, and c its mean, the weights of a row change by a (u - c). The same noise times a number g of each query
must change each row g times as much, whatever is between scores and weights. Noise times a number f of each key must
change them by a (f u - d): two numbers of each row, c and d, must explain all of its keys.

Where they do not (heads are mixed, say), or where rows have weight at two keys, which c and d explain in any order, the
way is asked in two parts: what each softmax is of must answer noise on the products, and attention noise on its
softmaxes. What is linear between these answers in proportion, and tells each key by itself.
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
from conv2attn.networks.reading.responses import EPSILON, Call, Stored
from conv2attn.networks.reading.watch import Marked, Softmaxed, Watch

SMALL = 1e-6
"""Changes of scores, so small that weights answer in proportion."""
GONE = 1e-6
"""Weights below this share of what they were are none."""
AT_ONCE = 64
"""Rows that are compared at once."""
OFF = 1e-3
"""What is explained up to this share of the largest is explained."""
OTHER_ROWS = "a row of its weights is not of the query of its number alone"
OTHER_COLUMNS = "its columns of weights are not in the order of its keys"
FEW_KEYS = "some of its keys have weight in rows of two keys at most alone, which do not tell of which keys they are"
OTHER_WAY = "its weights come from its scores by more than its softmax, which does not tell of which keys they are"
UNSEEN_SCORES = (
    "its queries and keys were not seen, so that nothing tells of which its weights are: "
    "compute scores as a product of matrices"
)
NO_ANSWER = "its weights do not answer a change of its scores, so that nothing tells of which keys they are"
NO_VALUES = (
    "no product of its softmax with values was seen, so that nothing tells what it weighs: "
    "multiply values by matmul, einsum or fused attention"
)

Numbers = Mapping[int, bool]
"""The numbers in a run of products or softmaxes, and whether their columns are queries."""
Change = Callable[[Tensor], Tensor]
"""What is added to scores or weights (..., queries, keys)."""
Use = Callable[[Attended, Running], None]


@final
@dataclass(frozen=True)
class Order:
    """By call, the `reasons` why the order of its queries and keys is not known, and the queries of `rows` in another.

    In those that are `turned` keys were the first factor of the scores, and queries the second.
    """

    reasons: dict[Call, str] = field(default_factory=dict)
    rows: dict[Call, Tensor] = field(default_factory=dict)
    turned: set[Call] = field(default_factory=set)


def order_of(alone: Perturbed) -> Order:
    """What the scores say of the order of the queries and keys of all attention."""
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
        """Why calls are out of order, whichever factor of their products are the queries."""
        doubtful = ask({call: of_scores[call] for call in calls})
        others = {call: of_scores[call] for call, why in doubtful.items() if why == OTHER_ROWS}
        others = {call: {number: not way for number, way in each.items()} for call, each in others.items()}
        for call in others.keys() - ask(others).keys():
            of_scores[call] = others[call]
            order.turned.add(call)
            del doubtful[call]
        return doubtful

    weigh(alone, look)
    # The whole way is asked first, since most layers answer it, and whatever stands between is in it.
    known = [call for call in of_scores if call not in reasons]
    doubtful = either_way(lambda scores: out_of_order(alone, scores, rows=rows), known)
    # Mixed heads answer the whole way by sums over heads, each with a c of its own, and no two numbers explain these.
    # The halves are linear where heads are mixed by layers, so that each column answers by its own factor exactly.
    halves = {call: of_softmaxes[call] for call in doubtful if of_softmaxes[call]}

    def in_front(scores: Mapping[Call, Numbers]) -> dict[Call, str]:
        return out_of_order(alone, scores, {call: halves[call] for call in scores}, front=True)

    front = either_way(in_front, halves)
    behind = out_of_order(alone, of_scores, {call: each for call, each in halves.items() if call not in front})
    for call in halves:
        doubtful[call] = front.get(call) or behind.get(call, "")
    # Where weights are sparse by hand, more keys have some of equal scores.
    few = {call: of_scores[call] for call, why in doubtful.items() if why == FEW_KEYS and call not in halves}
    doubtful |= dict.fromkeys(few, "") | out_of_order(alone, few, even=True)
    silent = unseen | {call for call, why in doubtful.items() if why == NO_ANSWER}
    answering = answering_input(alone) if silent else set[Call]()  # attention by positions alone answers neither
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
    """Why not each row answers noise on its query alone, and each column noise on its key.

    Args:
        scores: by call its products of queries and keys, which noise changes.
        softmaxes: of the calls that are asked by halves: what these are of is to answer noise on products, in the
            `front` half, else attention noise on these.
        even: whether noise stands in place of products.
        rows: takes the queries of rows that are in another order.
    """
    found, calls = dict[Call, str](), scores if softmaxes is None else softmaxes
    if not calls:
        return found
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
                    # What is masked has no weight, and its scores may be infinite.
                    weighty = torch.where(result > 0, scores, 0).double()
                    stored.put(run, number, weighty.mT if turned else weighty)
                    return result
                if run == "own":
                    stored.put("held", number, result.double())
                # Products change while softmaxes are held: what these reach by another way shows.
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
                    found.setdefault(call, why)
    return found


def moved(weights: Tensor, turned: bool, change: Change, alone: bool = False) -> Tensor:
    """Scores or weights that are changed, or their change `alone`; columns are queries where they are `turned`."""
    added = change(weights.mT).mT if turned else change(weights)
    return added if alone else added.add_(weights)


def why_not(answer: Callable[[str], Tensor]) -> tuple[str, Tensor | None]:
    """Why the answers of runs are not those of rows of queries and columns of keys; the queries where out of order."""
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
    """The largest change of an answer."""
    return max(float((one - rows).abs().max()) for rows, one in in_parts(own, moved))


def noise(weights: Tensor) -> Tensor:
    """The noise on scores or weights, (..., queries, keys)."""
    generator = torch.Generator().manual_seed(weights.numel())
    return torch.randn(weights.shape, generator=generator, device="cpu", dtype=torch.float64).mul_(SMALL)


def numbers(count: int, seed: int) -> Tensor:
    """A number of each query, or of each key, from 0.5 to 1.5."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), device="cpu", dtype=torch.float64) + 0.5


CHANGES: dict[str, Change] = {
    "own": lambda weights: torch.zeros(weights.shape, dtype=torch.float64),
    "moved": noise,
    "by query": lambda weights: noise(weights).mul_(numbers(weights.shape[-2], 5)[:, None]),
    "by key": lambda weights: noise(weights).mul_(numbers(weights.shape[-1], 6)),
}
"""What is added to scores or weights in each run."""
BESIDE = "beside"
"""The run in which products change, and softmaxes do not."""


def in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some rows (..., keys) of each tensor after the others: what is made of them takes many times their memory."""
    return zip(*(each.flatten(0, -2).split(AT_ONCE) for each in tensors), strict=True)


def in_proportion(own: Tensor, moved: Tensor, other: Tensor, factors: Tensor) -> bool:
    """Whether a second change is the first times a factor of each row (queries, 1), or of each column (keys).

    Rows that hardly change tell nothing; each column that is not zero has to change somewhere.
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
        # A column that never answers could be that of any key. Only columns without weight may be silent.
        some, silent = some | (rows != 0).any(0), silent & (change.abs() <= SMALL * largest).all(0)
    return factors.ndim > 1 or not bool((some & silent).any())


def why_columns(own: Tensor, moved: Tensor, by_key: Tensor, shares: bool = True) -> str:
    """Why noise times a number of each key does not change its weights by the number: `a (f u - d)` for `a (u - c)`.

    The slope a is in proportion to a weight as of `shares` of a softmax, else the same for all that are not zero, as of
    the nearest point of the simplex (sparsemax).
    Each key that has weight must be in a row that tells: of three weights at least.
    """
    factors, some, told = numbers(own.shape[-1], 6), torch.zeros(own.shape[-1]) > 0, torch.zeros(own.shape[-1]) > 0
    for rows, one, other in in_parts(own, moved, by_key):
        live = rows.abs() > GONE * rows.abs().amax(-1, keepdim=True).clamp_min(1e-300)
        slopes = rows if shares else torch.ones_like(rows)
        enough = live.sum(-1) > 2
        some, told = some | live.any(0), told | live[enough].any(0)
        # Of the changes, as shares of the weights, `c f - d` is left in each row: a line in f.
        shown = torch.where(live, (other - rows - factors * (one - rows)) / slopes, 0)[enough]
        weights = live[enough].double()
        count = weights.sum(-1, keepdim=True)
        away = (factors - (weights @ factors)[:, None] / count) * weights
        shift = (shown - shown.sum(-1, keepdim=True) / count) * weights
        slope = (shift * away).sum(-1, keepdim=True) / away.pow(2).sum(-1, keepdim=True)
        # Where a row is nearly even, c and d are means of much noise: near 0, so that its square is seen.
        changes = (torch.where(live, (each - rows) / slopes, 0)[enough].abs().amax(-1) for each in (one, other))
        most = OFF * shown.abs().amax(-1) + sum(each**2 for each in changes)
        if bool(((shift - slope * away).abs().amax(-1) > most).any()):
            return OTHER_COLUMNS
    return "" if bool(told.any()) and not bool((some & ~told).any()) else FEW_KEYS


def weigh(alone: Perturbed, use: Use, marked: Marked | None = None, softmaxed: Softmaxed | None = None) -> None:
    """Passes on each call of each attention of a silenced run."""
    alone.run(Watch(alone.network, use, Silence(), marked=marked, softmaxed=softmaxed))


def answering_input(alone: Perturbed) -> set[Call]:
    """The calls of attention that changes with the input."""
    first, answering = dict[Call, Tensor](), set[Call]()
    if alone.shape is None:
        return answering

    def keep(attended: Attended, _: Running) -> None:
        sums = (attended.own.double() * noise(attended.own)).sum((-1, -2))
        if not torch.equal(first.setdefault(attended.call, sums), sums):
            answering.add(attended.call)

    added = EPSILON * torch.randn(
        alone.shape, generator=torch.Generator().manual_seed(5), device="cpu", dtype=torch.float64
    )
    for moved in (None, added):
        alone.run(Watch(alone.network, keep), moved)
    return answering
