"""Properties of families of heads and of grids that are drawn: scores, their parts, features and matrices."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers.attention.drawing import FAMILIES, encoding_for, geometries
from layers.attention.formula import vector

from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import FAMILIES as KNOWN
from conv2attn.theory.basis import AttentionGrid


@st.composite
def heads_on_grids(draw, families=FAMILIES):
    """An encoding of some heads, and a grid of keys and queries."""
    sides, padding, sites = draw(geometries(3))
    keys = padding.sides(sides)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    torch.manual_seed(generator.initial_seed())
    alpha = draw(st.floats(0.01, 2.0))
    encoding = encoding_for(draw(st.sampled_from(families)), draw(st.integers(1, 3)), keys, generator, alpha)
    return encoding.requires_grad_(False), AttentionGrid(keys, sites)


def scores_of(heads, grid):
    return heads.scores(grid, grid.every_query(), torch.float64)


@given(heads_on_grids())
def test_scores_are_of_some_queries_what_they_are_of_all(drawn):
    encoding, grid = drawn
    heads, queries = encoding.operators(), grid.every_query().flip(0)[::2]
    assert torch.equal(heads.scores(grid, queries, torch.float64), scores_of(heads, grid)[:, :, queries])


@given(heads_on_grids(("quadratic", "learned", "sinusoidal")))
def test_parts_of_the_axes_sum_to_the_scores(drawn):
    encoding, grid = drawn
    heads, total = encoding.operators(), 0
    coordinates = grid.key_coordinates()
    for axis, part in enumerate(heads.parts(grid, grid.every_query(), torch.float64)):
        assert part.shape == (heads.heads, grid.shape[0], grid.keys[axis])
        total = total + part[..., coordinates[:, axis]]
    assert_same_output(total[None], scores_of(heads, grid), 1e-10)


@given(heads_on_grids(("quadratic", "generalised")))
def test_features_give_the_softmax_of_the_scores(drawn):
    encoding, grid = drawn
    queries, keys = encoding.operators().features(grid, torch.float64)
    attention = (queries @ keys.mT).softmax(-1)
    assert_same_output(attention, scores_of(encoding.operators(), grid).softmax(-1), 1e-9)


@given(heads_on_grids(("quadratic", "generalised", "learned", "sinusoidal")), st.integers(0, 2**16))
def test_vectors_meet_relative_positions(drawn, seed):
    """`directed_scores`, their parts and their features against r_delta by loops over Python numbers."""
    encoding, grid = drawn
    heads, generator = encoding.operators(), torch.Generator().manual_seed(seed)
    toward = torch.randn(2, grid.shape[0], heads.d_position, dtype=torch.float64, generator=generator)
    rows = [[vector(encoding, delta) for delta in row] for row in grid.displacements().tolist()]
    expected = torch.einsum("bqp,qkp->bqk", toward, torch.tensor(rows, dtype=torch.float64))
    assert_same_output(heads.directed_scores(toward, grid, grid.every_query()), expected, 1e-9)
    if heads.is_separable:
        coordinates = grid.key_coordinates()
        for queries in (None, grid.every_query()):
            parts = heads.directed_parts(toward, grid, queries)
            total = sum(part[..., coordinates[:, axis]] for axis, part in enumerate(parts))
            assert_same_output(total, expected, 1e-9)
    if heads.has_features:
        keys = heads.features(grid, torch.float64)[1][0, 0]
        attention = (heads.directed_features(toward, grid) @ keys.mT).softmax(-1)
        assert_same_output(attention, expected.softmax(-1), 1e-9)
        squares, linear = heads.split(toward)
        assert squares.shape[-1] + linear.shape[-1] == heads.d_position
        assert linear.shape[-1] == len(grid.keys)


@given(heads_on_grids())
def test_sizes_make_heads_of_the_same_shapes_and_are_printed(drawn):
    heads = drawn[0].operators()
    again = KNOWN[heads.name].of_sizes(heads.sizes)
    assert again.sizes == heads.sizes
    assert (again.heads, again.dimensions, again.d_position) == (heads.heads, heads.dimensions, heads.d_position)
    assert heads.shared <= {"tables"}
    assert str(again).startswith(f"{heads.name}, heads={heads.heads}, ")
    assert set(re.findall(r"\d+", str(again))) >= {str(size) for size in heads.sizes}


@given(geometries())
def test_a_grid_counts_places_and_displacements(geometry):
    """Against loops over coordinates."""
    sides, padding, sites = geometry
    grid = AttentionGrid(padding.sides(sides), sites)
    keys = [tuple(place) for place in grid.key_coordinates().tolist()]
    assert keys == sorted(set(keys))
    assert len(keys) == grid.shape[1] == math.prod(grid.keys)
    queries = list(zip(*[part.tolist() for part in grid.coordinates(grid.every_query())], strict=True))
    places = [tuple(b + s * i for b, s, i in zip(sites.before, sites.stride, q, strict=True)) for q in queries]
    assert len(places) == grid.shape[0] == math.prod(grid.queries)
    assert set(places) <= set(keys)
    expected = [[[k - p for k, p in zip(key, place, strict=True)] for key in keys] for place in places]
    assert grid.displacements().tolist() == expected
    for axis in range(len(sides)):
        assert grid.longest_shift(axis) == max(abs(d[axis]) for row in expected for d in row)
    offset = tuple(expected[0][0])
    squares = [[sum((a - b) ** 2 for a, b in zip(away, offset, strict=True)) for away in row] for row in expected]
    assert grid.squared_distance(offset).tolist() == squares
    assert grid.contains_targets(offset) == all(
        tuple(p + o for p, o in zip(place, offset, strict=True)) in set(keys) for place in places
    )
    assert grid.sites.without_stride().count(grid.keys) == tuple(
        k - b for k, b in zip(grid.keys, sites.before, strict=True)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_drawn(family):
    """Planted: a family that no strategy knows."""
    assert set(FAMILIES) == set(KNOWN)
    assert encoding_for(family, 2, (3, 4), torch.Generator()).operators().name == family
