"""Paddings, sites and grids answer about themselves what their definitions say."""

import math

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from conv2attn.testing import grids, paddings, sites_on
from conv2attn.theory.basis import AttentionGrid, Padding
from conv2attn.theory.basis.padding import ZERO

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


@given(st.integers(1, 5), st.integers(1, 3), st.integers(-3, 4), st.integers(-3, 4))
def test_zeros_are_where_no_pixel_moves_to(side, spacing, before, after):
    padding = Padding((before,), (after,), "zeros", (spacing,))
    moved = {before + pixel * spacing: pixel for pixel in range(side)}
    length = before + (side - 1) * spacing + 1 + after
    assert padding.sides((side,)) == (length,)
    assume(length >= 0)
    assert padding.source(0, side).tolist() == [moved.get(place, ZERO) for place in range(length)]


@given(st.data(), LINES)
def test_sites_without_stride_are_the_same_and_those_between(data, sides):
    sites = data.draw(sites_on(sides))
    dense, image = sites.without_stride(), torch.arange(math.prod(sides)).reshape(sides)
    assert dense.stride == (1,) * len(sides)
    every = tuple(slice(None, None, s) for s in sites.stride)
    nowhere = (0,) * len(sides)
    assert torch.equal(image[dense.view(sides, nowhere)][every], image[sites.view(sides, nowhere)])


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


@given(st.data(), LINES)
def test_displacements_of_an_axis_are_those_of_all_pairs(data, sides):
    grid = AttentionGrid(sides, data.draw(sites_on(sides)))
    every = grid.displacements().reshape(*grid.queries, *sides, len(sides))
    for axis in range(len(sides)):
        alone = (
            every[..., axis]
            .movedim((axis, len(sides) + axis), (0, 1))
            .reshape(grid.queries[axis], sides[axis], -1)[..., 0]
        )
        assert torch.equal(grid.displacement(axis), alone)
        assert torch.equal(grid.displacement(axis, torch.tensor([0])), alone[:1])
