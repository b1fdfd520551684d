"""The operators that mix tokens: each is a matrix with one row a query and one column a key.

`as_matrix` is the definition in float64, `apply` the same map on images; each operator has one rule for either.
"""

import math
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid, Offset, Sides, Sites
from conv2attn.basis.padding import ZERO, Padding
from conv2attn.errors import GeometryError, UnsupportedError


@final
@dataclass(frozen=True)
class Shift:
    """Query q reads key q + offset and nothing else; zero where that is off the grid."""

    offset: Offset


@final
@dataclass(frozen=True)
class QuadraticSoftmax:
    """Query q reads the softmax over all keys k of `-alpha |k - q - center|^2` (Cordonnier et al. 2020, Eq. 9)."""

    center: tuple[float, ...]
    alpha: float


@final
@dataclass(frozen=True, eq=False)
class Dense:
    """Any token mixing, by its matrix (queries, keys), from a grid of any shape to one with sides `output`."""

    matrix: Tensor
    output: Sides


@final
@dataclass(frozen=True)
class Composition:
    """The product of operators, written as matrices are: the last is applied first."""

    factors: tuple["Operator", ...]


Operator = Shift | QuadraticSoftmax | Dense | Composition | Padding | Sites


@singledispatch
def output_sides(operator: object, sides: Sides) -> Sides:
    """Sides of the grid that `operator` maps a grid with these `sides` to."""
    raise UnsupportedError("C2A110", f"output_sides has no rule for {type(operator).__name__}")


@singledispatch
def as_matrix(operator: object, sides: Sides) -> Tensor:
    """The token-mixing matrix of `operator` on a grid: float64, one row a query, one column a key."""
    raise UnsupportedError("C2A110", f"as_matrix has no rule for {type(operator).__name__}")


@singledispatch
def apply(operator: object, image: Tensor, sides: Sides) -> Tensor:
    """`operator` applied to `image` (..., *sides): the map of `as_matrix` without building the matrix."""
    raise UnsupportedError("C2A110", f"apply has no rule for {type(operator).__name__}")


@output_sides.register(Shift)
@output_sides.register(QuadraticSoftmax)
def _(operator: Shift | QuadraticSoftmax, sides: Sides) -> Sides:
    return sides


@as_matrix.register
def _(operator: Shift, sides: Sides) -> Tensor:
    return (AttentionGrid(sides, Sites.everywhere(len(sides))).squared_distance(operator.offset) == 0).double()


@apply.register
def _(operator: Shift, image: Tensor, sides: Sides) -> Tensor:
    reach = tuple(max(-side, min(side, o)) for o, side in zip(operator.offset, sides, strict=True))
    return Padding(tuple(-r for r in reach), reach).pad(image)


@as_matrix.register
def _(operator: QuadraticSoftmax, sides: Sides) -> Tensor:
    displacement = AttentionGrid(sides, Sites.everywhere(len(sides))).displacements()
    squared = (displacement - torch.tensor(operator.center, dtype=torch.float64)).square().sum(-1)
    return torch.softmax(-operator.alpha * squared, -1)


@apply.register
def _(operator: QuadraticSoftmax, image: Tensor, sides: Sides) -> Tensor:
    for axis, side in enumerate(sides):
        alone = as_matrix(QuadraticSoftmax(operator.center[axis : axis + 1], operator.alpha), (side,))
        mixed = torch.movedim(image, axis - len(sides), -1) @ alone.to(image).T
        image = torch.movedim(mixed, -1, axis - len(sides))
    return image


@output_sides.register
def _(operator: Dense, sides: Sides) -> Sides:
    if operator.matrix.shape != (math.prod(operator.output), math.prod(sides)):
        raise GeometryError("C2A121", f"a matrix {tuple(operator.matrix.shape)} does not map {sides}")
    return operator.output


@as_matrix.register
def _(operator: Dense, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return operator.matrix.double()


@apply.register
def _(operator: Dense, image: Tensor, sides: Sides) -> Tensor:
    queries = output_sides(operator, sides)
    return (image.flatten(-len(sides)) @ operator.matrix.to(image).T).unflatten(-1, queries)


@output_sides.register
def _(operator: Composition, sides: Sides) -> Sides:
    return reduce(lambda s, factor: output_sides(factor, s), reversed(operator.factors), sides)


@as_matrix.register
def _(operator: Composition, sides: Sides) -> Tensor:
    product = torch.eye(math.prod(sides), dtype=torch.float64)
    for factor in reversed(operator.factors):
        product, sides = as_matrix(factor, sides) @ product, output_sides(factor, sides)
    return product


@apply.register
def _(operator: Composition, image: Tensor, sides: Sides) -> Tensor:
    for factor in reversed(operator.factors):
        image, sides = apply(factor, image, sides), output_sides(factor, sides)
    return image


@output_sides.register
def _(operator: Padding, sides: Sides) -> Sides:
    return operator.sides(sides)


@as_matrix.register
def _(operator: Padding, sides: Sides) -> Tensor:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    for axis, side in enumerate(sides):
        source = operator.source(axis, side)
        copies = (source[:, None] == torch.arange(side)) & (source != ZERO)[:, None]
        matrix = torch.kron(matrix, copies.double())
    return matrix


@apply.register
def _(operator: Padding, image: Tensor, sides: Sides) -> Tensor:
    return operator.pad(image)


@output_sides.register
def _(operator: Sites, sides: Sides) -> Sides:
    return operator.count(sides)


@as_matrix.register
def _(operator: Sites, sides: Sides) -> Tensor:
    return (AttentionGrid(sides, operator).squared_distance((0,) * len(sides)) == 0).double()


@apply.register
def _(operator: Sites, image: Tensor, sides: Sides) -> Tensor:
    return image[operator.view(sides, (0,) * len(sides))]
