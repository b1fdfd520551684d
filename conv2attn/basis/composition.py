"""Proposition 3 of Andreoli 2019: composing two basis convolutions multiplies their bases and their parameters."""

from dataclasses import replace

import torch
from torch import Tensor

from conv2attn.basis.convolution import BasisConvolution, field
from conv2attn.basis.grid import Sides
from conv2attn.basis.operators import Composition, Operator, apply, as_matrix, output_sides
from conv2attn.errors import UsageError


def compose(second: BasisConvolution, first: BasisConvolution, sides: Sides) -> BasisConvolution:
    """`second` after `first` as one basis convolution of inputs with these sides, borders and biases included.

    Its terms are `(P''_j P'_k, M''_j M'_k)` for all j, k, in that order, and its bias is the field
    `b'' + sum_j (P''_j b') M''_j^T`, which varies over the queries where `second` pads with zeros.

    Raises:
        UsageError: the channels do not fit.
    Source: Andreoli 2019, Proposition 3.
    """
    if second.d_in != first.d_out:
        raise UsageError("C2A120", f"the second layer reads {second.d_in} channels, the first gives {first.d_out}")
    weights = torch.einsum("joc,kci->jkoi", second.dense_weights(), first.dense_weights()).flatten(0, 1)
    operators = tuple(Composition((p, q)) for p in second.operators for q in first.operators)
    between = output_sides(first.operators[0], sides)
    carried = field(first, sides).expand(first.d_out, *between)
    bias = field(second, between) + sum(
        torch.einsum("oc,c...->o...", matrix, apply(operator, carried, between))
        for operator, matrix in zip(second.operators, second.dense_weights(), strict=True)
    )
    return BasisConvolution(operators, weights, bias)


def merged(basis: BasisConvolution, sides: Sides) -> BasisConvolution:
    """The same map at these sides with one term for each distinct `P_k`: equal maps add up their `M_k`."""
    places: dict[bytes, int] = {}
    kept: list[Operator] = []
    sums: list[Tensor] = []
    for operator, weight in zip(basis.operators, basis.weights, strict=True):
        place = places.setdefault(as_matrix(operator, sides).numpy().tobytes(), len(kept))
        if place == len(kept):
            kept.append(operator)
            sums.append(weight)
        else:
            sums[place] = sums[place] + weight
    return replace(basis, operators=tuple(kept), weights=torch.stack(sums))
