"""Whether each row of attention is of its own query, and each column of its own key: asked of the scores.

With attention silenced, a small noise is added to the products of queries and keys. With u the noise times the slopes
of the scores, and c its mean, the weights of a row change by a (u - c). The same noise times a number g of each query
must change each row g times as much, whatever is between scores and weights. Noise times a number f of each key must
change them by a (f u - d): two numbers of each row, c and d, must explain all of its keys.

Where they do not (heads are mixed behind the softmax, say), or are too few, scores of the keys whose number has a given
bit are lowered until their weights vanish: noise then moves all of these by one factor. Scores of such queries are
drawn anew.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from tempfile import SpooledTemporaryFile

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Attended, Running, Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import EPSILON, IN_MEMORY
from conv2attn.networks.reading.responses import Stored
from conv2attn.networks.reading.trails import shares
from conv2attn.networks.reading.watch import Watch

SMALL, LARGE = 1e-6, 1e4
"""Changes of scores: so small that weights answer in proportion, and so large that they vanish."""
GONE = 1e-6
"""Weights below this share of what they were have vanished."""
AT_ONCE = 64
"""Rows that are compared at once."""
OFF = 1e-3
"""What is explained up to this share of the largest is explained."""
OTHER_ROWS = "a row of its weights is not of the query of its number alone"
OTHER_COLUMNS = "its columns of weights are not in the order of its keys"
NO_SHARES = "its weights are no shares, as where heads are mixed, and their columns do not tell of which keys they are"
UNSEEN_SCORES = (
    "its queries and keys were not seen, so that nothing tells of which its weights are: "
    "compute scores as a product of matrices"
)
NO_ANSWER = "its weights do not answer a change of its scores, so that nothing tells of which keys they are"
NO_VALUES = (
    "no product of its softmax with values was seen, so that nothing tells what it weighs: "
    "multiply values by matmul, einsum or fused attention"
)

Call = tuple[str, int]
"""The name of an attention, and the number of its call."""
Change = Callable[[int, int], Tensor]
"""What is added to the scores of so many queries and keys."""
Use = Callable[[Call, Attended], None]


def unordered(alone: Perturbed) -> dict[str, str]:
    """The reasons why the order of the queries and keys of attention is not known, by its name."""
    reasons, unseen = dict[str, str](), set[str]()
    of_scores = dict[Call, dict[int, bool]]()
    changes: dict[str, Change | None] = {
        "own": None,
        "moved": noise,
        "by query": lambda queries, keys: noise(queries, keys) * numbers(queries, 5)[:, None],
        "by key": lambda queries, keys: noise(queries, keys) * numbers(keys, 6),
    }
    doubtful = set[Call]()
    with SpooledTemporaryFile(IN_MEMORY) as file:
        stored = Stored(file)

        def keep(call: Call, attended: Attended, run: str) -> None:
            if call in of_scores and call[0] not in reasons:
                stored.put(run, (f"{call[0]} {call[1]}", run), attended.own.double())

        def look(call: Call, attended: Attended) -> None:
            if not attended.multiplies:
                reasons[call[0]] = NO_VALUES
            elif attended.scores:
                of_scores[call] = attended.scores
            elif attended.query is None and attended.value is not None:
                unseen.add(call[0])
            keep(call, attended, "own")

        weigh(alone, None, {}, look)
        if unseen:
            reasons |= dict.fromkeys(answering_input(alone) & unseen, UNSEEN_SCORES)
        scores = {number: turned for each in of_scores.values() for number, turned in each.items()}
        if not scores:
            return reasons
        for run, change in changes.items():
            if change is not None:
                weigh(alone, change, scores, partial(keep, run=run))
        for call in of_scores:
            if call[0] not in reasons:
                own, one = (stored.get(run, (f"{call[0]} {call[1]}", run)) for run in ("own", "moved"))
                for run, agree in (("by query", rows_agree), ("by key", columns_agree)):
                    other = stored.get(run, (f"{call[0]} {call[1]}", run))
                    if not agree(own, one, other):
                        doubtful.add(call)
    return reasons | by_bits(alone, doubtful, scores)


def noise(queries: int, keys: int, size: float = SMALL) -> Tensor:
    """The noise on so many scores."""
    generator = torch.Generator().manual_seed(queries * 10007 + keys)
    return size * torch.randn((queries, keys), generator=generator, device="cpu", dtype=torch.float64)


def numbers(count: int, seed: int) -> Tensor:
    """A number of each query, or of each key, from 0.5 to 1.5."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), device="cpu", dtype=torch.float64) + 0.5


