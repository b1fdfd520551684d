"""From the places of queries and keys to the grid, the leading tokens and the windows of a layer."""

from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conv2attn.networks.reading.places import NOTHING, Kind, Places, standing
from conv2attn.networks.reading.records import Tokens, Windows
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

Cells = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Placed:
    """The tokens of a layer, and the orders of its queries and keys that make them leading tokens, then row by row."""

    tokens: Tokens
    queries: Tensor | None = None
    keys: Tensor | None = None


def placed(roles: dict[str, Places], shape: tuple[int, ...], axis: int, heads: int) -> Placed | str:
    """The tokens of attention of this shape (..., queries, keys) on one image, or why they are not known.

    Args:
        axis, heads: that of heads among the axes in front of queries and keys, and their number.
    """
    keys = roles.get("key") or roles.get("value")
    queries = roles.get("query") or (keys if shape[-1] == shape[-2] else None)
    if keys is None or queries is None:
        return "its queries and keys were not seen, so that nothing tells where its tokens lie"
    found: list[tuple[Cells, Sides]] = []
    for role, each, count in (("queries", queries, shape[-2]), ("keys", keys, shape[-1])):
        cells = cells_of(each, shape[:-2], axis, heads, count)
        if isinstance(cells, str):
            return cells if cells.startswith("it ") else f"where its {role} lie is not known: {cells}"
        found.append((cells, each.sides))
    (at_queries, query_sides), (at_keys, key_sides) = found
    if not (at_keys >= 0).any() or not (at_queries >= 0).any():
        role = "queries" if (at_keys >= 0).any() else "keys"
        return f"its {role} have no place in the input: they are class tokens or the like"
    if len(at_keys) == 1:
        orders = [order_of_tokens(each[0], prod(sides)) for each, sides in found]
        leading = {int((each < 0).sum()) for each in (at_queries, at_keys)}
        if leading == {0} and orders[1] is not None and shape[-2] < shape[-1]:
            exact = query_sides == key_sides and are_exact(queries, keys)
            stood = at_queries[0] if exact else keys_of(queries, keys, at_keys[0])
            sites = None if stood is None else sites_of(stood, key_sides)
            if stood is not None and sites is not None:
                return Placed(Tokens(key_sides, 0, sites=sites), torch.from_numpy(np.argsort(stood)), orders[1])
        if all(order is not None for order in orders) and len(leading) == 1:
            if query_sides == key_sides and not at_one_place(queries, keys, at_queries[0], at_keys[0]):
                return "its queries and keys stand on different parts of the input"
            return Placed(Tokens(key_sides, leading.pop()), *orders)
    if query_sides != key_sides or not np.array_equal(at_queries, at_keys):
        return "its queries and keys stand on different parts of the input"
    grid = AttentionGrid(key_sides, Sites.everywhere(len(key_sides)))
    return Placed(Tokens(window_sides(at_keys, key_sides), 0, Windows(at_keys, grid)))


def cells_of(places: Places, lead: tuple[int, ...], axis: int, heads: int, count: int) -> Cells | str:
    """The cell of each token, (rows, tokens), -1 where it has no place; or why they are not known."""
    if places.why and places.why != NOTHING:
        return places.why
    if places.why == NOTHING:
        return places.why
    flat = torch.full(places.kind.shape, -1)
    known = (places.kind == Kind.EXACT) | (places.kind == Kind.LATTICE)
    code = torch.zeros_like(flat)
    for along, side in enumerate(places.sides):
        code = code * side + places.at[..., along]
    flat = torch.where(known, code, flat)
    if flat.ndim != len(lead) + 1 or flat.shape[-1] != count:
        if len(lead) < flat.ndim - 1 or flat.shape[-1] != count:
            return "its tokens and its attention have other axes"
        flat = flat.reshape(*[1] * (len(lead) + 1 - flat.ndim), *flat.shape)
    try:
        flat = flat.expand(*lead, count)
    except RuntimeError:
        return "its tokens and its attention have other axes"
    split = flat if len(lead) > 1 else flat.reshape((-1, heads, count) if axis == 1 else (heads, -1, count))
    by_head = split.movedim(axis, 0).reshape(heads, -1, count)
    if not bool((by_head == by_head[:1]).all()):
        return "its heads have their tokens in different orders"
    cells: Cells = by_head[0].numpy()
    return cells


def order_of_tokens(cells: Cells, number: int) -> Tensor | None:
    """The order of tokens without a place, then of all cells; None where a cell has no token or several."""
    at = np.argsort(cells, kind="stable")
    leading = int((cells < 0).sum())
    whole = np.array_equal(cells[at][leading:], np.arange(number))
    return torch.from_numpy(at) if whole else None


def are_exact(*places: Places) -> bool:
    """Whether all tokens are known to be of one block of the input each."""
    return all(bool((each.kind == Kind.EXACT).all()) for each in places)


def at_one_place(queries: Places, keys: Places, at_queries: Cells, at_keys: Cells) -> bool:
    """Whether queries are less than a step between keys away from the keys of their cells: convolutions blur both."""
    if are_exact(queries, keys) or queries.centre is None or keys.centre is None:
        return True
    ours, theirs = (
        each.reshape(-1, *each.shape[-2:])[0][np.argsort(cells, kind="stable")][int((cells < 0).sum()) :]
        for each, cells in ((queries.centre, at_queries), (keys.centre, at_keys))
    )
    if len(theirs) < 2:
        return True
    return bool((ours - theirs).norm(dim=-1).max() < theirs.diff(dim=0).norm(dim=-1).median())


def keys_of(queries: Places, keys: Places, at_keys: Cells) -> Cells | None:
    """The cell of the key at which each query stands; None where that is unknown, or heads differ."""
    at = standing(queries, keys)
    rows = None if at is None else at.flatten(0, -2)
    return at_keys[rows[0].numpy()] if rows is not None and bool((rows == rows[:1]).all()) else None


def sites_of(cells: Cells, sides: Sides) -> Sites | None:
    """Where queries stand that have these cells among the keys; None where not on every so many along each axis."""
    lines = [np.unique(along) for along in np.unravel_index(cells, sides)]
    steps = [np.unique(np.diff(line)) for line in lines]
    if len(np.unique(cells)) < len(cells) or len(cells) < prod(map(len, lines)) or any(len(step) > 1 for step in steps):
        return None
    stride = tuple(int(step[0]) if len(step) else 1 for step in steps)
    after = tuple(side - 1 - int(line[-1]) for side, line in zip(sides, lines, strict=True))
    return Sites(stride, tuple(int(line[0]) for line in lines), after)


def window_sides(cells: Cells, sides: Sides) -> Sides:
    """The sides of the first window that is a box of the grid in the order of its rows; none where there is none."""
    for window in cells:
        if (window < 0).any():
            continue
        at = np.stack(np.unravel_index(window, sides))
        box = tuple(int(x) for x in at.max(1) - at.min(1) + 1)
        if prod(box) == len(window) and bool(
            (np.diff(np.ravel_multi_index(tuple(at - at.min(1)[:, None]), box)) == 1).all()
        ):
            return box
    return ()
