"""Token mixings given by their entries: a dense matrix, or the weighted edges of a graph."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator, apply, as_matrix, combine, moved_to, output_sides, terms
from conv2attn.theory.basis.operators.pattern import Pattern, weighted_sum


@final
@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """Token mixings given as a `matrix` (terms, queries, keys), from any grid to a grid with sides `output`."""

    matrix: Tensor
    output: Sides


@terms.register
def _(operator: Dense) -> int:
    return len(operator.matrix)


@output_sides.register
def _(operator: Dense, sides: Sides) -> Sides:
    if operator.matrix.shape[1:] != (math.prod(operator.output), math.prod(sides)):
        raise GeometryError(
            "C2A121",
            f"matrices {tuple(operator.matrix.shape)} do not map {sides}",
            "Pass matrices with a column for each key of these sides.",
        )
    return operator.output


@as_matrix.register
def _(operator: Dense, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return operator.matrix.cpu().double()


@final
@dataclass(frozen=True, eq=False)
class Sparse(Operator):
    """In term t, query q reads key k with `weights[t, e]` for each pair e = (q, k) of `pattern`; equal pairs add up.

    Args:
        pattern: the pairs, the same in every term.
        weights: (terms, pairs).
        output: sides of the grid of the queries; for a graph one side, the number of its nodes.
    """

    pattern: Pattern
    weights: Tensor
    output: Sides

    @staticmethod
    def from_edges(edges: Tensor, weights: Tensor, nodes: int) -> "Sparse":
        """Operators in which node `edges[1, e]` reads node `edges[0, e]`, with weights (edges) or (terms, edges)."""
        pattern, order = Pattern.sorted(edges[1], edges[0], (nodes, nodes))
        if weights.shape[-1:] != order.shape:
            raise GeometryError(
                "C2A122", f"{len(order)} edges have weights {tuple(weights.shape)}", "Pass one weight for each edge."
            )
        return Sparse(pattern, torch.atleast_2d(weights).index_select(1, order), (nodes,))


@terms.register
def _(operator: Sparse) -> int:
    return len(operator.weights)


@output_sides.register
def _(operator: Sparse, sides: Sides) -> Sides:
    if operator.pattern.shape != (math.prod(operator.output), math.prod(sides)):
        raise GeometryError(
            "C2A122",
            f"edges between {operator.pattern.shape} tokens do not map {sides}",
            "Pass sides with as many tokens as the edges have.",
        )
    return operator.output


@as_matrix.register
def _(operator: Sparse, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    matrix = torch.zeros(terms(operator), *operator.pattern.shape, dtype=torch.float64)
    pattern = moved_to(operator.pattern, "cpu")
    place = (torch.arange(terms(operator))[:, None], pattern.queries, pattern.keys)
    # Entries accumulate, since a pattern may hold a pair twice: two edges from one node to another.
    return matrix.index_put(place, operator.weights.cpu().double(), accumulate=True)


@apply.register
def _(operator: Sparse, image: Tensor, sides: Sides) -> Tensor:
    tokens = as_tokens(image, sides)
    mixed = [weighted_sum(operator.pattern, weights, tokens) for weights in operator.weights]
    images = [from_tokens(tokens, image.shape[: -len(sides)], output_sides(operator, sides)) for tokens in mixed]
    return torch.stack(images) if images else image.new_zeros(0, *image.shape[: -len(sides)], *operator.output)


@combine.register
def _(operator: Sparse, images: Tensor, sides: Sides) -> Tensor:
    # The products are added to one matrix of tokens, so the terms are never stacked.
    total = images[0].new_zeros(1, 1)
    for weights, image in zip(operator.weights, images, strict=True):
        total = total + weighted_sum(operator.pattern, weights, as_tokens(image, sides))
    return from_tokens(total, images[0].shape[: -len(sides)], output_sides(operator, sides))


def as_tokens(image: Tensor, sides: Sides) -> Tensor:
    """`image` (..., *sides) as a matrix (tokens, rest); a view if the tokens are the slowest axis in memory."""
    return image.flatten(-len(sides)).movedim(-1, 0).reshape(math.prod(sides), math.prod(image.shape[: -len(sides)]))


def from_tokens(tokens: Tensor, lead: Sides, sides: Sides) -> Tensor:
    """The image (*lead, *sides) of a matrix (tokens, rest)."""
    return tokens.reshape(len(tokens), *lead).movedim(0, -1).unflatten(-1, sides)
