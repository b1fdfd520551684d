"""Rules that every family of positional heads shares: their softmaxes are full matrices, one a head."""

import math

import torch
from torch import Tensor

from conv2attn.basis.grid import Sides
from conv2attn.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.basis.operators.learned import LearnedSoftmax
from conv2attn.basis.operators.quadratic import QuadraticSoftmax
from conv2attn.basis.operators.rules import apply, as_matrix, combine, entries, output_sides, terms
from conv2attn.basis.operators.sinusoidal import SinusoidalSoftmax
from conv2attn.basis.operators.softmax import whole_matrix

Whole = EnumeratedSoftmax | GeneralisedSoftmax | LearnedSoftmax | SinusoidalSoftmax
Heads = QuadraticSoftmax | Whole


@terms.register
def _(operator: Heads) -> int:
    return operator.heads


@output_sides.register
def _(operator: Heads, sides: Sides) -> Sides:
    return sides


@as_matrix.register
def _(operator: Heads, sides: Sides) -> Tensor:
    return whole_matrix(operator, sides)


@apply.register
def _(operator: Whole, image: Tensor, sides: Sides) -> Tensor:
    matrix = as_matrix(operator, sides).to(image)
    return torch.einsum("...k,tqk->t...q", image.flatten(-len(sides)), matrix).unflatten(-1, sides)


@combine.register
def _(operator: Heads, images: Tensor, sides: Sides) -> Tensor:
    matrix = as_matrix(operator, sides).to(images)
    return torch.einsum("t...k,tqk->...q", images.flatten(-len(sides)), matrix).unflatten(-1, sides)


@entries.register
def _(operator: Heads, sides: Sides) -> int:
    return terms(operator) * math.prod(sides) ** 2
