"""All evidence of a condition handed to the independent checker, with the attention in exact numbers."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import checker
import numpy as np

from conv2attn.span import AttentionRows, Limits, Targets
from conv2attn.verdicts import Verdict

Table = list[list[Sequence[float | Fraction]]]


def confirm(
    condition: Any,
    attention: AttentionRows,
    targets: Targets,
    limits: Limits,
) -> bool:
    """Whether the checker confirms a verdict by all its evidence, and it is as much as it takes.

    For small problems: it counts in Fractions. False for an undecided condition, which has none.
    """
    if condition.verdict is Verdict.UNDECIDED:
        return False
    table = rows_of(attention)
    bounds = {"eps": Fraction(limits.eps), "bound": Fraction(limits.max_phi), "per_norm": Fraction(limits.per_norm)}
    results = []
    for target, found in enumerate(condition.targets):
        evidence = found.evidence
        if found.verdict is not condition.verdict or evidence is None:
            continue
        asked = asked_of(targets, target, attention.images)
        if evidence.dual is not None:
            results.append(checker.confirms_dual(table, asked, evidence.dual, **bounds))
        for group, weights in zip(evidence.groups, evidence.mixings, strict=True):
            queries = [int(q) for q in group]
            results.append(checker.confirms_holds(table, asked, weights, queries=queries, **bounds))
    if condition.counting is not None and condition.verdict is Verdict.REFUTED:
        shifts = [asked_of(targets, target, attention.images) for target in range(len(targets))]
        everyone = range(attention.images * targets.places.shape[1])
        inner = [q for q in everyone if all(asked[q] for asked in shifts)]
        looked = {"joint": list(everyone), "per-query": inner[:1]}.get(condition.name, inner)
        most = Fraction(limits.allowed(limits.max_phi))
        results.append(checker.confirms_counting(attention.heads, shifts, most, looked))
        results.append(condition.counting.heads == attention.heads)
    needed = len(targets) if condition.verdict is Verdict.HOLDS else 1
    return len(results) >= needed and all(results)


def rows_of(attention: AttentionRows) -> Table:
    """`[head][query][key]`, images one after the other: fractions where the attention is declared exact."""
    if attention.exact:
        assert attention.rational is not None
        queries = range(attention.images * attention.grid.shape[0])
        return [[attention.rational(head, query) for query in queries] for head in range(attention.heads)]
    table: Table = [[] for _ in range(attention.heads)]
    for _, _, block in attention.pieces(np.arange(attention.grid.shape[0])):
        for head, rows in enumerate(block):
            table[head].extend(row.tolist() for row in rows)
    return table


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
