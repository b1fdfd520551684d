"""The trusted core: every step in this folder is decided by one of these functions, in exact or ball arithmetic."""

from itertools import permutations, product
from math import prod

import flint
import sympy
from sympy import Dummy, Indexed, Integer, KroneckerDelta, Mul, Sum, Symbol, sympify

from conv2attn.verdicts import Verdict

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def vanishes(expr):
    """Whether `expr` is the zero of the field of rational functions over Q in its atoms (canonical arithmetic)."""
    atoms = sorted(sympify(expr).atoms(Symbol, Indexed, sympy.Function), key=str)
    return not sympy.QQ.frac_field(*atoms or [Dummy()]).from_sympy(sympify(expr))


def identity(lhs, rhs, given=()):
    """`lhs = rhs` wherever no denominator is 0; `given` holds equalities: pairs (multiplier, what is known to be 0)."""
    zero = vanishes(lhs - rhs - sum(multiplier * known for multiplier, known in given))
    return HOLDS if zero else UNDECIDED if given else REFUTED


def sign(goal, products=(), given=(), positive=(), strict=False, witness=None):
    """`goal >= 0` (`> 0` if strict) where `given` are >= 0 and `positive` > 0: it is a sum of products of those, of
    positive rationals, of even powers and of inverses of what is positive. A witness, where these hold, refutes."""
    if witness:
        value, *rest = (sympify(e).subs(witness) for e in (goal, *given, *positive))
        met = all(e >= 0 for e in rest) and all(e > 0 for e in rest[len(given) :])
        return REFUTED if met and (value < 0 or (strict and value == 0)) else UNDECIDED

    def grade(f):
        if any(vanishes(e) for p in positive for e in (f - p, f * p - 1)) or (sympify(f).is_Rational and f > 0):
            return 2
        even = not sympify(f).is_Rational and f.is_Pow and f.exp.is_Integer and f.exp % 2 == 0
        return int(even or any(vanishes(f - known) for known in given))

    grades = {min(map(grade, factors)) for factors in products}
    sound = 0 not in grades and (2 in grades or not strict) and vanishes(goal - sum(map(prod, products)))
    return HOLDS if sound else UNDECIDED


def terms(expr):
    """`expr` as summands ({bound index: size of its range}, monomial), bound indices renamed apart, by linearity."""
    expr = sympify(expr)
    if expr.is_Add:
        return [term for part in expr.args for term in terms(part)]
    if expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0):
        parts = product(*map(terms, expr.args if expr.is_Mul else [expr.base] * expr.exp))
        return [({k: n for sizes, _ in each for k, n in sizes.items()}, prod(m for _, m in each)) for each in parts]
    if isinstance(expr, Sum) and all(first == 1 for _, first, _ in expr.limits):
        fresh = {k: Dummy(integer=True) for k, _, _ in expr.limits}
        sizes = {fresh[k]: size for k, _, size in expr.limits}
        return [(inner | sizes, monomial.xreplace(fresh)) for inner, monomial in terms(expr.function)]
    if expr.has(Sum):
        raise ValueError(f"a sum inside another function: {expr}")
    return [({}, expr)]


def contracted(bound, monomial, sizes):
    """The normal form of one summand: `sum_k [k = e] F(k) = F(e)` where e is in the range of k; indices renamed."""
    deltas = (d for d in Mul.make_args(monomial) if isinstance(d, KroneckerDelta))
    for delta, (k, e) in ((d, pair) for d in deltas for pair in permutations(d.args)):
        if k in bound and not e.has(k) and bound[k] in (bound.get(e), sizes.get(e), sizes.get(e.func)):
            rest = {other: size for other, size in bound.items() if other != k}
            return contracted(rest, (monomial / delta).xreplace({k: e}), sizes)
    used = [k for k in bound if monomial.has(k)]
    names = ({k: Symbol(f"{bound[k]}.{i}", integer=True) for i, k in enumerate(order)} for order in permutations(used))
    return min((monomial.xreplace(name) for name in names), key=str) * prod(bound[k] for k in bound if k not in used)


def index_sums(lhs, rhs, sizes=None, given=(), instance=None):
    """`lhs = rhs` for all tensors and finite sizes: equal normal forms; `sizes` says in which range a free index, or
    the values of an index function, lie; `given` are quantities known to be 0. An instance (sizes and free indices:
    integers; index functions: functions) refutes if the two differ as polynomials in the entries of the tensors."""
    total = {}
    for bound, monomial in terms(lhs - rhs - sum(given)):
        if instance is None:
            coefficient, key = contracted(bound, monomial, sizes or {}).as_coeff_Mul()
            total[key] = total.get(key, 0) + coefficient
        for values in product(*(range(1, 1 + instance[size]) for size in bound.values())) if instance else ():
            point = {k: Integer(v) for k, v in [*instance.items(), *zip(bound, values, strict=True)] if k.is_Symbol}
            value = monomial.xreplace(point).replace(lambda e: e.func in instance, lambda e: instance[e.func](*e.args))
            total[0] = total.get(0, 0) + value
    if instance is None:
        return UNDECIDED if any(total.values()) else HOLDS
    return UNDECIDED if given or vanishes(total.get(0, 0)) else REFUTED


def spans(rows, targets):
    """Every target is a rational combination of the rows: the rank does not grow (exact elimination over Q)."""
    entries = [[flint.fmpq(x.numerator, x.denominator) for x in row] for row in [*rows, *targets]]
    return HOLDS if flint.fmpq_mat(entries[: len(rows)]).rank() == flint.fmpq_mat(entries).rank() else REFUTED


def ball(expr):
    """An enclosure of a number built from rationals by +, *, positive integer powers and exp, at 256 bits."""
    with flint.ctx.workprec(256):
        if expr.is_Rational:
            return flint.arb(flint.fmpq(int(expr.p), int(expr.q)))
        base, power = expr.as_base_exp()
        if base == sympy.E:
            return ball(power).exp()
        power_of = [base] * power if power.is_Integer and power > 1 else None  # None, for anything else, is a TypeError
        return (sum if expr.is_Add else prod)(map(ball, expr.args if expr.is_Add or expr.is_Mul else power_of))


def less(smaller, larger):
    """`smaller < larger`, decided when the ball of the difference excludes 0."""
    gap = ball(sympify(larger) - smaller)
    return HOLDS if gap > 0 else REFUTED if gap < 0 else UNDECIDED


def finite(cases, holds, count):
    """`holds(case)` for all of the finitely many cases, whose number must be `count`."""
    return UNDECIDED if len(answers := list(map(holds, cases))) != count else HOLDS if all(answers) else REFUTED
