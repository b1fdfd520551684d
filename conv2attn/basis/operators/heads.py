"""Rules that every family of positional heads shares: their softmaxes are full matrices."""

import math

import torch
from torch import Tensor

from conv2attn.basis.grid import Sides
from conv2attn.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.basis.operators.learned import LearnedSoftmax
from conv2attn.basis.operators.quadratic import QuadraticSoftmax
from conv2attn.basis.operators.rules import as_matrix, combine, entries, terms
from conv2attn.basis.operators.sinusoidal import SinusoidalSoftmax

Heads = EnumeratedSoftmax | GeneralisedSoftmax | LearnedSoftmax | QuadraticSoftmax | SinusoidalSoftmax


@combine.register
def _(operator: Heads, images: Tensor, sides: Sides) -> Tensor:
    matrix = as_matrix(operator, sides).to(images)
    return torch.einsum("t...k,tqk->...q", images.flatten(-len(sides)), matrix).unflatten(-1, sides)


@entries.register
def _(operator: Heads, sides: Sides) -> int:
    return terms(operator) * math.prod(sides) ** 2
