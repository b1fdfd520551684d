"""The certificates of two networks at several sizes, as one."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from conv2attn.equality.certificate.results import Certificate, Row, in_words
from conv2attn.verdicts import Strength, weakest_strength, worst_verdict


def at_all_sizes(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate that holds if all of them do: the worst row of each layer, and every finding.

    Measurements are those of the first; a sentence on another size names that size.
    """
    first, *others = certificates
    between = list(first.between)
    for each in others:
        for finding in each.between:
            if finding.sentence:
                sentence = f"at {in_words(each.state.sizes)}: {finding.sentence}"
                between.append(replace(finding, sentence=sentence))
            elif finding not in between:
                between.append(finding)
    states = [each.state for each in certificates]
    sizes = tuple(dict.fromkeys(size for each in states for size in each.sizes))
    tried = tuple(mode for mode in first.state.gradients if all(mode in each.gradients for each in states))
    formulas = [each.identified for each in certificates if each.identified is not None]
    # Where formulas hold at each size, the chance of an error anywhere is at most the sum of the chances.
    chance = float(np.logaddexp2.reduce([each.log2_chance for each in formulas])) if formulas else 0.0
    identified = at_sizes(formulas, max(formulas, key=lambda each: each.log2_chance, default=None))
    rounded = [each.rounded for each in certificates if each.rounded is not None]
    return replace(
        first,
        rows=tuple(worst_rows(certificates)),
        between=tuple(between),
        counterexamples=tuple(shown for each in certificates for shown in each.counterexamples),
        state=replace(first.state, sizes=sizes, gradients=tried),
        identified=identified and replace(identified, log2_chance=chance),
        rounded=at_sizes(rounded, max(rounded, key=lambda each: each.units, default=None)),
        inputs=tuple(each for one in certificates for each in one.inputs),
        place=next((each.place for each in certificates if each.place is not None), None),
        limits="".join(dict.fromkeys(each.limits for each in certificates)),
    )


def worst_rows(certificates: Iterable[Certificate]) -> Iterable[Row]:
    """One row per layer: of its rows with the worst verdict, the first that has the weakest strength."""
    rows = dict[str, list[Row]]()
    for row in (row for each in certificates for row in each.rows):
        rows.setdefault(row.name, []).append(row)
    for each in rows.values():
        verdict = worst_verdict(row.verdict for row in each)
        worst = [row for row in each if row.verdict is verdict]
        strength = weakest_strength(Strength.PROVED if row.strength is None else row.strength for row in worst)
        yield next((row for row in worst if row.strength is strength), worst[0])


def at_sizes(parts: Sequence[Any], worst: Any) -> Any:
    """The worst of some findings, with the sizes of all of them; None if there is none."""
    return worst and replace(worst, sizes=tuple(size for each in parts for size in each.sizes))
