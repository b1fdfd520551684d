"""The printed condition at queries that float64 leaves open, each decided as a condition of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from conv2attn.span.conditions.condition import Mixing, Mixings, NullVector, Row, Target, Witness
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import AttentionRows, Targets, selected
from conv2attn.span.mixings.decision import decide
from conv2attn.span.mixings.refinement import MOST_HEADS
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

AFFORDABLE = 1000
"""Queries that are looked at alone, each some milliseconds; of more, the first, any of which may refute."""


def look_again(
    attention: AttentionRows, targets: Targets, limits: Limits, before: Target, rows: Sequence[Row], left: Sequence[int]
) -> Target:
    """A target for which `rows` of Phi, one for each image * queries + query, serve at all but those `left`.

    `before` is what is known of it, its residual that of the rows that serve. Where a query is not looked at, a Phi of
    zero leaves all that is asked for.
    """
    j, per_image = targets.labels.index(before.label), targets.places.shape[1]
    part = replace(targets, coefficients=targets.coefficients[[j]], labels=(before.label,))
    found, known, last = list(rows), [before], -1
    looked = left[:AFFORDABLE] if attention.exact or attention.heads <= MOST_HEADS else []
    for row, alone in queries_alone(attention, part, looked):
        known.append(decide("per-query", alone, part, np.arange(per_image) == row % per_image, limits).targets[0])
        last = row
        if known[-1].verdict is Verdict.REFUTED:
            break
        found[row] = known[-1].weights
    unlooked = len(known) - 1 < len(left)
    verdict = worst_verdict(each.verdict for each in known[1:])
    if verdict is Verdict.HOLDS and unlooked:
        verdict = Verdict.UNDECIDED
    known_exactly = attention.exact or attention.one_hot
    strength = weakest_strength(each.strength for each in known[1:]) if known_exactly else Strength.BOUNDED
    held = Mixings(j, tuple(found)) if verdict is Verdict.HOLDS else None
    return replace(
        before,
        verdict=verdict,
        strength=known[-1].strength if verdict is Verdict.REFUTED else strength,
        residual=max([each.residual for each in known] + [float(np.abs(part.coefficients).sum())] * unlooked),
        floor=max(each.floor for each in known),
        norm=max(each.norm for each in known),
        witness=placed(known[-1].witness, j, last, per_image) if verdict is Verdict.REFUTED else held,
    )


def queries_alone(
    attention: AttentionRows, targets: Targets, rows: Sequence[int]
) -> Iterator[tuple[int, AttentionRows]]:
    """The attention at each of these image * queries + query alone, in order, as that of one image."""
    per_image, wanted = targets.places.shape[1], set(rows)
    for image in sorted({row // per_image for row in rows}):
        one = replace(attention.only(image), hot=None)
        chosen = np.isin(np.arange(per_image), [row % per_image for row in wanted if row // per_image == image])
        for _, queries, block in selected(one, chosen):
            for place, query in enumerate(map(int, queries)):
                held = [(0, slice(query, query + 1), block[:, place : place + 1])]
                yield image * per_image + query, replace(one, pieces=partial(iter, held))


def placed(witness: Witness | None, j: int, row: int, per_image: int) -> Witness | None:
    """The witness of one query alone, for target j among all queries."""
    match witness:
        case Mixing():
            return replace(witness, target=j, query=row, queries=None)
        case NullVector():
            return NullVector(j, tuple((row // per_image, *entry[1:]) for entry in witness.entries))
        case _:
            return None
