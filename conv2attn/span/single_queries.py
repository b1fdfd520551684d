"""The printed condition at queries that float64 leaves open, each decided as a condition of its own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conv2attn.span.condition import Mixing, Mixings, NullVector, Row, Target, Witness
from conv2attn.span.decision import decide
from conv2attn.span.limits import Limits
from conv2attn.span.problem import AttentionRows, Targets
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

AFFORDABLE = 1000
"""Queries that are looked at alone, each some milliseconds; of more, the first, any of which may refute."""


def look_again(
    attention: AttentionRows, targets: Targets, limits: Limits, before: Target, rows: Sequence[Row], left: Sequence[int]
) -> Target:
    """A target for which `rows` of Phi, one for each image * queries + query, serve at all but those `left`.

    `before` is what is known of it, its residual that of the rows that serve.
    """
    j, per_image = targets.labels.index(before.label), targets.places.shape[1]
    part = replace(targets, coefficients=targets.coefficients[[j]], labels=(before.label,))
    found, known = list(rows), [before]
    for row in left[:AFFORDABLE]:
        image, query = divmod(row, per_image)
        alone = decide("per-query", attention.only(image), part, np.arange(per_image) == query, limits).targets[0]
        known.append(alone)
        if alone.verdict is Verdict.REFUTED:
            break
        found[row] = alone.weights
    verdict = worst_verdict(each.verdict for each in known[1:])
    if verdict is Verdict.HOLDS and len(left) > AFFORDABLE:
        verdict = Verdict.UNDECIDED
    strength = weakest_strength(each.strength for each in known[1:]) if attention.exact else Strength.BOUNDED
    held = Mixings(j, tuple(found)) if verdict is Verdict.HOLDS else None
    return replace(
        before,
        verdict=verdict,
        strength=known[-1].strength if verdict is Verdict.REFUTED else strength,
        residual=max(each.residual for each in known),
        floor=max(each.floor for each in known),
        norm=max(each.norm for each in known),
        witness=placed(known[-1].witness, j, left[len(known) - 2], per_image) if verdict is Verdict.REFUTED else held,
    )


def placed(witness: Witness | None, j: int, row: int, per_image: int) -> Witness | None:
    """The witness of one query alone, for target j among all queries."""
    match witness:
        case Mixing():
            return replace(witness, target=j, query=row, queries=None)
        case NullVector():
            return NullVector(j, tuple((row // per_image, *entry[1:]) for entry in witness.entries))
        case _:
            return None
