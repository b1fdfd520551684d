"""Hypothesis strategies of operators on any tokens: sparse, polynomial, and sums of these."""

import torch
from hypothesis import strategies as st

from conv2attn.theory.basis import (
    Chebyshev,
    Combination,
    Concatenation,
    Pattern,
    Powers,
    Shift,
    Sides,
    Sparse,
    terms,
)
from suite.tensor_strategies import integer_tensors


@st.composite
def sparses(draw: st.DrawFn, sides: Sides, count: int | None = None, output: Sides | None = None) -> Sparse:
    """Graphs on the tokens of a grid: directed, weighted, with loops, equal edges, and nodes without any."""
    nodes = torch.Size(sides).numel()
    output = sides if output is None else output
    pairs = draw(st.integers(0, 2 * nodes))
    queries = draw(st.lists(st.integers(0, torch.Size(output).numel() - 1), min_size=pairs, max_size=pairs))
    keys = draw(st.lists(st.integers(0, nodes - 1), min_size=pairs, max_size=pairs))
    shape = (torch.Size(output).numel(), nodes)
    pattern, _ = Pattern.sorted(torch.tensor(queries).long(), torch.tensor(keys).long(), shape)
    number = draw(st.integers(1, 3)) if count is None else count
    return Sparse(pattern, draw(integer_tensors((number, pairs), torch.float64, 3)), output)


@st.composite
def polynomials(draw: st.DrawFn, sides: Sides) -> Chebyshev | Powers:
    """Polynomials up to order 3 of a graph or a shift."""
    shift = st.integers(-1, 1).map(lambda offset: Shift(((offset,) * len(sides),)))
    operator = draw(st.one_of(shift, sparses(sides, 1)))
    order = draw(st.integers(0, 3))
    return Chebyshev(operator, order) if draw(st.booleans()) else Powers(operator, order)


@st.composite
def sums(draw: st.DrawFn, sides: Sides) -> Concatenation | Combination:
    """Families side by side, and linear combinations of their terms."""
    kinds = st.one_of(sparses(sides), polynomials(sides))
    family = Concatenation(tuple(draw(st.lists(kinds, min_size=1, max_size=2))))
    if draw(st.booleans()):
        return family
    return Combination(draw(integer_tensors((2, terms(family)), torch.float64, 4)), family)
