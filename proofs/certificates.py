"""Certificates of a span as plain integers: the format, a writer, and a twin in Python of the proved checker.

A file is a sequence of decimal integers, separated by blanks or newlines (of ASCII, no other white space); `#` begins
a comment to the end of its line. It holds one certificate after the other, each about one target row and some queries:

    1                    the version
    kind                 0: some weights leave nothing that counts; 1: none do
    H Q K                heads, queries listed, keys: K >= 1, and none exceeds the number of integers that follow
    D                    what entries of attention and target are divided by, positive
    E R B L              weights phi leave nothing that counts at a query if |e - phi A|_1 <= (E + R |phi|_1) / L;
                         only phi with |phi|_1 <= B / L are asked about, all if B is negative; R >= 0, L > 0
    P p_1 ... p_H        kind 0 only: the weights p_h / P, P positive
    then for each query
    e_1 ... e_K          the row asked for, over D
    a_1 ... a_K          H such rows, the heads' attention, over D
    y_1 ... y_K          kind 1 only: the dual vector

formal/Checker.v is the checker and formal/SPAN.v its proof; formal/extraction.py makes a program of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from numbers import Rational

from flint import fmpz

Number = float | Fraction | int
Rows = Sequence[Sequence[Number]]


class NotACertificateError(ValueError):
    """A file that is not made of whole certificates."""


def written(
    queries: Iterable[tuple[Mapping[int, Number], Rows]],
    *,
    weights: Sequence[Number] | None = None,
    dual: Sequence[Sequence[int]] | None = None,
    eps: Number = 0,
    per_norm: Number = 0,
    bound: Number | None = None,
    comment: str = "",
) -> str:
    """One certificate as text; entries are the exact rationals that the numbers are.

    Args:
        queries: for each query the row asked for, as a mapping of keys, and one row of each head.
        weights: for "some weights leave nothing that counts".
        dual: for "none do": integers, a row for each query.
        eps, per_norm, bound: see the format; no bound where None.
    Raises:
        ValueError: not exactly one of `weights` and `dual`.
    """
    if (weights is None) == (dual is None):
        raise ValueError("a certificate has either weights or a dual vector")
    listed = [({k: exact(x) for k, x in e.items()}, [list(map(exact, row)) for row in a]) for e, a in queries]
    heads, keys = len(listed[0][1]), len(listed[0][1][0])
    scale = lcm(*(x.denominator for e, a in listed for row in (e.values(), *a) for x in row))
    limits = [exact(eps), exact(per_norm), Fraction(-1) if bound is None else exact(bound)]
    limit_scale = lcm(*(x.denominator for x in limits))
    phi = [] if weights is None else list(map(exact, weights))
    weight_scale = lcm(*(x.denominator for x in phi))
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"1 {int(weights is None)} {heads} {len(listed)} {keys} {scale}", plain(limits, limit_scale)]
    lines[-1] += f" {limit_scale}"
    lines += [f"{weight_scale} {plain(phi, weight_scale)}"] if phi else []
    for n, (asked, rows) in enumerate(listed):
        lines += [plain([asked.get(k, Fraction(0)) for k in range(keys)], scale)]
        lines += [plain(row, scale) for row in rows]
        lines += [" ".join(map(str, dual[n]))] if dual is not None else []
    return "\n".join(lines) + "\n"


def answers(text: str) -> list[bool]:
    """Whether each certificate of a file is confirmed, by the same rule as the proved checker, which this is not.

    Raises:
        NotACertificateError: the file is not made of whole certificates.
    """
    words = [word for line in text.split("\n") for word in line.split("#")[0].split(" ") if word]
    if not all(word.removeprefix("-").isdecimal() and word.isascii() for word in words):
        raise NotACertificateError("not a file of certificates")
    numbers = [int(fmpz(word)) for word in reversed(words)]  # int(word) refuses more than 4,300 digits
    confirmations = []
    while numbers:
        confirmations.append(confirmed(numbers))
    return confirmations


def confirmed(numbers: list[int]) -> bool:
    """Whether the certificate that `numbers` end with, in reverse order, is right; takes all of it and no more."""

    def take(count: int) -> list[int]:
        if len(numbers) < count:
            raise NotACertificateError("the file ends within a certificate")
        return [numbers.pop() for _ in range(count)]

    version, kind, heads, count, keys, scale, eps, per_norm, bound, limit_scale = take(10)
    if version != 1 or kind not in (0, 1) or min(heads, count, keys - 1) < 0 or max(heads, count, keys) > len(numbers):
        raise NotACertificateError("not a file of certificates")
    weight_scale, *weights = [1] if kind else take(1 + heads)
    norm, left, gain, peak, combined = sum(map(abs, weights)), 0, 0, 0, [0] * heads
    fits = True
    for _ in range(count):
        asked, rows = take(keys), [take(keys) for _ in range(heads)]
        if kind:
            dual = take(keys)
            gain += dot(asked, dual)
            peak += max(map(abs, dual), default=0)
            combined = [sum_ + dot(row, dual) for sum_, row in zip(combined, rows, strict=True)]
            continue
        mixed = [sum(p * row[k] for p, row in zip(weights, rows, strict=True)) for k in range(keys)]
        left = sum(abs(weight_scale * e - x) for e, x in zip(asked, mixed, strict=True))
        fits &= left * limit_scale <= scale * (eps * weight_scale + per_norm * norm)
    reach = max(map(abs, combined), default=0)
    if min(scale, limit_scale, weight_scale) <= 0 or per_norm < 0:
        return False
    if not kind:
        return fits and (bound < 0 or norm * limit_scale <= bound * weight_scale)
    if bound < 0:
        return reach == per_norm == 0 and scale * eps * peak < gain * limit_scale
    allowed = scale * (eps * limit_scale + per_norm * bound) * peak
    return allowed < gain * limit_scale**2 - bound * limit_scale * reach


def dot(x: Sequence[int], y: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(x, y, strict=True))


def plain(numbers: Iterable[Fraction], scale: int) -> str:
    """Rationals over a common denominator, as integers."""
    return " ".join(str(int(x * scale)) for x in numbers)


def exact(number: Number) -> Fraction:
    """The rational number that a float is."""
    return Fraction(number) if isinstance(number, Rational) else Fraction(float(number))
