"""The geometry of a layer as operators of one term: padding makes the keys, and sites select the queries."""

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid, Sides, Sites
from conv2attn.theory.basis.operator import apply, as_matrix, combine, output_sides, terms
from conv2attn.theory.basis.padding import Padding


@terms.register
def _(operator: Padding | Sites) -> int:
    return 1


@output_sides.register
def _(operator: Padding, sides: Sides) -> Sides:
    return operator.sides(sides)


@as_matrix.register
def _(operator: Padding, sides: Sides) -> Tensor:
    # Padding acts on each axis by itself, so its matrix is a Kronecker product. `ZERO` is no pixel's number, so its row
    # is zero.
    matrix = torch.ones(1, 1, dtype=torch.float64)
    for axis, side in enumerate(sides):
        source = operator.source(axis, side)
        copies = source[:, None] == torch.arange(side)
        matrix = torch.kron(matrix, copies.double())
    return matrix[None]


@apply.register
def _(operator: Padding, image: Tensor, sides: Sides) -> Tensor:
    return operator.pad(image)[None]


@output_sides.register
def _(operator: Sites, sides: Sides) -> Sides:
    return operator.count(sides)


@as_matrix.register
def _(operator: Sites, sides: Sides) -> Tensor:
    return (AttentionGrid(sides, operator).squared_distance((0,) * len(sides)) == 0).double()[None]


@apply.register
def _(operator: Sites, image: Tensor, sides: Sides) -> Tensor:
    return image[operator.view(sides, (0,) * len(sides))][None]


@combine.register
def _(operator: Padding | Sites, images: Tensor, sides: Sides) -> Tensor:
    (image,) = images
    return apply(operator, image, sides)[0]
