"""Any token mixing, by its matrices."""

import math
from dataclasses import dataclass
from typing import final

from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.basis.operators.rules import as_matrix, output_sides, terms


@final
@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """Any token mixings: `matrix` (terms, queries, keys), from a grid of any shape to one with sides `output`."""

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
