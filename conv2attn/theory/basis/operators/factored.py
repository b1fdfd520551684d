"""Any token mixing by its matrices, and matrices in few numbers: diagonal, and of low rank."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.basis.operators.rules import apply, as_matrix, combine, entries, output_sides, terms


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


@final
@dataclass(frozen=True, eq=False)
class Diagonal(Operator):
    """In term t, each token reads itself with its own weight: `weights` (terms, *sides)."""

    weights: Tensor


@final
@dataclass(frozen=True, eq=False)
class LowRank(Operator):
    """`P_t = left_t right_t^T`: left (terms, queries, rank), right (terms, keys, rank); queries have sides `output`."""

    left: Tensor
    right: Tensor
    output: Sides


@terms.register
def _(operator: Diagonal) -> int:
    return len(operator.weights)


@terms.register
def _(operator: LowRank) -> int:
    return len(operator.left)


@output_sides.register
def _(operator: Diagonal, sides: Sides) -> Sides:
    if operator.weights.shape[1:] != sides:
        raise GeometryError(
            "C2A122",
            f"a diagonal of {tuple(operator.weights.shape[1:])} does not map {sides}",
            "Pass one entry for each token.",
        )
    return sides


@output_sides.register
def _(operator: LowRank, sides: Sides) -> Sides:
    if (operator.left.shape[1], operator.right.shape[1]) != (math.prod(operator.output), math.prod(sides)):
        shapes = f"{tuple(operator.left.shape)} and {tuple(operator.right.shape)}"
        raise GeometryError(
            "C2A122",
            f"factors {shapes} do not map {sides} to {operator.output}",
            "Pass factors whose inner sizes agree.",
        )
    return operator.output


@entries.register
def _(operator: Diagonal, sides: Sides) -> int:
    return operator.weights.numel()


@entries.register
def _(operator: LowRank, sides: Sides) -> int:
    return operator.left.numel() + operator.right.numel()


@as_matrix.register
def _(operator: Diagonal, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.diag_embed(operator.weights.cpu().double().flatten(1))


@as_matrix.register
def _(operator: LowRank, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return operator.left.cpu().double() @ operator.right.cpu().double().mT


@apply.register
def _(operator: Diagonal, image: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    lead = [1] * (image.ndim - len(sides))
    return image * operator.weights.to(image).reshape(-1, *lead, *sides)


@apply.register
def _(operator: LowRank, image: Tensor, sides: Sides) -> Tensor:
    queries = output_sides(operator, sides)
    # The image passes through the rank, so no matrix of (queries, keys) is formed.
    inner = torch.einsum("...k,tkr->t...r", image.flatten(-len(sides)), operator.right.to(image))
    return torch.einsum("t...r,tqr->t...q", inner, operator.left.to(image)).unflatten(-1, queries)


@combine.register
def _(operator: Diagonal, images: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    lead = [1] * (images.ndim - len(sides) - 1)
    return (images * operator.weights.to(images).reshape(-1, *lead, *sides)).sum(0)


@combine.register
def _(operator: LowRank, images: Tensor, sides: Sides) -> Tensor:
    queries = output_sides(operator, sides)
    inner = torch.einsum("t...k,tkr->t...r", images.flatten(-len(sides)), operator.right.to(images))
    return torch.einsum("t...r,tqr->...q", inner, operator.left.to(images)).unflatten(-1, queries)
