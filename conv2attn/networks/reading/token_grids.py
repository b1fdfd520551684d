"""Derives the grid, the leading tokens and the windows of a layer from the places of its queries and keys."""

from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conv2attn.networks.reading.layouts import SAME_PLACES, SEVERAL_IMAGES, Located
from conv2attn.networks.reading.places import NEARER, PLACES_DIFFER
from conv2attn.networks.reading.records import Tokens, Windows
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

Cells = NDArray[np.int64]
WHERE_UNKNOWN = "places are unknown"
APART = "its queries and keys are on different parts of the input"
VALUES_APART = "its keys and values are on different parts of the input"
DIFFERENT_ORDERS = "its heads have their tokens in different orders"
BETWEEN = "its queries are between its keys"
ONE_SIDE = "its keys and its queries have different numbers of tokens without a place (memory, bias_k, padding)"


@final
@dataclass(frozen=True, eq=False)
class Placed:
    """The tokens of a layer, and the orders of queries and keys: first leading tokens, then pixels row by row.

    `by_image` says that its windows belong to several images, each with other places of tokens.
    """

    tokens: Tokens
    queries: Tensor | None = None
    keys: Tensor | None = None
    by_image: bool = False


def placed(
    queries: Located | str | None,
    keys: Located | str | None,
    values: Located | str | None,
    shape: tuple[int, int],
    at: Tensor,
) -> Placed | str:
    """The tokens of attention with this many queries and keys on one image, or the reason why they are unknown.

    Args:
        at: the rows of each head and window of the image, as numbers of located rows.
    """
    keys = values if keys is None else keys
    queries = (keys if shape[-1] == shape[-2] else None) if queries is None else queries
    if keys is None or queries is None:
        return "its queries and keys were not observed, so the places of its tokens are unknown"
    located_roles: list[tuple[Cells, Located]] = []
    for role, each in (("queries", queries), ("keys", keys)):
        if isinstance(each, str):
            plain = each.startswith("it ") or each in (PLACES_DIFFER, SEVERAL_IMAGES)
            return each if plain else f"its {role}' {WHERE_UNKNOWN}: {each}"
        cells = each.cells[at]
        if not bool((cells == cells[:1]).all()):
            return f"its {role}' {WHERE_UNKNOWN}: {DIFFERENT_ORDERS}"
        located_roles.append((cells[0].numpy(), each))
    (at_queries, queries), (at_keys, keys) = located_roles
    query_sides, key_sides = queries.sides, keys.sides
    # A weight multiplies the value in the column of its key. If that value is from another place, the matrices would
    # describe another layer.
    if isinstance(values, Located) and values.sides == key_sides:
        at_values = values.cells[at].numpy()
        if ((at_values >= 0) & (at_keys >= 0) & (at_values != at_keys)).any():
            return VALUES_APART
    elif isinstance(values, Located) and values.sides and values.exact and keys.exact:
        return VALUES_APART
    if not (at_keys >= 0).any() or not (at_queries >= 0).any():
        role = "queries" if (at_keys >= 0).any() else "keys"
        return f"its {role} have no place in the input: they are class tokens, text beside it, or the like"
    if len(at_keys) == 1:
        # Queries or keys that are a regular subset of the tokens have a grid of their own. So have the tokens of later
        # layers, unless they are blocks of the input, whose grid is known.
        fewer = shape[-2] < shape[-1]
        queries = on_own_grid(queries, at) if fewer or not queries.exact else queries
        keys = on_own_grid(keys, at) if shape[-2] > shape[-1] or not keys.exact else keys
        orders = [order_of_tokens(each, at) for each in (queries, keys)]
        leading = {int((each < 0).sum()) for each in (at_queries, at_keys)}
        if len(leading) == 1 and all(order is not None for order in orders):
            lines, sites = (lines_of(queries, at), lines_of(keys, at)), None
            if shape[-2] == shape[-1] and query_sides == key_sides and set(at_queries[0]) != set(at_keys[0]):
                return APART
            if fewer:
                sites = sites_between(*lines)
                if sites is None:
                    return BETWEEN
            elif not (at_one_place(queries, keys, *lines) if queries.sides == keys.sides else in_cells(*lines)):
                return APART
            return Placed(Tokens(keys.sides, leading.pop(), sites=sites), orders[0], orders[1])
        # Image padding is on both sides of the tokens; memory is before or after them.
        nowhere = at_keys < 0
        if len(leading) > 1 and query_sides == key_sides and not np.array_equal(nowhere, nowhere[:, ::-1]):
            return ONE_SIDE
    if query_sides != key_sides or not np.array_equal(at_queries, at_keys):
        return in_halos(queries, keys, at)
    # Two windows of one image with the same tokens are ambiguous: these rows could be heads, or views, and replay has
    # not decided.
    if len(np.unique(np.sort(at_keys), axis=0)) < len(at_keys):
        return SAME_PLACES
    grid = AttentionGrid(key_sides, Sites.everywhere(len(key_sides)))
    return Placed(Tokens(window_sides(at_keys, key_sides), 0, Windows(at_keys, grid)))


