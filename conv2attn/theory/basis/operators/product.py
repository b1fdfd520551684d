"""Products of operators: one after the other."""

import math
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.basis.operators.rules import apply, as_matrix, combine, output_sides, terms


@final
@dataclass(frozen=True)
class Composition(Operator):
    """The products of the factors' operators, written as matrices are: the last factor is applied first.

    Its terms are all combinations of one term per factor; those of the first factor change slowest.
    """

    factors: tuple[Operator, ...]


@terms.register
def _(operator: Composition) -> int:
    return math.prod(map(terms, operator.factors))


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
