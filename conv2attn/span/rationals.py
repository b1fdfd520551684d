"""Attention that is declared exact: fractions, whole weights over their sums, or floats as the rationals they are."""

from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.basis import Sides
from conv2attn.bounds.dyadic import over_power_of_two
from conv2attn.errors import UsageError
from conv2attn.span.arguments import as_array
from conv2attn.span.arrays import leading, pixels_of, reader, rows_at_once, stacked, varies
from conv2attn.span.grids import grid_of
from conv2attn.span.rows import AttentionRows

NOTES = {
    "f": "declared exact: its floats are the rational numbers that they are",
    "O": "declared exact, in fractions",
    "i": "declared exact: its whole numbers are weights, each row divided by its sum",
}


@final
@dataclass(frozen=True, eq=False)
class Rationals:
    """Rows (images, heads, queries, keys) of numbers that are divided by their sum; `leading` tokens come last."""

    whole: NDArray[Any]
    leading: int

    def row(self, head: int, place: int) -> list[Fraction]:
        """The exact attention of a head at `image * queries + query`."""
        image, query = divmod(place, self.whole.shape[2] - self.leading)
        held = self.whole[image, head, self.leading + query].tolist()
        numbers = [Fraction(x) for x in (*held[self.leading :], *held[: self.leading])]
        total = sum(numbers, Fraction(0))
        return numbers if total == 1 else [x / total for x in numbers]

    def shadow(self) -> NDArray[np.float64]:
        """All rows in float64, each entry rounded once."""
        images, heads, queries, _ = self.whole.shape
        places = [range(i * (queries - self.leading), (i + 1) * (queries - self.leading)) for i in range(images)]
        return np.array([[[[float(x) for x in self.row(h, p)] for p in at] for h in range(heads)] for at in places])


def read_exact(
    name: str,
    given: Any,
    *,
    grid: Sides | None,
    dimensions: int,
    extra_tokens: int = 0,
    memory_limit: int,
    sampled: bool | None = None,
) -> AttentionRows:
    """An array or tensor of attention that is the operator itself, so that containment is decided with no tolerance.

    Raises:
        UsageError: it is not attention, or a row of floats or fractions does not sum to 1 exactly (C2A502); its tokens
            are not those of the grid (C2A503).
    """
    array = as_array(name, given)
    kind = "i" if array.dtype.kind in "biu" else array.dtype.kind
    if kind not in NOTES:
        raise UsageError("C2A502", f"{name}: its dtype is {array.dtype}")
    whole = stacked(name, array)
    check_exact(name, whole, kind)
    on = grid_of(name, *pixels_of(name, whole, extra_tokens), grid, dimensions)
    if not (whole != 0).any(-1).all():
        raise UsageError("C2A502", f"{name}: a query attends to nothing")
    rationals = Rationals(whole, extra_tokens)
    direct = kind == "f" and not extra_tokens
    shadow = whole.astype(np.float64) if direct else rationals.shadow()
    read = whole[:, :, extra_tokens:] != 0
    one_hot = bool((read.sum(-1) == 1).all())
    return AttentionRows(
        name,
        shadow.shape[1],
        shadow.shape[0],
        on,
        roundoff=0.0,
        ulps=0,
        read=reader(shadow),
        step=rows_at_once(shadow.shape[1], shadow.shape[3], memory_limit),
        known=shadow.shape[0] == 1,
        one_hot=one_hot,
        hot=(read.argmax(-1) - extra_tokens) % whole.shape[3] if one_hot else None,
        rational=rationals.row,
        sampled=varies(whole) if sampled is None else sampled,
        notes=(NOTES[kind], *leading(extra_tokens)),
        extra=extra_tokens,
    )


def check_exact(name: str, whole: NDArray[Any], kind: str) -> None:
    """Refuses what is not exactly attention.

    Raises:
        UsageError: an entry is not a rational number, or negative, or a row does not sum to 1 (C2A502).
    """
    for (image, head), rows in ((at, whole[at]) for at in np.ndindex(*whole.shape[:2])):
        where = f"{name}: image {image}, head {head}"
        if kind == "O" and not all(isinstance(x, Rational) for x in rows.flat):
            raise UsageError("C2A502", f"{where} has entries that are not Fraction or int")
        if kind == "f" and not np.isfinite(rows).all():
            raise UsageError("C2A502", f"{where} has entries that are not finite")
        if (rows < 0).any():
            raise UsageError("C2A502", f"{where} has a negative entry")
        if kind == "i":
            continue
        one, numbers = over_power_of_two(rows.astype(np.float64)) if kind == "f" else (1, rows.tolist())
        for query, row in enumerate(numbers):
            if sum(row) != one:
                miss = f"query {query} misses a sum of 1 by {float(Fraction(sum(row), one) - 1):.1e}"
                raise UsageError(
                    "C2A502",
                    f"{where}, {miss}, and exact attention sums to 1 exactly",
                    "Pass fractions or whole weights, or leave out --exact.",
                )
