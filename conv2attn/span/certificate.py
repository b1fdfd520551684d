"""Verdicts as plain integers, in the format that the proved checker reads (proofs/certificates.py describes it)."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from conv2attn.span.conditions.condition import DualVector, Mixing, NullVector, Target
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import AttentionRows, Targets, shifts
from conv2attn.span.programme.dual import rows_at
from conv2attn.span.report import SpanRow

VERSION = 1


def certificates(row: SpanRow, attention: AttentionRows) -> str:
    """One certificate for each offset of the condition that decides: its mixing, or the dual that refutes it.

    What has none is said in a comment: what is undecided, what counting alone refutes, and a refutation that rests on a
    bound on norms, which the format does not hold. Per query there is one for each offset that is refuted.
    """
    found = row.deciding
    if not found.targets or any(target.offset is None for target in found.targets):
        return f"# {row.name}: nothing was checked\n"
    targets = shifts(attention.grid, [target.offset for target in found.targets if target.offset is not None])
    per_image = attention.grid.shape[0]
    chosen = targets.interior if row.decisive == "interior" else np.ones(per_image, dtype=bool)
    everywhere = [image * per_image + int(q) for image in range(attention.images) for q in np.flatnonzero(chosen)]
    parts = [of_target(row, j, target, attention, targets, everywhere) for j, target in enumerate(found.targets)]
    return "".join(parts)


def of_target(
    row: SpanRow, j: int, target: Target, attention: AttentionRows, targets: Targets, everywhere: Sequence[int]
) -> str:
    """The certificate of one offset."""
    title = f"# {row.name}, {row.decisive}, offset {target.label}: {target.verdict.value}\n"
    match target.witness:
        case Mixing(_, weights):
            return title + written(attention, targets, j, everywhere, row.limits, weights=weights)
        case DualVector(_, values, None):
            return title + written(attention, targets, j, None, row.limits, dual=dict(values))
        case NullVector(_, entries):
            unit = lcm(*(number.denominator for _, _, _, number in entries))
            dual: dict[int, list[int]] = {}
            for image, query, key, number in entries:
                at = image * attention.grid.shape[0] + query
                dual.setdefault(at, [0] * attention.width)[key] = int(number * unit)
            sign = 1 if gain_of(targets, j, dual) > 0 else -1
            turned = {at: [sign * x for x in numbers] for at, numbers in dual.items()}
            return title + written(attention, targets, j, None, row.limits, dual=turned)
        case _:
            return title.rstrip("\n") + ", without a certificate of this format\n"


def gain_of(targets: Targets, j: int, dual: Mapping[int, Sequence[int]]) -> int:
    """`<y, e>` of a shift."""
    places = targets.places[j]
    return sum(numbers[places[row % len(places)]] for row, numbers in dual.items() if places[row % len(places)] >= 0)


def written(
    attention: AttentionRows,
    targets: Targets,
    j: int,
    rows: Sequence[int] | None,
    limits: Limits,
    *,
    weights: Sequence[float | Fraction] = (),
    dual: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """One certificate: limits and numbers over common denominators, then the rows asked for and attended."""
    order = sorted(dual if dual is not None else rows or ())
    held = rows_at(attention, targets, order)
    scale = lcm(*(held[at].unit for at in order))
    given = [Fraction(limits.eps), Fraction(limits.per_norm), Fraction(limits.max_phi)]
    below = lcm(*(number.denominator for number in given))
    lines: list[Sequence[Any]] = [
        (VERSION, int(dual is not None), attention.heads, len(order), attention.width, scale),
        (*(int(number * below) for number in given), below),
    ]
    if dual is None:
        exact = [Fraction(weight) for weight in weights]
        unit = lcm(*(weight.denominator for weight in exact))
        lines.append((unit, *(int(weight * unit) for weight in exact)))
    for at in order:
        asked = [0] * attention.width
        place = int(targets.places[j, at % targets.places.shape[1]])
        if place >= 0:
            asked[place] = scale
        lift = scale // held[at].unit
        lines += [asked, *([int(x) * lift for x in line] for line in held[at].heads.tolist())]
        lines += [dual[at]] if dual is not None else []
    return "".join(" ".join(map(str, line)) + "\n" for line in lines)
