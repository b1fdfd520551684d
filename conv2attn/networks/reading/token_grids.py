"""From the places of queries and keys to the grid, the leading tokens and the windows of a layer."""

from dataclasses import dataclass
from math import inf, prod
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conv2attn.networks.reading.places import NEARER, Kind, Places
from conv2attn.networks.reading.records import Tokens, Windows
from conv2attn.networks.reading.token_centres import is_exact
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

Cells = NDArray[np.int64]
WHERE_UNKNOWN = "lie is not known"
APART = "its queries and keys stand on different parts of the input"
VALUES_APART = "its keys and values stand on different parts of the input"
DIFFERENT_ORDERS = "its heads have their tokens in different orders"
SAME_PLACES = "rows of one image lie at the same tokens on two axes, and nothing tells which are its heads"
BETWEEN = "its queries stand between its keys"
ONE_SIDE = "more tokens without a place stand among its keys than among its queries, or fewer (memory, bias_k)"


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
            return cells if cells.startswith("it ") else f"where its {role} {WHERE_UNKNOWN}: {cells}"
        found.append((cells, each.sides))
    (at_queries, query_sides), (at_keys, key_sides) = found
    values = roles.get("value", keys)
    at_values = cells_by_head(values, shape[:-2], axis, heads, shape[-1])
    # Weights of a key multiply the value in its column. A value of another place is another layer than the matrices
    # say.
    if not isinstance(at_values, str) and values.sides == key_sides and are_apart(at_values, at_keys):
        return VALUES_APART
    if not (at_keys >= 0).any() or not (at_queries >= 0).any():
        role = "queries" if (at_keys >= 0).any() else "keys"
        return f"its {role} have no place in the input: they are class tokens, text beside it, or the like"
    if len(at_keys) == 1:
        orders = [order_of_tokens(each[0], prod(sides)) for each, sides in found]
        leading = {int((each < 0).sum()) for each in (at_queries, at_keys)}
        if len(leading) == 1 and all(order is not None for order in orders):
            lines = lines_of(queries, at_queries[0]), lines_of(keys, at_keys[0])
            sites = None
            if shape[-2] < shape[-1]:
                sites = sites_between(*lines)
                if sites is None:
                    return BETWEEN
            elif not (at_one_place(queries, keys, *lines) if query_sides == key_sides else in_cells(*lines)):
                return APART
            return Placed(Tokens(key_sides, leading.pop(), sites=sites), *orders)
        # Queries that are some of the tokens (pooled, or every other one) have cells among those of the keys.
        exact = query_sides == key_sides and is_exact(queries) and is_exact(keys)
        if exact and len(leading) == 1 and orders[1] is not None and shape[-2] < shape[-1]:
            sites = sites_of(at_queries[0][at_queries[0] >= 0], key_sides)
            if sites is not None:
                order = torch.from_numpy(np.argsort(at_queries[0], kind="stable"))
                return Placed(Tokens(key_sides, leading.pop(), sites=sites), order, orders[1])
        if len(leading) > 1 and query_sides == key_sides:
            return ONE_SIDE
    if query_sides != key_sides or not np.array_equal(at_queries, at_keys):
        return APART
    # Two windows of one image with the same tokens: these rows could be heads, or views, and replay has not told.
    if len(np.unique(np.sort(at_keys), axis=0)) < len(at_keys):
        return SAME_PLACES
    grid = AttentionGrid(key_sides, Sites.everywhere(len(key_sides)))
    return Placed(Tokens(window_sides(at_keys, key_sides), 0, Windows(at_keys, grid)))


def cells_of(places: Places, lead: tuple[int, ...], axis: int, heads: int, count: int) -> Cells | str:
    """The cell of each token, (rows, tokens), -1 where it has no place; or why they are not known."""
    cells = cells_by_head(places, lead, axis, heads, count)
    if isinstance(cells, str):
        return cells
    return cells[0] if bool((cells == cells[:1]).all()) else DIFFERENT_ORDERS