def in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some rows (..., keys) of each tensor after the others: what is made of them takes many times their memory."""
    return zip(*(each.flatten(0, -2).split(AT_ONCE) for each in tensors), strict=True)


def rows_agree(own: Tensor, moved: Tensor, by_query: Tensor) -> bool:
    """Whether noise times a number of each query changes each row that number times as much."""
    factors = numbers(own.shape[-2], 5).expand(own.shape[:-1])[..., None]
    largest = max(float((one - rows).abs().max()) for rows, one in in_parts(own, moved))
    for rows, one, other, factor in in_parts(own, moved, by_query, factors):
        change = one - rows
        size = change.abs().amax(-1, keepdim=True)
        wrong = (other - rows - factor * change).abs() > OFF * size
        if bool((wrong & (size > OFF * largest)).any()):
            return False
    return largest > SMALL**2


def columns_agree(own: Tensor, moved: Tensor, by_key: Tensor) -> bool:
    """Whether noise times a number of each key changes its weights by the number: `a (f u - d)` for `a (u - c)`.

    Each key that has weight must be in a row that tells: of three weights at least.
    """
    factors, some, told = numbers(own.shape[-1], 6), torch.zeros(own.shape[-1]) > 0, torch.zeros(own.shape[-1]) > 0
    for rows, one, other in in_parts(own, moved, by_key):
        live = rows.abs() > GONE * rows.abs().amax(-1, keepdim=True).clamp_min(1e-300)
        enough = live.sum(-1) > 2
        some, told = some | live.any(0), told | live[enough].any(0)
        # Of the changes, as shares of the weights, `c f - d` is left in each row: a line in f.
        shown = torch.where(live, (other - rows - factors * (one - rows)) / rows, 0)[enough]
        weights = live[enough].double()
        count = weights.sum(-1, keepdim=True)
        away = (factors - (weights @ factors)[:, None] / count) * weights
        shift = (shown - shown.sum(-1, keepdim=True) / count) * weights
        slope = (shift * away).sum(-1, keepdim=True) / away.pow(2).sum(-1, keepdim=True)
        # Where a row is nearly even, c and d are means of much noise: near 0, so that its square is seen.
        changes = (torch.where(live, (each - rows) / rows, 0)[enough].abs().amax(-1) for each in (one, other))
        most = OFF * shown.abs().amax(-1) + sum(each**2 for each in changes)
        if bool(((shift - slope * away).abs().amax(-1) > most).any()):
            return False
    return bool(told.any()) and not bool((some & ~told).any())


def by_bits(alone: Perturbed, doubtful: set[Call], scores: dict[int, bool]) -> dict[str, str]:
    """The reasons, from changes of the scores of the queries and of the keys whose number has a given bit."""
    if not doubtful:
        return {}
    reasons, answered, plain = dict[str, str](), set[Call](), dict[Call, Tensor]()

    def keep(call: Call, attended: Attended) -> None:
        if call in doubtful:
            plain[call] = attended.own.double()

    weigh(alone, None, {}, keep)
    for bit in range(max(max(own.shape[-2:]) for own in plain.values()).bit_length()):
        still = dict[Call, Tensor]()

        def lowered(queries: int, keys: int, bit: int = bit) -> Tensor:
            return -LARGE * has_bit(keys, bit).double().expand(queries, keys)

        def low(call: Call, attended: Attended, still: dict[Call, Tensor] = still) -> None:
            if call in doubtful:
                still[call] = attended.own.double()

        def moved(queries: int, keys: int, bit: int = bit) -> Tensor:
            return lowered(queries, keys, bit) + noise(queries, keys, 1.0)

        def columns(call: Call, attended: Attended, bit: int = bit, still: dict[Call, Tensor] = still) -> None:
            if call in doubtful:
                # Where all keys of a query are lowered alike, its weights stay as they are, and tell nothing.
                telling = ((still[call] - plain[call]).abs() > GONE).any(-1)
                chosen = has_bit(plain[call].shape[-1], bit)
                if bool((telling & change_apart(still[call][..., chosen], attended.own.double()[..., chosen])).any()):
                    # Heads mixed by numbers of either sign fall in some and rise in others, in the right order too.
                    reasons.setdefault(call[0], OTHER_COLUMNS if shares(plain[call]) else NO_SHARES)
                # One key of two that is left has all, whatever its score.
                if len(chosen) == 2 and shares(plain[call]) and bool((telling & still[call][..., 1].ne(0)).any()):
                    reasons.setdefault(call[0], OTHER_COLUMNS)

        def drawn(queries: int, keys: int, bit: int = bit) -> Tensor:
            return noise(queries, keys, LARGE) * has_bit(queries, bit)[:, None]

        def rows(call: Call, attended: Attended, bit: int = bit) -> None:
            if call in doubtful:
                changed = ((attended.own.double() - plain[call]).abs() > GONE).any(-1)
                changed = changed.reshape(-1, changed.shape[-1]).any(0)
                if bool((changed & ~has_bit(len(changed), bit)).any()):
                    reasons.setdefault(call[0], OTHER_ROWS)
                if bool(changed.any()):
                    answered.add(call)

        weigh(alone, lowered, scores, low)
        weigh(alone, moved, scores, columns)
        weigh(alone, drawn, scores, rows)
    silent = {name for name, _ in doubtful - answered}
    silent = silent and silent & answering_input(alone)  # attention by positions alone answers neither
    return dict.fromkeys(silent, NO_ANSWER) | reasons


def change_apart(one: Tensor, other: Tensor) -> Tensor:
    """In which rows weights do not all change by one factor; it is 1 where some have vanished."""
    if not one.shape[-1]:
        return torch.zeros(one.shape[:-1], dtype=torch.bool)
    live, factor = one.abs() > GONE, other / one
    most, least = factor.where(live, -torch.inf).amax(-1), factor.where(live, torch.inf).amin(-1)
    gone = (~live).any(-1)
    most, least = torch.where(gone, most.clamp_min(1), most), torch.where(gone, least.clamp_max(1), least)
    return live.any(-1) & (most - least > OFF)


def has_bit(count: int, bit: int) -> Tensor:
    """Which of the numbers below a count have a bit."""
    return torch.arange(count) >> bit & 1 == 1


def weigh(alone: Perturbed, change: Change | None, scores: dict[int, bool], use: Use) -> None:
    """Passes on each call of each attention of a run with other scores, the products of these numbers."""
    calls = Counter[str]()

    def see(attended: Attended, _: Running) -> None:
        calls[attended.name] += 1
        use((attended.name, calls[attended.name] - 1), attended)

    def marked(number: int, product: Tensor) -> Tensor:
        if change is None or number not in scores:
            return product
        added = change(*(product.mT if scores[number] else product).shape[-2:])
        return product + (added.mT if scores[number] else added)

    alone.run(Watch(alone.network, see, Silence(), marked=marked))


def answering_input(alone: Perturbed) -> set[str]:
    """The names of attention that changes with the input."""
    first, answering = dict[Call, Tensor](), set[str]()
    if alone.shape is None:
        return answering
    calls = Counter[str]()

    def keep(attended: Attended, _: Running) -> None:
        call = attended.name, calls[attended.name]
        calls[attended.name] += 1
        queries, keys = attended.own.shape[-2:]
        sums = (attended.own.double() * noise(queries, keys, 1.0)).sum((-1, -2))
        if call in first and not torch.equal(first[call], sums):
            answering.add(call[0])
        first.setdefault(call, sums)

    added = EPSILON * torch.randn(
        alone.shape, generator=torch.Generator().manual_seed(5), device="cpu", dtype=torch.float64
    )
    for moved in (None, added):
        calls.clear()
        alone.run(Watch(alone.network, keep), moved)
    return answering
