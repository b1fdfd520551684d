"""Attention with known answers, built from the mathematics: what is asked, and the three verdicts."""

from dataclasses import dataclass

import numpy as np
from attentions import LINE, OFFSETS, hard, mixed, soft

from conv2attn.verdicts import Verdict

HOLDS, REFUTED = Verdict.HOLDS, Verdict.REFUTED


@dataclass(frozen=True)
class Case:
    """Heads on a grid, the offsets asked for, and the verdicts per query, joint and interior."""

    heads: np.ndarray
    grid: tuple[int, ...]
    offsets: list[tuple[int, ...]]
    verdicts: tuple[Verdict, Verdict, Verdict]


def swapping():
    """Two heads that swap their shifts at every other query."""
    attention = np.zeros((2, 6, 6))
    for query in range(6):
        for head in (0, 1):
            attention[head, query, (query + (query + head) % 2) % 6] = 1
    return attention


def boxes():
    """The heads of E2 (c): the means over {q-1, q, q+1} and {q-1, q+1}, renormalised at the border."""
    attention = np.zeros((2, 6, 6))
    for query in range(6):
        for head, box in enumerate([(-1, 0, 1), (-1, 1)]):
            inside = [query + d for d in box if 0 <= query + d < 6]
            attention[head, query, inside] = 1 / len(inside)
    return attention


line = hard((7,), LINE)
INSIDE, NEVER, ALONE = (HOLDS, REFUTED, HOLDS), (REFUTED, REFUTED, REFUTED), (HOLDS, REFUTED, REFUTED)
ZOO = {
    "hard": Case(hard((4, 5), OFFSETS), (4, 5), OFFSETS, INSIDE),
    "a head less": Case(hard((4, 5), OFFSETS[1:]), (4, 5), OFFSETS, NEVER),
    "a head too many": Case(np.concatenate([line, line[:1]]), (7,), LINE, INSIDE),
    "a head twice for another": Case(line[[0, 1, 1]], (7,), LINE, NEVER),
    "mixture": Case(mixed(hard((9,), LINE), 4), (9,), LINE, INSIDE),
    "nearly dependent": Case(mixed(hard((9,), LINE), 1e5), (9,), LINE, INSIDE),
    "swapping": Case(swapping(), (6,), [(0,), (1,)], ALONE),
    "boxes": Case(boxes(), (6,), [(0,)], ALONE),
    "images that differ": Case(np.stack([line, line[::-1]]), (7,), LINE, ALONE),
    "images alike": Case(np.stack([line, line]), (7,), LINE, INSIDE),
    **{f"soft {alpha}": Case(soft((3, 4), alpha), (3, 4), OFFSETS, NEVER) for alpha in (0.5, 2.0, 8.0)},
    "alpha 14": Case(soft((3, 4), 14.0), (3, 4), OFFSETS, NEVER),
    **{f"line {alpha}": Case(soft((8,), alpha, LINE), (8,), LINE, NEVER) for alpha in (18.0, 28.0)},
    "sharp": Case(soft((3, 4), 46.0), (3, 4), OFFSETS, INSIDE),
    "sharper": Case(soft((3, 4), 60.0), (3, 4), OFFSETS, INSIDE),
    "space": Case(hard((3, 3, 4), [(0, 0, 0), (1, 0, -1)]), (3, 3, 4), [(0, 0, 0), (1, 0, -1)], INSIDE),
}
