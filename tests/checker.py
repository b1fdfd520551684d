"""An independent check of a witness: exact rationals, a few loops, and nothing of how it was found.

It takes the attention as nested sequences of numbers, `attention[head][query][key]` (images one after the other), and
`asked[query]`, the row asked for as a mapping of keys to numbers. A float is the dyadic rational that it is. A residual
counts as none if it is at most `eps + per_norm |phi|_1`.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from numbers import Rational

Number = float | Fraction
Attention = Sequence[Mapping[int, Sequence[Number]] | Sequence[Sequence[Number]]]
Asked = Sequence[Mapping[int, Number]] | Mapping[int, Mapping[int, Number]]


def confirms_holds(
    attention: Attention,
    asked: Asked,
    weights: Sequence[Number],
    eps: Number,
    bound: Number,
    queries: Iterable[int],
    per_norm: Number = 0,
) -> bool:
    """Whether these weights have norm at most `bound`, and leave what counts as none at each query."""
    phi = [exact(w) for w in weights]
    norm = sum(map(abs, phi), Fraction(0))
    allowed = exact(eps) + exact(per_norm) * norm
    left = (sum(map(abs, row)) for row in residuals(attention, asked, phi, queries))
    return len(phi) == len(attention) and norm <= exact(bound) and all(x <= allowed for x in left)


def confirms_dual(
    attention: Attention,
    asked: Asked,
    values: Mapping[int, Sequence[int]],
    eps: Number,
    bound: Number,
    per_norm: Number = 0,
) -> bool:
    """Whether y shows that no weights of norm at most `bound` leave what counts as none. Only rows of y are looked at.

    Any phi leaves r with `sum_q |y_q|_max |r_q|_1 >= <y, e> - |phi|_1 max_h |<A_h, y>|`.
    """
    norm = exact(bound)
    gain = sum((exact(x) * values[q][k] for q in values for k, x in asked[q].items()), Fraction(0))
    met = [
        sum((exact(a) * y for q in values for a, y in zip(head[q], values[q], strict=True)), Fraction(0))
        for head in attention
    ]
    peak = sum((max(map(abs, row)) for row in values.values()), 0)
    return gain - norm * max(map(abs, met)) > (exact(eps) + exact(per_norm) * norm) * peak


def confirms_counting(heads: int, shifts: Sequence[Asked], eps: Number, queries: Iterable[int]) -> bool:
    """Whether heads are fewer than shifts, which ask for keys of their own at too many queries for a residual of `eps`.

    Some c other than 0 makes `y = sum_t c_t e_t` meet no head, and the shift of the largest c_t leaves its share of
    queries at one of them.
    """
    chosen = list(queries)
    for query in chosen:
        keys = [key for asked in shifts for key in asked[query]]
        if len(set(keys)) < len(keys) or any(x != 1 for asked in shifts for x in asked[query].values()):
            return False
    least = min(sum(len(asked[query]) for query in chosen) for asked in shifts)
    return heads < len(shifts) and least > exact(eps) * len(chosen)


def residuals(
    attention: Attention, asked: Asked, weights: Sequence[Fraction], queries: Iterable[int]
) -> list[list[Fraction]]:
    """`e - phi A` at each query, a list over the keys."""
    used = [(head, w) for head, w in zip(attention, weights, strict=True) if w]
    rows = []
    for q in queries:
        row = [exact(asked[q].get(k, 0)) for k in range(len(attention[0][q]))]
        for head, w in used:
            row = [x - w * exact(a) for x, a in zip(row, head[q], strict=True)]
        rows.append(row)
    return rows


def exact(number: Number) -> Fraction:
    """The rational number that a float is."""
    return Fraction(number) if isinstance(number, Rational) else Fraction(float(number))
