"""What mixings leave of the targets in one portion, and what that adds to the sums that tell their worth."""

from typing import Any

import numpy as np

from conv2attn.span.conditions.portions import Portion
from conv2attn.span.conditions.problem import Array

Precision = type[np.float64] | type[np.longdouble]
SUMS = ("gain", "mass", "peak", "square", "asked", "met", "weight")


def parts_of(portion: Portion, coefficients: Array, mixings: Array, precision: Precision) -> dict[str, Any]:
    """The largest residual of each candidate in a portion, and what the portion adds to each of the sums."""
    if not mixings.any():
        return parts_of_nothing(portion, coefficients, precision)
    left, asked, at_keys = residuals(portion, coefficients, mixings, precision)
    flat = portion.attention.reshape(len(portion.attention), -1).T.astype(precision, copy=False)
    times = portion.times.astype(precision)
    weighted = left if (times == 1).all() else left * times[:, None]
    parts = {
        "gain": (at_keys * asked).sum(1) @ times,
        "mass": np.abs(at_keys * asked).sum(1) @ times,
        "square": np.einsum("cqk,cqk->cq", left, left) @ times,
        "asked": (asked**2).sum(1) @ times,
        "met": weighted.reshape(len(mixings), -1) @ flat,
    }
    size = np.abs(left, out=left)
    weighted = size if weighted is left else np.abs(weighted, out=weighted)
    weight = weighted.reshape(len(mixings), -1) @ flat
    return {**parts, "weight": weight, "peak": size.max(-1) @ times, "residual": size.sum(-1).max(-1)}


def parts_of_nothing(portion: Portion, coefficients: Array, precision: Precision) -> dict[str, Any]:
    """The same of mixings that are zero: all that is asked for is left, at few keys."""
    there, times = portion.places >= 0, portion.times.astype(precision)
    asked: Any = np.where(there, coefficients[:, :, None], 0).astype(precision)
    read = np.where(there, portion.attention[:, np.arange(there.shape[1]), portion.places], 0)
    flat: Any = read.reshape(len(read), -1).T.astype(precision)
    size, squares = np.abs(asked), (asked**2).sum(1) @ times
    met, weight = ((each * times).reshape(len(asked), -1) @ flat for each in (asked, size))
    sums = {"gain": squares, "mass": squares, "square": squares, "asked": squares, "met": met, "weight": weight}
    return {**sums, "peak": size.max(1) @ times, "residual": size.sum(1).max(-1)}


def residuals(portion: Portion, coefficients: Array, mixings: Array, precision: Precision) -> tuple[Any, Array, Any]:
    """`e - phi A` (candidates, queries, keys), and where something is asked for, (candidates, taps, queries): what,
    and what is left there; both 0 beyond the grid."""
    heads, queries, keys = portion.attention.shape
    product = (-mixings).astype(precision) @ portion.attention.reshape(heads, -1).astype(precision, copy=False)
    left: Any = product.reshape(len(mixings), queries, keys)
    asked, at_keys = np.zeros((len(mixings), len(portion.places), queries)), []
    for tap, places in enumerate(portion.places):
        there = np.flatnonzero(places >= 0)
        asked[:, tap, there] = coefficients[:, tap, None]
        left[:, there, places[there]] += coefficients[:, tap, None]
    for places in portion.places:
        at_keys.append(np.where(places >= 0, left[:, np.arange(queries), places], 0))
    return left, asked, np.stack(at_keys, 1)
