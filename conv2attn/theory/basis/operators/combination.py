"""Families made of families: their products, their terms side by side, and linear combinations of their terms."""

import math
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import Sides, Sites
from conv2attn.theory.basis.operator import Operator, apply, as_matrix, combine, output_sides, terms


@final
@dataclass(frozen=True)
class Concatenation(Operator):
    """The terms of the first family, then those of the second, and so on.

    Examples are the forward and the backward walk of a diffusion convolution on a graph, and the relations of a
    relational graph convolution.
    """

    families: tuple[Operator, ...]


@final
@dataclass(frozen=True, eq=False)
class Combination(Operator):
    """`P_h = sum_k coefficients[h, k] A_k` of a `family` A: `Theta^(basis)` of a separable convolution (Eq. 9).

    Source: Andreoli 2019, Sec. 1.3.
    """

    coefficients: Tensor
    family: Operator


@terms.register
def _(operator: Concatenation) -> int:
    return sum(map(terms, operator.families))


@terms.register
def _(operator: Combination) -> int:
    return len(operator.coefficients)


@output_sides.register
def _(operator: Concatenation, sides: Sides) -> Sides:
    outputs = {output_sides(family, sides) for family in operator.families}
    if len(outputs) != 1:
        raise GeometryError(
            "C2A122",
            f"the families map {sides} to different sides: {sorted(outputs)}",
            "Concatenate families with the same output sides.",
        )
    return outputs.pop()


@output_sides.register
def _(operator: Combination, sides: Sides) -> Sides:
    if operator.coefficients.shape[1:] != (terms(operator.family),):
        shape = tuple(operator.coefficients.shape)
        raise GeometryError(
            "C2A122",
            f"coefficients {shape} do not combine {terms(operator.family)} terms",
            "Pass one column of coefficients for each term.",
        )
    return output_sides(operator.family, sides)


@as_matrix.register
def _(operator: Concatenation, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.cat([as_matrix(family, sides) for family in operator.families])


@as_matrix.register
def _(operator: Combination, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.einsum("ht,tqk->hqk", operator.coefficients.cpu().double(), as_matrix(operator.family, sides))


@apply.register
def _(operator: Concatenation, image: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.cat([apply(family, image, sides) for family in operator.families])


@apply.register
def _(operator: Combination, image: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.einsum("ht,t...->h...", operator.coefficients.to(image), apply(operator.family, image, sides))


@combine.register
def _(operator: Concatenation, images: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    parts = images.split([terms(family) for family in operator.families])
    pairs = zip(operator.families, parts, strict=True)
    return torch.stack([combine(family, part, sides) for family, part in pairs]).sum(0)


@combine.register
def _(operator: Combination, images: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    # sum_h (sum_k c_hk A_k) x_h = sum_k A_k (sum_h c_hk x_h): the images are summed first, so each A_k is applied once.
    spread = torch.einsum("ht,h...->t...", operator.coefficients.to(images), images)
    return combine(operator.family, spread, sides)


@final
@dataclass(frozen=True)
class Composition(Operator):
    """The matrix products of the factors' operators, so the last factor is applied to the image first.

    Its terms are all combinations of one term per factor; those of the first factor change slowest.
    """

    factors: tuple[Operator | Sites, ...]


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
