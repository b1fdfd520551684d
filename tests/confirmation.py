"""Every witness of a condition handed to the independent checker, with the attention in exact numbers."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conv2attn.span import checker
from conv2attn.span.conditions.condition import Condition, Counting, DualVector, Mixing, Mixings, NullVector
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.verdicts import Verdict

Table = list[list[Sequence[float | Fraction]]]


def confirm(
    condition: Condition, attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits
) -> bool:
    """Whether the checker confirms all witnesses of a verdict, and they are as many as it takes.

    For small problems: it counts in Fractions. False for an undecided condition, which has no witness.
    """
    witnesses = condition.witnesses
    needed = len(targets) if condition.verdict is Verdict.HOLDS else 1
    if condition.verdict is Verdict.UNDECIDED or len(witnesses) < needed:
        return False
    table = ideal_rows(attention) if attention.exact else rows_of(attention)
    per_image = targets.places.shape[1]
    queries = [i * per_image + int(q) for i in range(attention.images) for q in np.flatnonzero(chosen)]
    limits_of = {"eps": Fraction(limits.eps), "bound": Fraction(limits.max_phi), "per_norm": Fraction(limits.per_norm)}
    most = Fraction(limits.allowed(limits.max_phi))
    results = []
    for witness in witnesses:
        match witness:
            case Mixing(target, weights):
                asked = asked_of(targets, target, attention.images)
                spanned = condition.targets[target].exactly and attention.rational is not None
                held = ideal_rows(attention) if spanned else table
                results.append(checker.confirms_holds(held, asked, weights, queries=queries, **limits_of))
            case Mixings(target, rows):
                asked = asked_of(targets, target, attention.images)
                cases = zip(rows, queries, strict=True)
                results.append(all(checker.confirms_holds(table, asked, w, queries=[q], **limits_of) for w, q in cases))
            case DualVector(target, values, inverse):
                asked = asked_of(targets, target, attention.images)
                results.append(checker.confirms_dual(table, asked, dict(values), inverse=inverse, **limits_of))
            case NullVector(target, entries):
                asked = asked_of(targets, target, attention.images)
                exact = table if attention.rational is None else ideal_rows(attention)
                flat = [(image * per_image + query, key, value) for image, query, key, value in entries]
                results.append(checker.confirms_null_vector(exact, asked, flat, most))
            case Counting(heads, count, _):
                shifts = [asked_of(targets, target, attention.images) for target in range(count)]
                whole = [q for q in queries if all(asked[q] for asked in shifts)]
                looked = whole[:1] if condition.name == "per-query" else queries
                confirmed = checker.confirms_counting(attention.heads, shifts, most, looked)
                results.append(heads == attention.heads and confirmed)
    return all(results)


def rows_of(attention: AttentionRows) -> Table:
    """`[head][query][key]`, images one after the other."""
    table: Table = [[] for _ in range(attention.heads)]
    for _, _, block in attention.pieces():
        for head, rows in enumerate(block):
            table[head].extend(row.tolist() for row in rows)
    return table


def ideal_rows(attention: AttentionRows) -> Table:
    """Rows of the ideal operator in fractions, `[head][query][key]`, images one after the other."""
    assert attention.rational is not None
    queries = range(attention.images * attention.grid.shape[0])
    return [[attention.rational(head, query) for query in queries] for head in range(attention.heads)]


def asked_of(targets: Targets, target: int, images: int) -> list[dict[int, Fraction]]:
    """The row that a target asks for at each query, as keys and numbers."""
    rows: list[dict[int, Fraction]] = []
    for query in range(targets.places.shape[1]):
        row: dict[int, Fraction] = {}
        for weight, place in zip(targets.coefficients[target], targets.places[:, query], strict=True):
            if place >= 0 and weight:
                row[int(place)] = row.get(int(place), Fraction(0)) + Fraction(float(weight))
        rows.append(row)
    return rows * images
