"""The functions that every family of operators `P_k` implements, by one rule per family."""

from functools import singledispatch

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError
from conv2attn.theory.basis.grid import Offset, Sides
from conv2attn.theory.basis.operator import Operator


def without_rule(question: str, operator: object) -> UnsupportedError:
    """The error for a family that has no rule for a function."""
    return UnsupportedError(
        "C2A110",
        f"{question} has no rule for {type(operator).__name__}",
        f"Register a rule for {question}, or pass the operator as Dense.",
    )


@singledispatch
def terms(operator: object) -> int:
    """Number of operators `P_k` in the family."""
    raise without_rule("terms", operator)


@singledispatch
def output_sides(operator: object, sides: Sides) -> Sides:
    """Sides of the grid that `operator` maps a grid with these `sides` to."""
    raise without_rule("output_sides", operator)


@singledispatch
def as_matrix(operator: object, sides: Sides) -> Tensor:
    """The token-mixing matrices on a grid: float64, on the CPU, (terms, queries, keys)."""
    raise without_rule("as_matrix", operator)


@singledispatch
def apply(operator: object, image: Tensor, sides: Sides) -> Tensor:
    """Each `P_k` applied to `image` (..., *sides): (terms, ..., *queries); by the matrix where a family has no rule."""
    raise without_rule("apply", operator)


@apply.register
def _(operator: Operator, image: Tensor, sides: Sides) -> Tensor:
    matrix, queries = as_matrix(operator, sides).to(image), output_sides(operator, sides)
    return torch.einsum("...k,tqk->t...q", image.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def combine(operator: object, images: Tensor, sides: Sides) -> Tensor:
    """`sum_k P_k x_k` for images (terms, ..., *sides): (..., *queries); by the matrix where a family has no rule."""
    raise without_rule("combine", operator)


@combine.register
def _(operator: Operator, images: Tensor, sides: Sides) -> Tensor:
    matrix, queries = as_matrix(operator, sides).to(images), output_sides(operator, sides)
    return torch.einsum("t...k,tqk->...q", images.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def offsets(operator: Operator) -> tuple[Offset, ...]:
    """The offset of the target of each operator: that of a shift, and the pixel nearest to the finite centre of a head.

    Raises:
        UnsupportedError: the family has no targets that are the same for every query (C2A110).
    """
    if operator.centers is None:
        raise without_rule("offsets", operator)
    return tuple(tuple(round(x) for x in center) for center in operator.centers.tolist())
