"""Products of polynomials of one operator are polynomials of it: graph filters compose without more terms."""

import torch

from conv2attn.basis.basis import Basis, basis_of
from conv2attn.basis.composition import compose
from conv2attn.basis.grid import Sides
from conv2attn.basis.operator import Operator
from conv2attn.basis.operators import Chebyshev, Powers
from conv2attn.basis.weights import Weights
from conv2attn.errors import UsageError


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
        not isinstance(outer, Chebyshev | Powers)
        or not isinstance(inner, Chebyshev | Powers)
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


def places(family: Operator, j: int, k: int) -> list[tuple[int, float]]:
    """The terms whose sum, in these shares, is the product of the terms j and k."""
    return [(j + k, 1.0)] if isinstance(family, Powers) else [(j + k, 0.5), (abs(j - k), 0.5)]
