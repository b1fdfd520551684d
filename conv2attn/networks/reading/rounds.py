"""Finds places in as many rounds as needed: again after each attention without a residual."""

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
        order: the order of the rows and columns of each call, if it is known; a call without it passes nothing on.
    """
    by_call = dict[Call, dict[str, Places]]()
    for each in (perturbed, *perturbed.others()):
        if each.has_images and not (by_call and all(map(arrives, by_call.values()))):
            own = places_in_rounds(each, order)
            by_call = own | {call: roles for call, roles in by_call.items() if arrives(roles)}
    return by_call


def arrives(roles: dict[str, Places]) -> bool:
    """Whether some tokens depend on the input."""
    return any(each.why != NOTHING for each in roles.values())


def places_in_rounds(perturbed: Perturbed, order: Order) -> dict[Call, dict[str, Places]]:
    """The places of all tokens that depend on the perturbed tensor.

    If a sublayer has no residual, nothing passes its silenced attention. Then each earlier query that is at a value
    passes this value on, and the later layers are measured once more.
    """

    def places_under(rule: Silence) -> dict[Call, dict[str, Places]]:
        by_call = by_maps(perturbed, places_by(perturbed, rule), rule)
        for roles in by_call.values():  # some were placed by feature maps
            conclude(roles)
        for call in by_call.keys() & order.turned:
            by_call[call] |= {"query": by_call[call]["key"], "key": by_call[call]["query"]}
        for call in by_call.keys() & order.rows.keys():
            by_call[call]["query"] = of_these(by_call[call]["query"], order.rows[call])
        return by_call

    unknown = {name for (name, _), why in order.reasons.items() if why}
    passing, by_call = dict[Call, Tensor](), places_under(Silence())
    while lost := [call for call in by_call if not arrives(by_call[call])]:
        calls = list(by_call)
        # Only earlier calls can block the first call without a place.
        before = [call for call in calls[: calls.index(lost[0])] if call not in passing and call[0] not in unknown]
        chosen = {call: at for call in before if (at := values_at_queries(by_call[call])) is not None}
        if not chosen:
            break
        passing |= chosen
        again = places_under(Silence(passing))
        by_call |= {call: again[call] for call in lost if call in again}
    return by_call


def of_these(queries: Places, rows: Tensor) -> Places:
    """The places of the queries of some rows, numbered (*lead, rows)."""
    lead = rows.expand(*queries.at.shape[:-1])[..., None].expand_as(queries.at)
    centre = None if queries.centre is None else queries.centre.gather(-2, lead)
    return replace(queries, at=queries.at.gather(-2, lead), centre=centre)


def values_at_queries(roles: dict[str, Places]) -> Tensor | None:
    """Attention (..., queries, values) of each query to the value at its place; None if one is at no value."""
    query, value = (roles.get(role) for role in ("query", "value"))
    at = None if query is None or value is None else standing(query, value)
    return None if at is None or value is None else F.one_hot(at, value.at.shape[-2]).double()
