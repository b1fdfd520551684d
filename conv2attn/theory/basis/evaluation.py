"""The three orders in which `sum_k P_k x M_k^T + b` can be summed (Andreoli 2019, Fig. 1), and which is cheapest."""

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.theory.basis.basis import Basis, as_affine_map, field
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operators import apply, combine, entries, output_sides, terms


def evaluate(basis: Basis, image: Tensor, order: str = "mixing") -> Tensor:
    """`sum_k P_k x M_k^T + b` for image (batch, d_in, *sides): (batch, d_out, *queries).

    Args:
        order: `mixing` forms the `P_k x` first, `channels` the `x M_k^T`, `map` the whole matrix of the layer, and
            `auto` is the one of them with the fewest multiplications.
    Raises:
        UsageError: another order (C2A002), or channels or terms that do not fit (C2A120, C2A122).
    Source: Andreoli 2019, Fig. 1: bottom, left and right of the triangle.
    """
    sides = tuple(image.shape[2:])
    if image.shape[1] != basis.weights.d_in:
        raise UsageError(
            "C2A120",
            f"an image of {image.shape[1]} channels, where the layer reads {basis.weights.d_in}",
            "Pass an image with that many channels.",
        )
    if terms(basis.mixing) != len(basis.weights.stored):
        counts = f"{terms(basis.mixing)} operators for {len(basis.weights.stored)} channel matrices"
        raise UsageError("C2A122", f"a basis of {counts}", "Pass as many operators as there are channel matrices.")
    if order == "auto":
        order = cheapest_order(basis, sides, len(image))
    if order not in ORDERS:
        raise UsageError(
            "C2A002", f"order={order!r} is not one of {', '.join([*ORDERS, 'auto'])}", "Pass one of these."
        )
    return ORDERS[order](basis, image, sides) + field(basis, sides)


def cheapest_order(basis: Basis, sides: Sides, batch: int = 1) -> str:
    """The order with the fewest multiplications for images of these sides."""
    costs = order_costs(basis, sides, batch)
    return min(costs, key=lambda order: costs[order])


def order_costs(basis: Basis, sides: Sides, batch: int = 1) -> dict[str, int]:
    """The number of multiplications of each order.

    The whole matrix has d_in d_out keys queries entries, so it is the cheapest order only on small grids.
    """
    weights, keys, queries = basis.weights, math.prod(sides), math.prod(output_sides(basis.mixing, sides))
    mixing = entries(basis.mixing, sides)
    channels = terms(basis.mixing) * weights.d_in * weights.d_out // weights.groups
    # Every operator adds to each entry of the whole matrix once; every image is then multiplied by it once.
    whole = weights.d_in * weights.d_out * keys * queries
    return {
        "mixing": batch * (mixing * weights.d_in + queries * channels),
        # Channels first are computed once a key, and mixing then costs the channels of the output.
        "channels": batch * (keys * channels + mixing * weights.d_out),
        "map": whole * (terms(basis.mixing) + batch),
    }


def mixing_first(basis: Basis, image: Tensor, sides: Sides) -> Tensor:
    """`P_k x` for all k, and then the channels."""
    mixed = apply(basis.mixing, image, sides)
    if basis.weights.groups == 1 and len(mixed):
        # One term after another: an einsum over all terms would copy all of them at once.
        pairs = zip(mixed, basis.weights.taps(), strict=True)
        return reduce(Tensor.add, (in_channels(term, tap) for term, tap in pairs))
    grouped = mixed.unflatten(2, (basis.weights.groups, -1))
    taps = basis.weights.taps().unflatten(1, (basis.weights.groups, -1))
    return torch.einsum("tbgi...,tgoi->bgo...", grouped, taps).flatten(1, 2)


def channels_first(basis: Basis, image: Tensor, sides: Sides) -> Tensor:
    """`x M_k^T` for all k, and then the tokens."""
    if basis.weights.groups == 1:
        return combine(basis.mixing, torch.stack([in_channels(image, tap) for tap in basis.weights.taps()]), sides)
    grouped = image.unflatten(1, (basis.weights.groups, -1))
    taps = basis.weights.taps().unflatten(1, (basis.weights.groups, -1))
    return combine(basis.mixing, torch.einsum("bgi...,tgoi->tbgo...", grouped, taps).flatten(2, 3), sides)


def whole_map(basis: Basis, image: Tensor, sides: Sides) -> Tensor:
    """One matrix for the whole layer, formed in float64."""
    matrix, _ = as_affine_map(basis, sides)
    queries = output_sides(basis.mixing, sides)
    return (image.flatten(1) @ matrix.mT.to(image)).unflatten(1, (basis.weights.d_out, *queries))


def in_channels(image: Tensor, tap: Tensor) -> Tensor:
    """`x M^T` of one term: (batch, d_out, *sides). The order of the axes in memory is kept."""
    return torch.nn.functional.linear(image.movedim(1, -1), tap).movedim(-1, 1)


ORDERS: dict[str, Callable[[Basis, Tensor, Sides], Tensor]] = {
    "mixing": mixing_first,
    "channels": channels_first,
    "map": whole_map,
}