def are_apart(first: Cells, second: Cells) -> bool:
    """Whether a token has two cells."""
    return bool(((first >= 0) & (second >= 0) & (first != second)).any())


def cells_by_head(places: Places, lead: tuple[int, ...], axis: int, heads: int, count: int) -> Cells | str:
    """The cell of each token for each head, (heads, rows, tokens); values of a head that are nothing have none."""
    if places.why:
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
    cells: Cells = split.movedim(axis, 0).reshape(heads, -1, count).numpy()
    return cells


def order_of_tokens(cells: Cells, number: int) -> Tensor | None:
    """The order of tokens without a place, then of all cells; None where a cell has no token or several."""
    at = np.argsort(cells, kind="stable")
    leading = int((cells < 0).sum())
    whole = np.array_equal(cells[at][leading:], np.arange(number))
    return torch.from_numpy(at) if whole else None


def lines_of(places: Places, cells: Cells) -> list[Tensor]:
    """The centres of rows, of columns and so on, in sides of the input, of tokens that fill a lattice."""
    assert places.centre is not None
    at = np.argsort(cells, kind="stable")[int((cells < 0).sum()) :]
    centre = places.centre.reshape(-1, *places.centre.shape[-2:]).mean(0)[at].unflatten(0, places.sides)
    each = (centre[..., axis].movedim(axis, 0).reshape(side, -1) for axis, side in enumerate(places.sides))
    return [line.median(1).values for line in each]


def step_of(line: Tensor) -> float:
    """The usual step between the tokens of a line; infinite where there is one."""
    return float(line.diff().median()) if len(line) > 1 else inf


def at_one_place(queries: Places, keys: Places, of_queries: list[Tensor], of_keys: list[Tensor]) -> bool:
    """Whether queries are less than a step between keys away from the keys of their cells: convolutions blur both."""
    pairs = zip(of_queries, of_keys, strict=True)
    return (is_exact(queries) and is_exact(keys)) or all(float((q - k).abs().max()) < step_of(k) for q, k in pairs)


def in_cells(queries: list[Tensor], keys: list[Tensor]) -> bool:
    """Whether each key is at most half a step away from the middle of as many queries along each axis."""
    for of_queries, of_keys in zip(queries, keys, strict=True):
        if len(of_queries) % len(of_keys):
            return False
        middles = of_queries.unflatten(0, (len(of_keys), -1)).mean(1)
        if not float((middles - of_keys).abs().max()) < step_of(of_keys) / 2:
            return False
    return True


def sites_between(queries: list[Tensor], keys: list[Tensor]) -> Sites | None:
    """Where queries stand that are not more than keys along any axis; None where they stand between keys."""
    axes = [site_on_line(*lines) for lines in zip(queries, keys, strict=True)]
    found = [each for each in axes if each is not None]
    if len(found) < len(axes):
        return None
    stride, before, after = zip(*found, strict=True)
    return Sites(stride, before, after)


def site_on_line(queries: Tensor, keys: Tensor) -> tuple[int, int, int] | None:
    """The step between the keys at which queries stand, and the number of keys in front and behind; else None.

    Padding moves the centres of the first and last queries inwards: if there are more than three, the others tell.
    """
    edge, near = int(len(queries) > 3), step_of(keys) * NEARER / (1 + NEARER)
    at = (queries[edge : len(queries) - edge, None] - keys).abs().argmin(1)
    steps = at.diff().unique().tolist() or [1]
    step, first = steps[0], int(at[0]) - edge * steps[0]
    last = first + step * (len(queries) - 1)
    if len(steps) > 1 or step < 1 or first < 0 or last >= len(keys):
        return None
    off = queries - keys[first : last + 1 : step]
    inwards = torch.stack([off[0], -off[-1]]) * edge
    off[[0, -1]] *= 1 - edge
    stand = bool((off.abs() < near).all() and (inwards > -near).all() and (inwards < step * step_of(keys)).all())
    return (step, first, len(keys) - 1 - last) if stand else None


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
