"""The methods of the trusted core, on questions whose answers are known."""

import pytest
import sympy

from conv2attn.verdicts import Verdict
from proofs import core

x, y = sympy.symbols("x y", positive=True)


def test_identity():
    assert core.identity((x + y) ** 2, x**2 + 2 * x * y + y**2) is Verdict.HOLDS
    assert core.identity(1 / (1 - x) - 1, x / (1 - x)) is Verdict.HOLDS
    assert core.identity((x + y) ** 2, x**2 + y**2) is Verdict.REFUTED
    assert core.identity(x, y, given=((1, x - y),)) is Verdict.HOLDS
    assert core.identity(x, 2 * y, given=((1, x - y),)) is Verdict.UNDECIDED


def test_sign():
    assert core.sign(x**2 - 2 * x * y + y**2, (((x - y) ** 2,),)) is Verdict.HOLDS
    assert core.sign(x**2, ((x**2,),), strict=True) is Verdict.UNDECIDED
    assert core.sign(x - y, ((x - y,),)) is Verdict.UNDECIDED
    assert core.sign(-x, ((-1, x),), given=(x,)) is Verdict.UNDECIDED
    assert core.sign(-x, ((-x,),), positive=(x,)) is Verdict.UNDECIDED
    assert core.sign(1 / x, ((1 / x,),), positive=(x,), strict=True) is Verdict.HOLDS
    assert core.sign(1 / x, ((1 / x,),), given=(x,)) is Verdict.UNDECIDED
    assert core.sign(x, ((x, y),), given=(x, y)) is Verdict.UNDECIDED
    assert core.sign(x**3, ((x**3,),)) is Verdict.UNDECIDED
    assert core.sign(x - y, given=(y,), witness={x: 1, y: 2}) is Verdict.REFUTED
    assert core.sign(x - y, given=(x - y,), witness={x: 1, y: 2}) is Verdict.UNDECIDED
    assert core.sign(0 * x, positive=(x,), witness={x: 1}, strict=True) is Verdict.REFUTED
    assert core.sign(x - 1, positive=(y,), witness={x: 0, y: 0}) is Verdict.UNDECIDED


def test_index_sums():
    i, j, k, n, m = sympy.symbols("i j k n m", integer=True)
    a, b = sympy.IndexedBase("a"), sympy.IndexedBase("b")
    f = sympy.Function("f")
    delta, total = sympy.KroneckerDelta, sympy.Sum
    square = total(a[i], (i, 1, n)) ** 2
    assert core.index_sums(square, total(a[i] * a[j], (i, 1, n), (j, 1, n))) is Verdict.HOLDS
    assert core.index_sums(square, total(a[i] ** 2, (i, 1, n)), instance={n: 2}) is Verdict.REFUTED
    assert core.index_sums(total(a[i], (i, 1, n)), total(a[j], (j, 1, n))) is Verdict.HOLDS
    assert core.index_sums(total(a[i], (i, 1, n)), total(a[i], (i, 1, m))) is Verdict.UNDECIDED
    assert core.index_sums(total(a[k] * b[i], (i, 1, n)), n * a[k]) is Verdict.UNDECIDED
    assert core.index_sums(total(a[k], (i, 1, n)), n * a[k]) is Verdict.HOLDS
    picked = total(delta(i, k) * a[i], (i, 1, n))
    assert core.index_sums(picked, a[k], sizes={k: n}) is Verdict.HOLDS
    assert core.index_sums(picked, a[k]) is Verdict.UNDECIDED  # k may lie outside
    assert core.index_sums(picked, a[k], sizes={k: m}) is Verdict.UNDECIDED
    assert core.index_sums(total(delta(i, f(j)) * a[i], (i, 1, n)), a[f(j)], sizes={f: n}) is Verdict.HOLDS
    assert core.index_sums(total(delta(i, f(i)) * a[i], (i, 1, n)), a[f(i)], sizes={f: n}) is Verdict.UNDECIDED
    assert core.index_sums(total(delta(i, f(i)) * a[k], (i, 1, n)), a[k], sizes={f: n}) is Verdict.UNDECIDED
    assert core.index_sums(a[k], b[k], instance={k: 1}) is Verdict.REFUTED
    assert core.index_sums(a[k], b[k], given=(a[k] - 2 * b[k],), instance={k: 1}) is Verdict.UNDECIDED
    with pytest.raises(ValueError, match="a sum inside"):
        core.index_sums(1 / total(a[i], (i, 1, n)), 1)
    with pytest.raises(ValueError, match="a sum inside"):
        core.index_sums(total(a[i], (i, 0, n)), 1)


def test_spans():
    assert core.spans([[1, 2], [0, 1]], [[5, 7]]) is Verdict.HOLDS
    assert core.spans([[1, 2]], [[2, 5]]) is Verdict.REFUTED


def test_less():
    e = sympy.exp(1)
    assert core.less(sympy.Rational(27, 10), e) is Verdict.HOLDS
    assert core.less(e**2 * 3, 1 + e) is Verdict.REFUTED
    assert core.less(e, e) is Verdict.UNDECIDED
    for number in (sympy.pi, sympy.sqrt(2), x, sympy.nan, 1 / (1 + e), sympy.sin(1)):
        with pytest.raises(TypeError):
            core.less(number, 1)


def test_finite():
    assert core.finite([1, 2], lambda n: n > 0, count=2) is Verdict.HOLDS
    assert core.finite([1, -2], lambda n: n > 0, count=2) is Verdict.REFUTED
    assert core.finite([], lambda n: True, count=2) is Verdict.UNDECIDED
    with pytest.raises(TypeError, match="a verdict is not a truth value"):
        core.finite([1], lambda n: Verdict.REFUTED, count=1)
