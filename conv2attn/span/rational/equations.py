"""The exact equations of containment: for each (image, query, key), the heads' entries and those asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.portions import portions
from conv2attn.span.conditions.problem import AttentionRows, Targets


@final
@dataclass(frozen=True, eq=False)
class Equations:
    """Equation i is `sum_h phi_h attention[i][h] = asked[i][j]`, and stands at `places[i]` = (image, query, key)."""

    attention: Sequence[Sequence[Fraction]]
    asked: Sequence[Sequence[Fraction]]
    places: Sequence[tuple[int, int, int]]


def one_hot_equations(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Equations:
    """Equations of 0 and 1, each once: few, whatever the size of the grid."""
    kinds: dict[bytes, tuple[int, int, int]] = {}
    width = attention.heads + len(targets.offsets)
    for portion in portions(attention, targets, chosen):
        there = np.zeros((len(portion.places), *portion.attention.shape[1:]), dtype=bool)
        tap, query = np.nonzero(portion.places >= 0)
        there[tap, query, portion.places[tap, query]] = True
        columns = np.concatenate([portion.attention != 0, there])
        at, key = np.nonzero(columns.any(0))
        query, real = portion.queries[at], key if portion.keys is None else portion.keys[at, key]
        order = np.lexsort((real, query))
        packed = np.packbits(columns[:, at[order], key[order]], axis=0).T
        for row, first in zip(*np.unique(packed, axis=0, return_index=True), strict=True):
            place = (portion.image, int(query[order[first]]), int(real[order[first]]))
            kinds[row.tobytes()] = min(place, kinds.get(row.tobytes(), place))
    kinds = dict(sorted(kinds.items()))
    bits = [np.unpackbits(np.frombuffer(kind, dtype=np.uint8), count=width) for kind in kinds]
    exact = [[Fraction(float(x)) for x in row] for row in targets.coefficients]
    heads = [[Fraction(int(x)) for x in row[: attention.heads]] for row in bits]
    asked = [
        [sum((c for c, x in zip(row, bit[attention.heads :], strict=True) if x), Fraction(0)) for row in exact]
        for bit in bits
    ]
    return Equations(heads, asked, list(kinds.values()))


def rational_equations(attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]]) -> Equations:
    """The equations of rational rows at these (image, query), each once."""
    assert attention.rational is not None
    exact = [[Fraction(float(x)) for x in row] for row in targets.coefficients]
    kinds: dict[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], tuple[int, int, int]] = {}
    for image, query in places:
        rows = [attention.rational(head, image * targets.places.shape[1] + query) for head in range(attention.heads)]
        for key, column in enumerate(zip(*rows, strict=True)):
            taps = [t for t, place in enumerate(targets.places[:, query]) if place == key]
            asked = tuple(sum((row[t] for t in taps), Fraction(0)) for row in exact)
            kinds.setdefault((column, asked), (image, query, key))
    return Equations([heads for heads, _ in kinds], [asked for _, asked in kinds], list(kinds.values()))
