"""Polynomials of one operator, applied by recurrence, so that no power of the operator is formed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator, apply, as_matrix, combine, output_sides, terms


@dataclass(frozen=True)
class Polynomials(Operator):
    """Polynomials of degrees 0 to `order` of an operator L with one term; a subclass gives their recurrence."""

    operator: Operator
    order: int


@final
@dataclass(frozen=True)
class Chebyshev(Polynomials):
    """`T_0 = I, T_1 = L, T_k = 2 L T_(k-1) - T_(k-2)` up to k = `order`, of an operator L with one term.

    Source: Defferrard et al. 2016, Eq. (4).
    """


@final
@dataclass(frozen=True)
class Powers(Polynomials):
    """`I, L, L^2, ..., L^order` of an operator L with one term, such as a step of a walk (Li et al. 2018, Eq. 2)."""


@terms.register
def _(operator: Polynomials) -> int:
    return operator.order + 1


@output_sides.register
def _(operator: Polynomials, sides: Sides) -> Sides:
    if operator.order < 0 or terms(operator.operator) != 1 or output_sides(operator.operator, sides) != sides:
        what = f"{terms(operator.operator)} operators from {sides} to {output_sides(operator.operator, sides)}"
        raise GeometryError(
            "C2A122",
            f"{what} have no polynomials of order {operator.order}",
            "Pass a square operator, and an order from 0.",
        )
    return sides


@as_matrix.register
def _(operator: Polynomials, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    step = as_matrix(operator.operator, sides)[0]
    return torch.stack(sequence(operator, torch.eye(len(step), dtype=step.dtype), lambda x: step @ x))


@apply.register
def _(operator: Polynomials, image: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.stack(sequence(operator, image, lambda x: apply(operator.operator, x, sides)[0]))


def sequence(operator: Polynomials, first: Tensor, step: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """`P_k first` for all k, where `step` multiplies by L."""
    values = [first]
    for k in range(1, operator.order + 1):
        following = step(values[-1])
        values.append(2 * following - values[-2] if isinstance(operator, Chebyshev) and k > 1 else following)
    return values


@combine.register
def _(operator: Powers, images: Tensor, sides: Sides) -> Tensor:
    """Horner's rule."""
    output_sides(operator, sides)
    total = images[-1]
    for k in reversed(range(operator.order)):
        # `order` products with L in all; powers of L, applied to the image of each term, would take about order^2 / 2.
        total = images[k] + apply(operator.operator, total, sides)[0]
    return total


@combine.register
def _(operator: Chebyshev, images: Tensor, sides: Sides) -> Tensor:
    """Clenshaw's rule: `b_k = x_k + 2 L b_(k+1) - b_(k+2)`, and the sum is `x_0 + L b_1 - b_2`."""
    output_sides(operator, sides)
    if operator.order == 0:
        return images[0]
    later, last = images[-1], None
    for k in reversed(range(1, operator.order)):
        # None represents b_(order + 1) = 0, which is never formed.
        following = images[k] + 2 * apply(operator.operator, later, sides)[0]
        later, last = following if last is None else following - last, later
    total = images[0] + apply(operator.operator, later, sides)[0]
    return total if last is None else total - last
