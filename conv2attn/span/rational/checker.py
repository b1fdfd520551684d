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
    inverse: Sequence[Sequence[Number]] | None = None,
) -> bool:
    """Whether no weights of norm `bound` leave at most `eps`, for any attention within a factor 1 +- `uncertainty`.

    With `y = e - phi A` for the given weights, any others leave r with `<y, r> >= <y, e> - bound max_h |<A_h, y>|`, and
    at most eps at each query means `<y, r> <= eps sum_q |y_q|_max`. With `inverse` the bound is the `largest_norm`.
    """
    chosen, doubt = list(queries), exact(uncertainty)
    norm = exact(bound)
    if inverse is not None:
        norm = min(norm, largest_norm(attention, asked, inverse, exact(eps), doubt, chosen) or norm)
    y = residuals(attention, asked, [exact(w) for w in weights], chosen)
    pairs = ((q, row, key) for q, row in zip(chosen, y, strict=True) for key in asked[q])
    gain = sum((exact(asked[q][key]) * row[key] for q, row, key in pairs), Fraction(0))
    reach = Fraction(0)
    for head in attention:
        met, size = meeting(head, y, chosen)
        reach = max(reach, abs(met) + doubt * size)
    return gain - norm * reach > exact(eps) * peaks(y)


def largest_norm(
    attention: Attention,
    asked: Asked,
    inverse: Sequence[Sequence[Number]],
    eps: Fraction,
    doubt: Fraction,
    queries: Sequence[int],
) -> Fraction | None:
    """How large weights psi can be that leave at most `eps` at each query; None where this does not tell.

    With `z_h = sum_g inverse[h][g] A_g`, `psi_h = <psi A, z_h> - sum_g psi_g (<A_g, z_h> - [g = h])`, where
    `<psi A, z_h>` is at most `|<e, z_h>| + eps sum_q |z_hq|_max`, and a factor 1 +- doubt on A_g moves `<A_g, z_h>`
    by at most `doubt <A_g, |z_h|>`.
    """
    start, lost = Fraction(0), [Fraction(0)] * len(attention)
    for h, row in enumerate(inverse):
        z = [[-x for x in left] for left in residuals(attention, [{}] * len(asked), [exact(w) for w in row], queries)]
        along = sum(
            (exact(x) * at[k] for q, at in zip(queries, z, strict=True) for k, x in asked[q].items()), Fraction(0)
        )
        start += abs(along) + eps * peaks(z)
        for g, head in enumerate(attention):
            met, size = meeting(head, z, queries)
            lost[g] += abs(met - (g == h)) + doubt * size
    return start / (1 - max(lost)) if max(lost) < 1 else None


def meeting(
    head: Sequence[Sequence[Number]], rows: Sequence[Sequence[Fraction]], queries: Sequence[int]
) -> tuple[Fraction, Fraction]:
    """`<A_h, y>` and `<A_h, |y|>`."""
    products = [exact(a) * x for q, row in zip(queries, rows, strict=True) for a, x in zip(head[q], row, strict=True)]
    return sum(products, Fraction(0)), sum(map(abs, products), Fraction(0))


def peaks(rows: Sequence[Sequence[Fraction]]) -> Fraction:
    """The sum over queries of the largest absolute value over keys."""
    return sum((max(map(abs, row), default=Fraction(0)) for row in rows), Fraction(0))


def confirms_null_vector(
    attention: Attention, asked: Asked, entries: Sequence[tuple[int, int, Number]], eps: Number
) -> bool:
    """Whether y, of (query, key, value), meets no head and meets the target too much for a residual of `eps`."""
    for head in attention:
        if sum(exact(value) * exact(head[q][k]) for q, k, value in entries):
            return False
    gain = sum((exact(value) * exact(asked[q].get(k, 0)) for q, k, value in entries), Fraction(0))
    largest = {q: max(abs(exact(v)) for p, _, v in entries if p == q) for q, _, _ in entries}
    return abs(gain) > exact(eps) * sum(largest.values(), Fraction(0))


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
