"""Proposition 3 of Andreoli 2019: composing two basis convolutions multiplies their bases and their parameters.

Products of polynomials of one operator are polynomials of it: graph filters compose without more terms.
"""

import torch
from torch import Tensor

from conv2attn.basis.basis import Basis, basis_of, field
from conv2attn.basis.grid import Sides
from conv2attn.basis.operators import Composition, Dense, Powers, apply, as_matrix, output_sides
from conv2attn.basis.operators.polynomials import Polynomials
from conv2attn.basis.weights import Weights
from conv2attn.errors import UsageError


def compose(second: Basis, first: Basis, sides: Sides) -> Basis:
    """`second` after `first` as one basis of inputs with these sides, borders and biases included.

    Its terms are `(P''_j P'_k, M''_j M'_k)` for all j, k, in that order, and its bias is the field
    `b'' + sum_j (P''_j b') M''_j^T`, which varies over the queries where `second` pads with zeros.

    Raises:
        UsageError: the channels do not fit (C2A120).
    Source: Andreoli 2019, Proposition 3.
    """
    outer, inner = second.weights, first.weights
    if outer.d_in != inner.d_out:
        raise UsageError(
            "C2A120",
            f"the second layer reads {outer.d_in} channels, the first gives {inner.d_out}",
            "Pass a first layer that gives as many channels as the second reads.",
        )
    taps = torch.einsum("joc,kci->jkoi", outer.dense(), inner.dense()).flatten(0, 1)
    between = output_sides(first.mixing, sides)
    carried = apply(second.mixing, field(first, sides).expand(inner.d_out, *between), between)
    bias = field(second, between) + torch.einsum("toc,tc...->o...", outer.dense(), carried)
    return basis_of(Composition((second.mixing, first.mixing)), Weights(None, taps, bias), len(sides))


def merge_terms(basis: Basis, sides: Sides) -> Basis:
    """An equal basis at these sides with one term for each distinct `P_k`: its terms add up their `M_k`."""
    places: dict[bytes, int] = {}
    kept: list[Tensor] = []
    sums: list[Tensor] = []
    for matrix, taps in zip(as_matrix(basis.mixing, sides), basis.weights.taps(), strict=True):
        place = places.setdefault(matrix.numpy().tobytes(), len(kept))
        if place == len(kept):
            kept.append(matrix)
            sums.append(taps)
        else:
            sums[place] = sums[place] + taps
    weights = Weights(None, torch.stack(sums), basis.weights.bias, basis.weights.groups)
    return basis_of(Dense(torch.stack(kept), output_sides(basis.mixing, sides)), weights, len(sides))


def compose_filters(second: Basis, first: Basis, sides: Sides) -> Basis:
    """`second` after `first` as one filter whose order is the sum of theirs, instead of the product of their terms.

    Exact, since `L^j L^k = L^(j + k)` and `2 T_j T_k = T_(j + k) + T_|j - k|`; the bias is a field over the nodes.

    Raises:
        UsageError: the layers are not polynomials of one kind of the same operator (C2A007), or their channels do not
            fit (C2A120).
    Source: Andreoli 2019, Proposition 3.
    """
    outer, inner = second.operators, first.operators
    if (
        not isinstance(outer, Polynomials)
        or not isinstance(inner, Polynomials)
        or type(outer) is not type(inner)
        or outer.operator is not inner.operator
    ):
        raise UsageError(
            "C2A007",
            "filters compose to one where both are polynomials of the same operator object",
            "Build both from one operator object.",
        )
    both = compose(second, first, sides)
    taps = both.weights.dense().unflatten(0, (outer.order + 1, inner.order + 1))
    total = torch.zeros(outer.order + inner.order + 1, *taps.shape[2:]).to(taps)
    for j in range(outer.order + 1):
        for k in range(inner.order + 1):
            for place, share in places(outer, j, k):
                total = total.index_add(0, torch.tensor([place], device=taps.device), share * taps[j, k][None])
    family = type(outer)(outer.operator, outer.order + inner.order)
    return basis_of(family, Weights(None, total, both.weights.bias), len(sides))


def places(family: Polynomials, j: int, k: int) -> list[tuple[int, float]]:
    """The terms whose sum, in these shares, is the product of the terms j and k."""
    return [(j + k, 1.0)] if isinstance(family, Powers) else [(j + k, 0.5), (abs(j - k), 0.5)]
