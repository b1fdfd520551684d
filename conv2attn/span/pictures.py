"""The residual of every offset as characters, laid out as the kernel."""

from collections.abc import Mapping, Sequence
from itertools import product

from conv2attn.basis import Offset
from conv2attn.span.conditions.condition import Target
from conv2attn.verdicts import Verdict

LEVELS = ((1e-6, ","), (1e-4, ":"), (1e-2, "-"), (0.1, "+"), (0.5, "*"), (float("inf"), "#"))
LEGEND = "residual: . at most eps, then up to , 1e-6  : 1e-4  - 0.01  + 0.1  * 0.5  # more"


def picture(targets: Sequence[Target], eps: float) -> list[str]:
    """One character an offset; planes of a three-dimensional kernel follow each other.

    On the left the certified residual of the worst query, on the right the least-squares distance over all queries,
    where there is one. Empty where the targets are not offsets.
    """
    there = [target for target in targets if target.offset is not None]
    held = [0.0 if target.verdict is Verdict.HOLDS else target.residual for target in there]
    left = layout({t.offset: value for t, value in zip(there, held, strict=True) if t.offset is not None}, eps)
    right = layout({t.offset: t.distance for t in there if t.offset is not None and t.distance is not None}, eps)
    width = max(map(len, left), default=0)
    return [f"  {a.ljust(width)}     {b}".rstrip() for a, b in zip(left, right or [""] * len(left), strict=True)]


def layout(values: Mapping[Offset, float], eps: float) -> list[str]:
    """The signs of values at their offsets."""
    if not values:
        return []
    axes = [sorted(set(along)) for along in zip(*values, strict=True)]
    lines: list[str] = []
    for ahead in product(*axes[:-2]):
        lines += [""] if lines else []
        for row in axes[-2] if len(axes) > 1 else [None]:
            before = (*ahead, row) if row is not None else ahead
            places = [(*before, column) for column in axes[-1]]
            lines.append(" ".join(sign(values[place], eps) if place in values else " " for place in places))
    return lines


def sign(residual: float, eps: float) -> str:
    """The character of a residual."""
    return "." if residual <= eps else next(mark for limit, mark in LEVELS if residual <= limit)