def in_halos(queries: Located, keys: Located, at: Tensor) -> Placed | str:
    """The tokens of windows in which each query is at a key, with more keys than queries; APART otherwise."""
    at_queries, at_keys = (each.cells[at[0]].numpy() for each in (queries, keys))
    if (at_queries < 0).any() or at_queries.shape[-1] >= at_keys.shape[-1]:
        return APART
    sites: Sites | None = Sites.everywhere(len(keys.sides))
    if queries.sides != keys.sides:
        sites = sites_between(lines_of(queries, at), lines_of(keys, at))
    if sites is None:
        return APART
    grid = AttentionGrid(keys.sides, sites)
    on_axes = zip(np.unravel_index(at_queries, queries.sides), sites.stride, sites.before, strict=True)
    stand = np.ravel_multi_index([each * stride + before for each, stride, before in on_axes], keys.sides)
    if not all(set(own) <= set(around) for own, around in zip(stand, at_keys, strict=True)):
        return APART
    # Keys without an order are counted as a line. Its sites only give the number of queries.
    line = (), Sites((1,), (0,), (at_keys.shape[-1] - at_queries.shape[-1],))
    sides, sites = in_box(stand, at_keys, keys.sides) or line
    return Placed(Tokens(sides, 0, Windows(at_queries, grid, at_keys), sites))


def in_box(queries: Cells, keys: Cells, sides: Sides) -> tuple[Sides, Sites] | None:
    """The sides of the boxes of cells formed row by row by the keys of all windows, and the sites of queries in them.

    Keys beyond the image are -1. None if keys form no boxes, or if queries have other sites in some box.
    """
    there, count = keys >= 0, keys.shape[-1]
    of_queries, of_keys = (np.stack(np.unravel_index(np.maximum(each, 0), sides), -1) for each in (queries, keys))
    divisors = [each for each in range(1, count + 1) if count % each == 0]
    for box in (each for each in product(divisors, repeat=len(sides)) if prod(each) == count):
        corners = of_keys - np.stack(np.unravel_index(np.arange(count), box), -1)
        corner = corners[np.arange(len(keys)), there.argmax(-1)][:, None]
        inside = of_queries - corner
        lines = [np.unique(each) for each in np.moveaxis(inside, -1, 0)]
        steps = [np.unique(np.diff(line)) for line in lines]
        rows = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(sides))
        in_rows = inside.shape[1:] == rows.shape and bool((inside == rows).all())
        if (corners == corner)[there].all() and in_rows and all(len(step) < 2 for step in steps):
            stride = tuple(int(step[0]) if len(step) else 1 for step in steps)
            after = tuple(int(side - 1 - line[-1]) for side, line in zip(box, lines, strict=True))
            return box, Sites(stride, tuple(int(line[0]) for line in lines), after)
    return None


def images_as_windows(queries: Located, keys: Located, at: Tensor) -> Placed | str:
    """The tokens of attention whose places differ between images: the images then count as windows of one image.

    Args:
        at: the rows (images, heads, windows), as numbers of located rows; each image is placed alone.
    """
    at_queries, at_keys = (each.cells[at[:, 0].flatten()].numpy() for each in (queries, keys))
    if queries.sides != keys.sides or not np.array_equal(at_queries, at_keys):
        return PLACES_DIFFER
    # Tokens keep the order of the run, which their places record, since no box has the same order in all images.
    grid = AttentionGrid(keys.sides, Sites.everywhere(len(keys.sides)))
    return Placed(Tokens((), 0, Windows(at_keys, grid)), by_image=True)


