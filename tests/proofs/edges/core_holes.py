"""Questions that a core without care answers wrongly: undefined factors, captured indices, points out of range."""

import pytest
from sympy import (
    Float,
    Function,
    I,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Product,
    Rational,
    Sum,
    Symbol,
    cos,
    exp,
    pi,
    symbols,
)

from conv2attn.verdicts import Verdict
from proofs.core import finite, identity, index_sums, sign, spans

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED
x, y, z = symbols("x y z")
i, j, k, n, m = symbols("i j k n m", integer=True)
a, b = IndexedBase("a"), IndexedBase("b")
f = Function("f")


def test_an_even_negative_power_is_no_square_where_its_base_may_be_0():
    assert sign(-1, ((y, -y, y**-2),), given=(y, -y)) is UNDECIDED
    assert sign(-((y + 1) ** 2), ((y, -y, (1 + 1 / y) ** 2),), given=(y, -y)) is UNDECIDED
    assert sign(y**-2, ((y**-2,),), positive=(y,)) is HOLDS
    assert sign((1 + 1 / y) ** 2, (((1 + 1 / y) ** 2,),), positive=(y,)) is HOLDS


def test_a_square_of_what_is_not_real_is_refused():
    w = Symbol("w", imaginary=True)
    with pytest.raises(TypeError, match="not a real quantity"):
        sign(w**2, ((w**2,),))
    u, v = symbols("u v", commutative=False)
    with pytest.raises(TypeError, match="not a real quantity"):
        identity(u * v, v * u)


def test_the_range_of_an_inner_sum_is_not_captured():
    captured = Sum(a[i], (i, 1, j), (j, 1, n))
    for capturing in (captured, Sum(Sum(a[i], (i, 1, j)), (j, 1, n))):
        with pytest.raises(ValueError, match="depends on a bound index"):
            index_sums(capturing, n * Sum(a[i], (i, 1, j)))
    assert index_sums(Sum(a[i], (i, 1, j)), Sum(a[k], (k, 1, j))) is HOLDS
    repeated = Sum(a[i], (i, 1, n), (i, 1, m))
    assert index_sums(repeated, m * Sum(a[i], (i, 1, n))) is HOLDS
    assert index_sums(repeated, Sum(a[i], (i, 1, m))) is UNDECIDED


def test_what_is_printed_alike_is_not_the_same():
    other, positive = Symbol("n", integer=True, positive=True), Symbol("x", positive=True)
    assert index_sums(Sum(a[i], (i, 1, n)), Sum(a[i], (i, 1, other))) is UNDECIDED
    assert identity(x, positive) is REFUTED
    assert identity(x + 1, 1 + x) is HOLDS


def test_a_witness_must_meet_the_assumptions_of_its_symbols_and_name_them_all():
    p, whole = Symbol("p", positive=True), Symbol("w", integer=True)
    assert sign(p, witness={p: -1}) is UNDECIDED
    assert sign(whole**2 - whole, witness={whole: Rational(1, 2)}) is UNDECIDED
    assert sign(x + y, witness={x: -1}) is UNDECIDED
    assert sign(p + whole, witness={p: -2, whole: 1}) is UNDECIDED
    assert sign(1 / x, witness={x: 0}) is UNDECIDED
    assert sign(1 / x, witness={x: -1}) is REFUTED


def test_an_instance_must_stay_in_the_ranges():
    picked = Sum(KroneckerDelta(i, f(j)) * a[i], (i, 1, n))
    assert index_sums(picked, a[f(j)], sizes={f: n}) is HOLDS
    outside = {n: 1, j: 1, f: lambda j: j + 1}
    assert index_sums(picked, a[f(j)], sizes={f: n}, instance=outside) is UNDECIDED
    assert index_sums(picked, a[f(j)], instance=outside) is REFUTED
    at = Sum(KroneckerDelta(i, k) * a[i], (i, 1, n))
    assert index_sums(at, a[k], sizes={k: n}, instance={n: 1, k: 2}) is UNDECIDED
    assert index_sums(Sum(a[i], (i, 1, n)), a[1], instance={n: -1}) is UNDECIDED
    assert index_sums(Sum(a[i], (i, 1, n)), a[1], instance={n: 0}) is REFUTED
    assert index_sums(Sum(a[i], (i, 1, n)), a[1], instance={n: Rational(3, 2)}) is UNDECIDED
    positive = Symbol("k", integer=True, positive=True)
    assert index_sums(a[positive], b[positive], instance={positive: 0}) is UNDECIDED


