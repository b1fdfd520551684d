"""An independent check of a witness: exact rationals, a few loops, and nothing of how it was found.

It takes the attention as nested sequences of numbers, `attention[head][query][key]` (images one after the other), and
`asked[query]`, the row asked for as a mapping of keys to numbers. A float is the dyadic rational that it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from numbers import Rational

Number = float | Fraction
Attention = Sequence[Sequence[Sequence[Number]]]
Asked = Sequence[Mapping[int, Number]]


def confirms_holds(
    attention: Attention, asked: Asked, weights: Sequence[Number], eps: Number, bound: Number, queries: Iterable[int]
) -> bool:
    """Whether these weights have norm at most `bound` and leave at most `eps` at each query, summed over keys."""
    phi = [exact(w) for w in weights]
    left = (sum(map(abs, row)) for row in residuals(attention, asked, phi, queries))
    return len(phi) == len(attention) and sum(map(abs, phi)) <= exact(bound) and all(x <= exact(eps) for x in left)


def confirms_refuted(
    attention: Attention,
    asked: Asked,
    weights: Sequence[Number],
    eps: Number,
    bound: Number,
    uncertainty: Number,
    queries: Iterable[int],
) -> bool:
    """Whether no weights of norm `bound` leave at most `eps`, for any attention within a factor 1 +- `uncertainty`.

    With `y = e - phi A` for the given weights, any others leave r with `<y, r> >= <y, e> - bound max_h |<A_h, y>|`, and
    at most eps at each query means `<y, r> <= eps sum_q |y_q|_max`.
    """
    chosen = list(queries)
    y = residuals(attention, asked, [exact(w) for w in weights], chosen)
    pairs = ((q, row, key) for q, row in zip(chosen, y, strict=True) for key in asked[q])
    gain = sum((exact(asked[q][key]) * row[key] for q, row, key in pairs), Fraction(0))
    reach = Fraction(0)
    for head in attention:
        met = doubt = Fraction(0)
        for q, row in zip(chosen, y, strict=True):
            products = [exact(a) * x for a, x in zip(head[q], row, strict=True)]
            met, doubt = met + sum(products), doubt + sum(map(abs, products))
        reach = max(reach, abs(met) + exact(uncertainty) * doubt)
    peaks = sum((max(map(abs, row), default=Fraction(0)) for row in y), Fraction(0))
    return gain - exact(bound) * reach > exact(eps) * peaks


def confirms_null_vector(
    attention: Attention, asked: Asked, entries: Sequence[tuple[int, int, Number]], eps: Number
) -> bool:
    """Whether y, of (query, key, value), meets no head and meets the target too much for a residual of `eps`."""
    for head in attention:
        if sum(exact(value) * exact(head[q][k]) for q, k, value in entries):
            return False
    gain = sum((exact(value) * exact(asked[q].get(k, 0)) for q, k, value in entries), Fraction(0))
    peaks = {q: max(abs(exact(v)) for p, _, v in entries if p == q) for q, _, _ in entries}
    return abs(gain) > exact(eps) * sum(peaks.values(), Fraction(0))


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
