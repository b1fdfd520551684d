"""The trusted core: every step in this folder is decided by one of these functions, in exact or ball arithmetic.

Quantities are real. What is said of them is said wherever every expression that is put to a method is defined, and for
all values that the assumptions of their symbols admit. What is given must be met by some point, or nothing is decided.
"""

from math import prod

import flint
import sympy
from sympy import Function, Indexed, Pow, Symbol, sympify

from conv2attn.verdicts import Verdict

from .normal_form import normal_form
from .points import real, satisfiable, some_point, values_at

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def vanishes(expr):
    """Whether `expr` is the zero of the field of rational functions over Q in its atoms (canonical arithmetic)."""
    expr = sympify(expr)
    atoms = sorted(expr.atoms(Symbol, Indexed, Function), key=str)
    names = {atom: Symbol(f"x{place}") for place, atom in enumerate(atoms)}  # two symbols may be printed alike
    return not sympy.QQ.frac_field(*names.values() or [Symbol("x")]).from_sympy(expr.xreplace(names))


def identity(lhs, rhs, given=()):
    """`lhs = rhs` wherever no denominator is 0, of a multiplier neither; `given` holds equalities: pairs (multiplier,
    what is known to be 0). A rational point where the two differ refutes."""
    real(lhs, rhs, *(e for pair in given for e in pair))
    if vanishes(lhs - rhs - sum(multiplier * zero for multiplier, zero in given)):
        parts = (part for pair in given for part in pair)
        return HOLDS if not given or some_point([lhs, rhs, *parts], lambda at: not any(at[3::2])) else UNDECIDED
    return REFUTED if not given and some_point([lhs, rhs], lambda at: at[0] != at[1]) else UNDECIDED


def sign(goal, products=(), given=(), positive=(), strict=False, witness=None):
    """`goal >= 0` (`> 0` if strict) where `given` are >= 0 and `positive` > 0: it is a sum of products of those, of
    positive rationals, of even powers and of inverses of what is positive. A witness, where these hold, refutes."""
    real(goal, *given, *positive, *(f for factors in products for f in factors))
    premises = (*given, *positive)

    def true(values):
        return all(e >= 0 for e in values) and all(e > 0 for e in values[len(given) :])

    if witness is not None:
        values = values_at(witness, (goal, *premises))
        fair = values and all(e.is_Rational for e in values) and true(values[1:])
        return REFUTED if fair and (values[0] < 0 or (strict and values[0] == 0)) else UNDECIDED

    def grade(f):
        f = sympify(f)
        if any(vanishes(e) for p in positive for e in (f - p, f * p - 1)) or (f.is_Rational and f > 0):
            return 2
        below = [power.base for power in f.atoms(Pow) if not (power.exp.is_Integer and power.exp > 0)]
        even = f.is_Pow and f.exp.is_Integer and f.exp % 2 == 0 and all(grade(base) == 2 for base in below)
        return int(even or any(vanishes(f - each) for each in given))

    grades = {min(map(grade, factors)) for factors in products}
    sound = 0 not in grades and (2 in grades or not strict) and vanishes(goal - sum(map(prod, products)))
    return HOLDS if sound and (not premises or some_point([goal, *premises], lambda at: true(at[1:]))) else UNDECIDED


def index_sums(lhs, rhs, sizes=None, given=(), instance=None):
    """`lhs = rhs` for all tensors and finite sizes: equal normal forms; `sizes` says in which range a free index, or
    the values of an index function, lie; `given` are quantities known to be 0. An instance (sizes and free indices:
    integers; index functions: functions) within these ranges refutes if the two differ for some entries."""
    real(lhs, rhs, *given)
    ranges = sizes or {}
    if instance is not None:
        values = values_at(instance, [lhs - rhs], ranges)
        return REFUTED if not given and values and some_point(values, any) else UNDECIDED
    fair = not given or satisfiable(given, ranges)
    return HOLDS if fair and not any(normal_form(lhs - rhs - sum(given), ranges).values()) else UNDECIDED


def spans(rows, targets):
    """Every target is a rational combination of the rows: the rank does not grow (exact elimination over Q)."""
    if not rows or not targets:
        return UNDECIDED
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
    """`holds(case)` for all of the finitely many cases, whose number must be `count`, one at least."""
    answers = list(map(holds, cases))
    return UNDECIDED if len(answers) != count or not count else HOLDS if all(answers) else REFUTED
