"""Products of operators: one after the other, or one for each axis."""

import math
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.basis.operators.rules import apply, as_matrix, combine, entries, output_sides, terms


@final
@dataclass(frozen=True)
class Composition(Operator):
    """The products of the factors' operators, written as matrices are: the last factor is applied first.

    Its terms are all combinations of one term per factor; those of the first factor change slowest.
    """

    factors: tuple[Operator, ...]


@output_sides.register
def _(operator: Composition, sides: Sides) -> Sides:
    return reduce(lambda s, factor: output_sides(factor, s), reversed(operator.factors), sides)


@as_matrix.register
def _(operator: Composition, sides: Sides) -> Tensor:
    product = torch.eye(math.prod(sides), dtype=torch.float64)[None]
    for factor in reversed(operator.factors):
        product = (as_matrix(factor, sides)[:, None] @ product).flatten(0, 1)
        sides = output_sides(factor, sides)
    return product


@apply.register
def _(operator: Composition, image: Tensor, sides: Sides) -> Tensor:
    image = image[None]
    for factor in reversed(operator.factors):
        image, sides = apply(factor, image, sides).flatten(0, 1), output_sides(factor, sides)
    return image


@combine.register
def _(operator: Composition, images: Tensor, sides: Sides) -> Tensor:
    for factor in reversed(operator.factors):
        groups = images.unflatten(0, (-1, terms(factor)))
        images = torch.stack([combine(factor, group, sides) for group in groups])
        sides = output_sides(factor, sides)
    return images[0]


@entries.register
def _(operator: Composition, sides: Sides) -> int:
    total, copies = 0, 1
    for factor in reversed(operator.factors):
        total, copies = total + copies * entries(factor, sides), copies * terms(factor)
        sides = output_sides(factor, sides)
    return total


@final
@dataclass(frozen=True)
class Kronecker(Operator):
    """The Kronecker products of one operator per axis, each of which maps a grid of that axis alone.

    Its terms are all combinations of one term per factor; those of the first axis change slowest.
    """

    factors: tuple[Operator, ...]


@terms.register(Composition)
@terms.register(Kronecker)
def _(operator: Composition | Kronecker) -> int:
    return math.prod(map(terms, operator.factors))


@output_sides.register
def _(operator: Kronecker, sides: Sides) -> Sides:
    return tuple(output_sides(factor, (side,))[0] for factor, side in zip(operator.factors, sides, strict=True))


@entries.register
def _(operator: Kronecker, sides: Sides) -> int:
    total, copies, outputs = 0, 1, output_sides(operator, sides)
    for axis in reversed(range(len(sides))):
        lines = copies * math.prod((*sides[:axis], *outputs[axis + 1 :]))
        total += lines * entries(operator.factors[axis], (sides[axis],))
        copies *= terms(operator.factors[axis])
    return total


@as_matrix.register
def _(operator: Kronecker, sides: Sides) -> Tensor:
    axes = [as_matrix(factor, (side,)) for factor, side in zip(operator.factors, sides, strict=True)]
    return reduce(lambda a, b: torch.stack([torch.kron(x, y) for x in a for y in b]), axes)


@apply.register
def _(operator: Kronecker, image: Tensor, sides: Sides) -> Tensor:
    mixed = image[None]
    for axis in reversed(range(len(sides))):
        # Axis by axis: the product matrix would have an entry for every pair of pixels. From the last axis on, so that
        # the terms of the first axis come to stand in front.
        lines = mixed.movedim(axis - len(sides), -1)
        mixed = apply(operator.factors[axis], lines, (sides[axis],)).movedim(-1, axis - len(sides)).flatten(0, 1)
    return mixed


@combine.register
def _(operator: Kronecker, images: Tensor, sides: Sides) -> Tensor:
    for axis in reversed(range(len(sides))):
        factor = operator.factors[axis]
        lines = images.unflatten(0, (-1, terms(factor))).movedim(axis - len(sides), -1)
        images = torch.stack([combine(factor, group, (sides[axis],)) for group in lines])
        images = images.movedim(-1, axis - len(sides))
    return images[0]