def on_own_grid(located: Located, at: Tensor) -> Located:
    """Tokens that fill a regular subset of rows and columns, on the grid of that subset; other tokens unchanged."""
    cells = located.cells[at.flatten()[0]].numpy()
    along = np.unravel_index(cells[cells >= 0], located.sides)
    lines = [np.unique(each) for each in along]
    if prod(map(len, lines)) != len(along[0]) or any(len(np.unique(np.diff(line))) > 1 for line in lines):
        return located
    sides = tuple(map(len, lines))
    own = [np.searchsorted(line, each) for line, each in zip(lines, along, strict=True)]
    moved = located.cells.clone()
    moved[at.flatten()[:, None], torch.from_numpy(cells >= 0).nonzero().flatten()] = torch.from_numpy(
        np.ravel_multi_index(own, sides)
    )
    return replace(located, cells=moved, sides=sides)


def order_of_tokens(located: Located, at: Tensor) -> Tensor | None:
    """The order of tokens without a place, then of all cells; None if a cell has no token or several."""
    cells = located.cells[at.flatten()[0]]
    order = cells.argsort(stable=True)
    whole = torch.equal(cells[order][int((cells < 0).sum()) :], torch.arange(prod(located.sides), device="cpu"))
    return order if whole else None


def lines_of(located: Located, at: Tensor) -> list[Tensor]:
    """The centres, in sides of the input, of the rows, columns and so on of tokens that fill a lattice."""
    assert located.centre is not None
    cells, centres = (lines[at.flatten()].flatten(0, 1) for lines in (located.cells, located.centre))
    count, there = prod(located.sides), cells >= 0
    zeros = torch.zeros(count, centres.shape[-1], dtype=torch.float64, device="cpu")
    sums = zeros.index_add_(0, cells[there], centres[there])
    centre = (sums / cells[there].bincount(minlength=count)[:, None]).unflatten(0, located.sides)
    lines = (centre[..., axis].movedim(axis, 0).reshape(side, -1) for axis, side in enumerate(located.sides))
    return [line.median(1).values for line in lines]


def step_of(line: Tensor) -> float:
    """The usual step between the tokens of a line; infinite for a single token."""
    return float(line.diff().median()) if len(line) > 1 else inf


def at_one_place(queries: Located, keys: Located, of_queries: list[Tensor], of_keys: list[Tensor]) -> bool:
    """Whether queries are within one key step of the keys of their cells, or displaced towards the middle.

    Convolutions blur both, and near the border wide kernels reach only inwards.
    """
    if queries.exact and keys.exact:
        return True
    for q, k in zip(of_queries, of_keys, strict=True):
        near = float((q - k).abs().max()) < step_of(k)
        drawn_in = 2 * step_of(q) > step_of(k) and abs(float((q - k).mean())) < step_of(q) / 2
        if not (near or drawn_in):
            return False
    return True


def in_cells(queries: list[Tensor], keys: list[Tensor]) -> bool:
    """Whether each key is within half a step of the middle of an equal number of queries along each axis."""
    for of_queries, of_keys in zip(queries, keys, strict=True):
        if len(of_queries) % len(of_keys):
            return False
        middles = of_queries.unflatten(0, (len(of_keys), -1)).mean(1)
        # Asymmetric kernels bring the centres of a few keys nearer together, or move them apart.
        step = max(step_of(of_keys), step_of(middles))
        if not float((middles - of_keys).abs().max()) < step / 2:
            return False
    return True


def sites_between(queries: list[Tensor], keys: list[Tensor]) -> Sites | None:
    """The sites of queries that do not outnumber the keys along any axis; None if they are between keys."""
    axes = [site_on_line(*lines) for lines in zip(queries, keys, strict=True)]
    sites = [each for each in axes if each is not None]
    if len(sites) < len(axes):
        return None
    stride, before, after = zip(*sites, strict=True)
    return Sites(stride, before, after)


def site_on_line(queries: Tensor, keys: Tensor) -> tuple[int, int, int] | None:
    """The step between the keys at which queries are, and the numbers of keys before and after them; otherwise None.

    Padding moves the centres of the first and last queries inwards: with more than three queries, the others decide.
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


def window_sides(cells: Cells, sides: Sides) -> Sides:
    """The sides of the first window that is a box of the grid in row-major order; empty if it is not."""
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
