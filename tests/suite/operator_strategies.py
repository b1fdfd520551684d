"""Hypothesis strategies of grids and of the operators that mix their tokens."""

from typing import Any

import torch
from hypothesis import strategies as st

from conv2attn.theory.basis import (
    MODES,
    Composition,
    Dense,
    Operator,
    Padding,
    QuadraticSoftmax,
    Shift,
    Sides,
    Sites,
    output_sides,
)
from suite.tensor_strategies import integer_tensors


def tuples_of(strategy: st.SearchStrategy[Any], axes: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Independent values for each axis."""
    return st.tuples(*[strategy] * axes)


def grids(dimensions: int = 2, largest: int = 5) -> st.SearchStrategy[Sides]:
    """Sides of a grid, drawn independently."""
    return tuples_of(st.integers(1, largest), dimensions)


@st.composite
def paddings(draw: st.DrawFn, sides: Sides, largest: int = 3) -> Padding:
    """Paddings that a grid with these sides accepts: each mode, uneven amounts, crops, and stuffed zeros."""
    mode = draw(st.sampled_from([*MODES]))
    most = [int(min(largest, MODES[mode].most(side))) for side in sides]
    before, after = (tuple(draw(st.integers(0, limit)) for limit in most) for _ in range(2))
    if mode != "zeros":
        return Padding(before, after, mode)
    if draw(st.booleans()):
        before = tuple(-draw(st.integers(0, (side - 1) // 2)) for side in sides)
    return Padding(before, after, mode, draw(tuples_of(st.integers(1, 3), len(sides))))


@st.composite
def sites_on(draw: st.DrawFn, sides: Sides) -> Sites:
    """Queries on a key grid with these sides: strides, and margins without queries."""
    before = tuple(draw(st.integers(0, side - 1)) for side in sides)
    after = tuple(draw(st.integers(0, side - 1 - b)) for side, b in zip(sides, before, strict=True))
    return Sites(draw(tuples_of(st.integers(1, 3), len(sides))), before, after)


def shifts(dimensions: int = 2, largest: int = 4) -> st.SearchStrategy[Shift]:
    """Families of shifts, some of them off every small grid."""
    offsets = tuples_of(st.integers(-largest, largest), dimensions)
    return st.lists(offsets, min_size=1, max_size=3).map(tuple).map(Shift)


def softmaxes(dimensions: int = 2) -> st.SearchStrategy[QuadraticSoftmax]:
    """One or two quadratic heads with real centres, from flat to hard."""
    center = tuples_of(st.floats(-3, 3, width=32), dimensions)
    head = st.tuples(center, st.sampled_from([0.0, 0.25, 1.0, 7.5, 1024.0]))

    def family(heads: list[tuple[tuple[float, ...], float]]) -> QuadraticSoftmax:
        centers, alphas = zip(*heads, strict=True)
        return QuadraticSoftmax(torch.tensor(centers, dtype=torch.float64), torch.tensor(alphas, dtype=torch.float64))

    return st.lists(head, min_size=1, max_size=2).map(family)


@st.composite
def operators_on(draw: st.DrawFn, sides: Sides, depth: int = 1) -> Operator:
    """Operators of every kind on a grid with these sides; compositions of up to three, `depth` deep."""
    numbers = integer_tensors((2, 2, torch.Size(sides).numel()), torch.float64, 8)
    kinds: list[st.SearchStrategy[Any]] = [
        shifts(len(sides)),
        softmaxes(len(sides)),
        paddings(sides),
        sites_on(sides),
        numbers.map(lambda matrix: Dense(matrix, (2, *[1] * (len(sides) - 1)))),
    ]
    if depth:
        kinds.append(compositions_on(sides, depth - 1))
    return draw(st.one_of(kinds))


@st.composite
def compositions_on(draw: st.DrawFn, sides: Sides, depth: int = 0) -> Composition:
    """Products of one to three operators, the last of which acts on a grid with these sides."""
    factors: list[Operator] = []
    for _ in range(draw(st.integers(1, 3))):
        factors.insert(0, draw(operators_on(sides, depth)))
        sides = output_sides(factors[0], sides)
    return Composition(tuple(factors))
