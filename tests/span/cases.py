"""Attention with known answers, built from the mathematics: what is asked, and the three verdicts."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from attentions import LINE, OFFSETS, hard, mixed, soft

from conv2attn.verdicts import Verdict

HOLDS, REFUTED = Verdict.HOLDS, Verdict.REFUTED


@dataclass(frozen=True)
class Case:
    """Heads on a grid, the offsets asked for, the verdicts per query, joint and interior, and how many leading tokens
    are no pixels. `exact` numbers are the operator itself."""

    heads: np.ndarray
    grid: tuple[int, ...]
    offsets: list[tuple[int, ...]]
    verdicts: tuple[Verdict, Verdict, Verdict]
    extra: int = 0
    exact: bool = False


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


def with_class(mass, heads):
    """Heads of which a class token, the first, takes a share that may depend on (head, query)."""
    count, pixels, _ = heads.shape
    whole = np.zeros((count, pixels + 1, pixels + 1))
    whole[:, 0, 0] = 1
    whole[:, 1:, 0] = mass
    whole[:, 1:, 1:] = (1 - whole[:, 1:, :1]) * heads
    return whole


def weights(heads):
    """Heads of equal shares as whole weights, each row to be divided by its sum."""
    return (heads > 0).astype(np.int64)


def fractions(whole):
    """Rows of whole weights over their sums."""
    found = np.empty(whole.shape, dtype=object)
    for at in np.ndindex(*whole.shape):
        found[at] = Fraction(int(whole[at]), int(whole[at[:-1]].sum()))
    return found


line = hard((7,), LINE)
class_alone = np.eye(1, 8)[None].repeat(8, 1)
share = np.random.default_rng(0).uniform(0.2, 0.8, (3, 7))
dyadic = np.tensordot(np.array([[3, 1, 0], [0, 3, 1], [1, 0, 3]]) / 4, hard((9,), LINE), 1)
wrapped = np.zeros((2, 8, 8), dtype=np.int64)
for q, d in np.ndindex(8, 3):
    wrapped[0, q, (q + d - 1) % 8] = 1
    wrapped[1, q, (q + d - 1) % 8] = d != 1
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
    "a share of a class token": Case(with_class(0.25, line), (7,), LINE, NEVER, 1),
    "a varying share of a class token": Case(with_class(share, line), (7,), LINE, NEVER, 1),
    "a share taken away": Case(np.concatenate([with_class(0.25, line), class_alone]), (7,), LINE, INSIDE, 1),
    "no share of a class token": Case(with_class(0.0, line), (7,), LINE, INSIDE, 1),
    "a class token in place of a shift": Case(
        np.concatenate([with_class(0.0, line)[:2], class_alone]), (7,), LINE, NEVER, 1
    ),
    "boxes as weights": Case(weights(boxes()), (6,), [(0,)], ALONE, exact=True),
    "boxes as fractions": Case(fractions(weights(boxes())), (6,), [(0,)], ALONE),
    "boxes behind a class token": Case(weights(with_class(0.5, boxes())), (6,), [(0,)], ALONE, 1, True),
    "boxes on a ring": Case(wrapped, (8,), [(0,)], (HOLDS, HOLDS, HOLDS), exact=True),
    "dyadic floats": Case(dyadic, (9,), LINE, INSIDE, exact=True),
    "one-hot floats declared exact": Case(hard((4, 5), OFFSETS), (4, 5), OFFSETS, INSIDE, exact=True),
    "images as fractions": Case(fractions(np.stack([line, line[::-1]]).astype(int)), (7,), LINE, ALONE),
    "space": Case(hard((3, 3, 4), [(0, 0, 0), (1, 0, -1)]), (3, 3, 4), [(0, 0, 0), (1, 0, -1)], INSIDE),
}
