"""Places from as many draws of noise and in as many rounds as they need: behind attention without a residual, again."""

from collections import Counter

from torch import Tensor
from torch.nn import functional as F

from conv2attn.networks.reading.attended import Attended, Running, Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import BLURRED, NOTHING, Kind, Places, places_by, standing
from conv2attn.networks.reading.watch import Watch

DRAWS = (1, 8)
"""How many draws of noise: more where one leaves a place unknown, or where queries stand on the keys, behind
convolutions."""


def places(perturbed: Perturbed) -> dict[str, dict[str, Places]]:
    """The places of the queries, keys and values of each attention, by its name.

    What nothing of the first floats of the input reaches is asked of its other floats, then of the embeddings of ids.
    """
    found = places_by_draws(perturbed)
    others = perturbed.others()
    while lost := {name for name, roles in found.items() if all(each.why == NOTHING for each in roles.values())}:
        other = next(others, None)
        if other is None:
            break
        found |= {name: each for name, each in places_by_draws(other).items() if name in lost}
    return found


def places_by_draws(perturbed: Perturbed) -> dict[str, dict[str, Places]]:
    """The places, from more draws where fewer leave one unknown."""
    if perturbed.shape is None:
        return {}
    # Eight draws cost eight times as much, and only blurred tokens gain by them.
    for draws in DRAWS:
        found = places_in_rounds(perturbed, draws)
        if not any(map(are_unsure, found.values())):
            break
    return found


def are_unsure(roles: dict[str, Places]) -> bool:
    """Whether more draws may tell more: of blurred tokens, and of fewer queries than keys that are blurred."""
    query, key = (roles.get(role) for role in ("query", "key"))
    fewer = query is not None and key is not None and query.kind.shape[-1] < key.kind.shape[-1]
    blurred = fewer and any(bool((each.kind == Kind.LATTICE).any()) for each in roles.values())
    return blurred or any(each.why == BLURRED for each in roles.values())


def places_in_rounds(perturbed: Perturbed, draws: int) -> dict[str, dict[str, Places]]:
    """The places, from so many draws of noise.

    Where a sublayer has no residual, nothing comes through the silence. Each query in front that stands at a value then
    passes that value on, and what lies behind is asked once more. Of attention seen several times in a run the places
    of the first time alone are known: it passes nothing.
    """
    passing, times = dict[str, Tensor](), Counter[str]()
    found = places_by(perturbed, draws, Silence())
    while lost := [name for name in found if all(each.why == NOTHING for each in found[name].values())]:
        times = times or times_seen(perturbed)
        names = list(found)
        # Only layers in front of the first lost one can block it. One that was seen several times would need a place of
        # each time, which are not known.
        before = [name for name in names[: names.index(lost[0])] if name not in passing and times[name] == 1]
        chosen = {name: at for name in before if (at := values_at_queries(found[name])) is not None}
        if not chosen:
            break
        passing |= chosen
        again = places_by(perturbed, draws, Silence(passing))
        found |= {name: again[name] for name in lost if name in again}
    return found


def times_seen(perturbed: Perturbed) -> Counter[str]:
    """How often each attention is seen in a run."""
    times = Counter[str]()

    def see(attended: Attended, _: Running) -> None:
        times[attended.name] += 1

    perturbed.run(Watch(perturbed.network, see))
    return times


def values_at_queries(roles: dict[str, Places]) -> Tensor | None:
    """Attention (..., queries, values) of each query to the value where it stands; None where one stands at none."""
    query, value = (roles.get(role) for role in ("query", "value"))
    at = None if query is None or value is None else standing(query, value)
    return None if at is None or value is None else F.one_hot(at, value.kind.shape[-1]).double()
