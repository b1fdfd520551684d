"""Paddings, sites and grids answer about themselves what their definitions say."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from suite import grids, paddings, sites_on

from conv2attn.theory.basis import AttentionGrid, Padding

LINES = st.integers(1, 3).flatmap(lambda axes: grids(axes, 5 if axes < 3 else 3))


@given(st.data(), LINES)
def test_paddings_add_nothing_where_they_are_none_and_are_extended_behind(data, sides):
    padding, more = data.draw(paddings(sides)), tuple(data.draw(st.integers(-1, 2)) for _ in sides)
    nowhere, once = (0,) * len(sides), (1,) * len(sides)
    assert padding.is_identity is ((padding.before, padding.after, padding.spacing) == (nowhere, nowhere, once))
    assert Padding.none(len(sides)).is_identity
    longer = padding.extended(more)
    assert (longer.before, longer.mode, longer.spacing) == (padding.before, padding.mode, padding.spacing)
    added = zip(longer.sides(sides), padding.sides(sides), more, strict=True)
    assert all(after == before + each for after, before, each in added)


@given(st.data(), LINES)
def test_a_view_shows_each_query_its_target(data, sides):
    grid = AttentionGrid(sides, data.draw(sites_on(sides)))
    offset = tuple(
        data.draw(st.integers(-b, side - 1 - b - (n - 1) * s))
        for b, s, n, side in zip(grid.sites.before, grid.sites.stride, grid.queries, sides, strict=True)
    )
    assert grid.contains_targets(offset)
    keys = torch.arange(math.prod(sides))
    targets = (grid.squared_distance(offset) == 0).int().argmax(1)
    assert torch.equal(keys.reshape(sides)[grid.sites.view(sides, offset)].flatten(), keys[targets])
    furthest = [
        side - b - (n - 1) * s
        for b, s, n, side in zip(grid.sites.before, grid.sites.stride, grid.queries, sides, strict=True)
    ]
    for axis, beyond in enumerate(furthest):
        assert not grid.contains_targets((*offset[:axis], beyond, *offset[axis + 1 :]))