def test_what_nothing_meets_proves_nothing():
    assert identity(1, 0, given=((1, 1),)) is UNDECIDED
    assert identity(1, 0, given=((1 / y, y),)) is UNDECIDED
    assert identity(1 / y + y, 1 / y, given=((1, y),)) is UNDECIDED
    assert identity(x, y, given=((1, x - y), (0, x**2 + 1))) is UNDECIDED
    assert index_sums(a[k], 0, given=(a[k], Sum(b[i], (i, 1, n)) + 1, -Sum(b[i], (i, 1, n)) - 1)) is HOLDS
    assert index_sums(a[k] ** 2, -1, given=(a[k] ** 2 + 1,)) is UNDECIDED
    assert index_sums(a[k], a[k] + 1, given=(Integer(-1),)) is UNDECIDED
    assert sign(-1, ((x, -x - 1), (x**2,), (x - 1 - x,)), given=(x, -x - 1)) is UNDECIDED
    assert sign(-1, ((-1 - x**2,), (x**2,)), given=(-1 - x**2,)) is UNDECIDED


def test_a_difference_that_vanishes_where_all_entries_are_1_is_seen():
    assert index_sums(x * a[1], x * b[1], instance={}) is REFUTED


def test_a_true_equation_between_dependent_quantities_is_not_refuted():
    assert identity(KroneckerDelta(i, j) * (i - j), 0) is UNDECIDED
    assert identity(f(x * (x + 1)), f(x**2 + x)) is UNDECIDED
    assert identity(a[x * (x + 1)], a[x**2 + x]) is UNDECIDED
    assert identity(Symbol("o", zero=True), 0) is UNDECIDED


def test_sums_that_are_no_finite_sums_of_monomials_are_refused():
    late = Sum(a[i] * a[j], (i, 0, n), (j, 1, m))
    for outside in (1 / (1 + KroneckerDelta(i, j)), Sum(a[i], (i, 0, n)) ** 2, late):
        with pytest.raises(ValueError, match="a sum inside another function"):
            index_sums(outside, 1)


def test_nothing_is_shown_of_nothing():
    assert spans([], [[1]]) is UNDECIDED
    assert spans([[1]], []) is UNDECIDED
    assert finite([], lambda case: True, count=0) is UNDECIDED
    assert sign(0, strict=True) is UNDECIDED


def test_a_point_names_quantities_and_not_expressions():
    assert sign(x**2, witness={x**2: -1}) is UNDECIDED
    assert sign(x + 1, witness={x + 1: -1}) is UNDECIDED
    assert sign(a[k], witness={a[k]: -1}) is UNDECIDED
    assert sign(a[1], witness={a[1]: -1}) is REFUTED
    assert sign(f(x) ** 2, witness={f(x): -1}) is UNDECIDED
    assert index_sums(a[k + 1], a[1 + k], instance={k + 1: 1, k: 1}) is UNDECIDED
    assert index_sums(n * a[1], Sum(a[1], (i, 1, n)), instance={n: 2, Sum(a[1], (i, 1, n)): 0}) is UNDECIDED


def test_premises_are_met_at_one_point_with_its_sizes():
    assert index_sums(a[1], a[1] + 1, given=(n - 2, 1 - Sum(1, (k, 1, n)))) is UNDECIDED
    assert index_sums(0, 1, given=(n - 2, 1 - Sum(1, (k, 1, n)))) is UNDECIDED
    assert index_sums(0, 1, given=(n - 2, Sum(1, (k, 1, n)) - n + 1 - n)) is UNDECIDED
    assert index_sums(a[1], n, given=(n - 2, a[1] - 2 * n + 2)) is HOLDS
    assert index_sums(0, 1, given=(KroneckerDelta(1, k), k - 1, -k), sizes={k: n}) is UNDECIDED


def test_what_holds_within_ranges_is_not_refuted_outside_them():
    picked = Sum(KroneckerDelta(i, 1) * a[i], (i, 1, n))
    assert index_sums(picked, a[1], sizes={1: n}) is HOLDS
    assert index_sums(picked, a[1], sizes={1: n}, instance={n: 0}) is UNDECIDED
    assert index_sums(picked, a[1], instance={n: 0}) is REFUTED
    shifted = Sum(KroneckerDelta(i, k + 1) * a[i], (i, 1, n))
    assert index_sums(shifted, a[k + 1], sizes={k + 1: n}) is HOLDS
    assert index_sums(shifted, a[k + 1], sizes={k + 1: n}, instance={n: 1, k: 1}) is UNDECIDED


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sign((exp(I * x) - exp(-I * x)) ** 2, (((exp(I * x) - exp(-I * x)) ** 2,),)),
        lambda: identity(Float(1) / 3, Rational(1, 3)),
        lambda: identity(cos(x), cos(x)),
        lambda: identity(pi * x, pi * x),
        lambda: index_sums(Product(a[i], (i, 1, n)), 1),
        lambda: index_sums(Sum(a[i], (i, 1, n / 2)), Sum(a[i], (i, 1, n / 2))),
        lambda: index_sums(Sum(a[i], (i, 1, 2**n)), Sum(a[i], (i, 1, 2**n))),
    ],
)
def test_what_is_no_atom_of_the_core_is_refused(ask):
    with pytest.raises(TypeError, match="is not of the atoms of the core"):
        ask()
