"""Places from as many draws of noise and in as many rounds as they need: behind attention without a residual, again."""

from torch import Tensor
from torch.nn import functional as F

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.feature_maps import by_maps
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import BLURRED, NOTHING, Places, places_by, standing
from conv2attn.networks.reading.responses import Call

DRAWS = (1, 8)
"""How many draws of noise: more where one leaves a place unknown, or where queries stand on the keys, behind
convolutions."""


def places(perturbed: Perturbed) -> dict[Call, dict[str, Places]]:
    """The places of the queries, keys and values of each call of each attention.

    What nothing of the first floats of the input reaches is asked of its other floats, then of the embeddings of ids.
    """
    others = (each for each in (perturbed, *perturbed.others()) if each.has_images)
    first = next(others, None)
    found = {} if first is None else places_by_draws(first)
    while lost := {call for call, roles in found.items() if all(each.why == NOTHING for each in roles.values())}:
        other = next(others, None)
        if other is None:
            break
        found |= {call: each for call, each in places_by_draws(other).items() if call in lost}
    return found


def places_by_draws(perturbed: Perturbed) -> dict[Call, dict[str, Places]]:
    """The places, from more draws where fewer leave one unknown."""
    # Eight draws cost eight times as much, and only blurred tokens gain by them.
    for draws in DRAWS:
        found = places_in_rounds(perturbed, draws)
        if not any(map(are_unsure, found.values())):
            break
    return found


def are_unsure(roles: dict[str, Places]) -> bool:
    """Whether more draws may tell more: of blurred tokens, and of fewer queries than keys that are blurred."""
    query, key = (roles.get(role) for role in ("query", "key"))
    fewer = query is not None and key is not None and query.at.shape[-2] < key.at.shape[-2]
    blurred = fewer and any(each.sides and not each.exact for each in roles.values())
    return blurred or any(each.why == BLURRED for each in roles.values())


def places_in_rounds(perturbed: Perturbed, draws: int) -> dict[Call, dict[str, Places]]:
    """The places, from so many draws of noise.

    Where a sublayer has no residual, nothing comes through the silence. Each query in front that stands at a value then
    passes that value on, and what lies behind is asked once more.
    """
    passing = dict[Call, Tensor]()
    found = by_maps(perturbed, places_by(perturbed, draws, Silence()), Silence(), draws)
    while lost := [call for call in found if all(each.why == NOTHING for each in found[call].values())]:
        calls = list(found)
        # Only calls in front of the first lost one can block it.
        before = [call for call in calls[: calls.index(lost[0])] if call not in passing]
        chosen = {call: at for call in before if (at := values_at_queries(found[call])) is not None}
        if not chosen:
            break
        passing |= chosen
        again = by_maps(perturbed, places_by(perturbed, draws, Silence(passing)), Silence(passing), draws)
        found |= {call: again[call] for call in lost if call in again}
    return found


def values_at_queries(roles: dict[str, Places]) -> Tensor | None:
    """Attention (..., queries, values) of each query to the value where it stands; None where one stands at none."""
    query, value = (roles.get(role) for role in ("query", "value"))
    at = None if query is None or value is None else standing(query, value)
    return None if at is None or value is None else F.one_hot(at, value.at.shape[-2]).double()
