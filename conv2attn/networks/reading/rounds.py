"""Places in as many rounds as they need: behind attention without a residual, again."""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.feature_maps import by_maps
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import NOTHING, Places, conclude, places_by, standing
from conv2attn.networks.reading.responses import Call
from conv2attn.networks.reading.score_order import Order


def places(perturbed: Perturbed, order: Order) -> dict[Call, dict[str, Places]]:
    """The places of the queries, keys and values of each call of each attention.

    Layers that the first input tensor does not reach are tried with the other float inputs, then with the token
    embeddings.

    Args:
        order: what is known of that of the rows and columns of each call; where nothing is, it passes nothing on.
    """
    found = dict[Call, dict[str, Places]]()
    for each in (perturbed, *perturbed.others()):
        if each.has_images and not (found and all(map(arrives, found.values()))):
            own = places_in_rounds(each, order)
            found = own | {call: roles for call, roles in found.items() if arrives(roles)}
    return found


def arrives(roles: dict[str, Places]) -> bool:
    """Whether anything of the input arrives at some tokens."""
    return any(each.why != NOTHING for each in roles.values())


def places_in_rounds(perturbed: Perturbed, order: Order) -> dict[Call, dict[str, Places]]:
    """The places of what the perturbed tensor reaches.

    Where a sublayer has no residual, nothing comes through the silence. Each query in front that stands at a value then
    passes that value on, and what lies behind is asked once more.
    """

    def asked(rule: Silence) -> dict[Call, dict[str, Places]]:
        found = by_maps(perturbed, places_by(perturbed, rule), rule)
        for roles in found.values():  # feature maps have placed some
            conclude(roles)
        for call in found.keys() & order.turned:
            found[call] |= {"query": found[call]["key"], "key": found[call]["query"]}
        for call in found.keys() & order.rows.keys():
            found[call]["query"] = of_these(found[call]["query"], order.rows[call])
        return found

    unknown = {name for (name, _), why in order.reasons.items() if why}
    passing, found = dict[Call, Tensor](), asked(Silence())
    while lost := [call for call in found if not arrives(found[call])]:
        calls = list(found)
        # Only calls in front of the first lost one can block it.
        before = [call for call in calls[: calls.index(lost[0])] if call not in passing and call[0] not in unknown]
        chosen = {call: at for call in before if (at := values_at_queries(found[call])) is not None}
        if not chosen:
            break
        passing |= chosen
        again = asked(Silence(passing))
        found |= {call: again[call] for call in lost if call in again}
    return found


def of_these(queries: Places, rows: Tensor) -> Places:
    """The places of the queries of rows, whose numbers are (*lead, rows)."""
    if queries.why:
        return queries
    lead = rows.expand(*queries.at.shape[:-1])[..., None].expand_as(queries.at)
    centre = None if queries.centre is None else queries.centre.gather(-2, lead)
    return replace(queries, at=queries.at.gather(-2, lead), centre=centre)


def values_at_queries(roles: dict[str, Places]) -> Tensor | None:
    """Attention (..., queries, values) of each query to the value where it stands; None where one stands at none."""
    query, value = (roles.get(role) for role in ("query", "value"))
    at = None if query is None or value is None else standing(query, value)
    return None if at is None or value is None else F.one_hot(at, value.at.shape[-2]).double()
