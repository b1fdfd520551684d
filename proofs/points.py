"""Points: values of symbols, of entries of tensors and of index functions, within assumptions and ranges.

Every refutation names one, and every premise must be met by one.
"""

from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any, final

import sympy
from sympy import Dummy, Function, Indexed, Integer, KroneckerDelta, Pow, Rational, Sum, Symbol, sympify
from sympy.core.function import AppliedUndef, UndefinedFunction

VALUES = [Rational(value) for value in (1, 2, 0, 4, -1, 9, "1/4")]  # tried for each quantity, in this order
SIZES = (1, 2, 3)  # tried for each size and index
ATOMS = (Symbol, Indexed, AppliedUndef, sympy.exp, KroneckerDelta, sympy.IndexedBase, Rational, type(sympy.E))
TRIED = 40_000  # points; where none serves there may be one, and the question stays undecided


def real(*exprs):
    """Raises TypeError unless `exprs` are built of `ATOMS` that may be real, with integer polynomials for ranges."""
    for part in {part for expr in exprs for part in sympy.preorder_traversal(sympify(expr))}:
        fair = not isinstance(part, Sum) or all(n.is_integer and n.is_polynomial() for *_, n in part.limits)
        if not fair or not isinstance(part, (*ATOMS, sympy.Add, sympy.Mul, Pow, Sum, sympy.Tuple)):
            raise TypeError(f"{part} is not of the atoms of the core, or has ranges that are no integer polynomials")
        if isinstance(part, ATOMS) and (not part.is_commutative or part.is_extended_real is False):
            raise TypeError(f"{part} is not a real quantity")


def terms(expr):
    """`expr` as summands ({bound index: size of its range}, monomial), bound indices renamed apart, by linearity."""
    expr = sympify(expr)
    if expr.is_Add:
        return [term for part in expr.args for term in terms(part)]
    if expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0):
        parts = product(*map(terms, expr.args if expr.is_Mul else [expr.base] * expr.exp))
        return [({k: n for sizes, _ in each for k, n in sizes.items()}, prod(m for _, m in each)) for each in parts]
    if isinstance(expr, Sum) and all(first == 1 for _, first, _ in expr.limits):
        summands = terms(expr.function)
        for k, _, size in expr.limits:  # the innermost first
            fresh = Dummy(integer=True)
            if any(sympify(inner).has(k) for bound, _ in summands for inner in bound.values()):
                raise ValueError(f"a range that depends on a bound index: {expr}")
            summands = [(bound | {fresh: size}, monomial.xreplace({k: fresh})) for bound, monomial in summands]
        return summands
    if expr.has(Sum) or any(power.has(KroneckerDelta) for power in expr.atoms(Pow)):
        raise ValueError(f"a sum inside another function, or a power of a delta: {expr}")
    return [({}, expr)]


@final
@dataclass(frozen=True)
class Point:
    """Rationals for symbols and entries, functions for index functions; `ranges` says in which range an index lies."""

    values: dict[Any, Any]
    functions: dict[Any, Any]
    ranges: dict[Any, Any]

    def at(self, expr):
        """`expr` here, sums added up; what has no value stays as it is."""
        total = Integer(0)
        for bound, monomial in terms(expr):
            for places in product(*(range(1, 1 + self.size(n)) for n in bound.values())):
                here = self.values | {k: Integer(v) for k, v in zip(bound, places, strict=True)}
                total += monomial.xreplace(here).replace(lambda e: e.func in self.functions, self.index)
        return total.xreplace(self.values)

    def size(self, expr):
        value = self.at(expr)
        if not (value.is_Integer and value >= 0):
            raise IndexError(f"a range of size {value}")
        return int(value)

    def index(self, expr):
        value = sympify(self.functions[expr.func](*expr.args))
        if not value.is_Integer or not 1 <= value <= self.size(self.ranges.get(expr.func, abs(value))):
            raise IndexError(f"{expr} is {value}")
        return value


def values_at(named, exprs, ranges=()):
    """`exprs` at the point with these values of symbols, entries and index functions; none where these leave their
    assumptions or ranges, or what is named is no quantity."""
    functions = {key: value for key, value in named.items() if isinstance(key, UndefinedFunction)}
    values = {sympify(key): sympify(value) for key, value in named.items() if key not in functions}
    here = Point(values, functions, dict(ranges))
    if not all(is_quantity(key) and value.is_Rational and admits(key, value) for key, value in values.items()):
        return []
    try:
        placed = [(here.at(k), here.size(n)) for k, n in here.ranges.items() if not isinstance(k, UndefinedFunction)]
        return [here.at(e) for e in exprs] if all(k.is_Integer and 1 <= k <= n for k, n in placed) else []
    except IndexError:
        return []


def is_quantity(key):
    """Whether `key` has values of its own: a symbol, or an entry of a tensor at numbers."""
    return isinstance(key, Symbol) or (isinstance(key, Indexed) and all(i.is_Integer for i in key.indices))


def admits(quantity, value):
    """Whether the assumptions of a symbol, or of an entry of a tensor, admit this rational number."""
    return all(getattr(value, f"is_{fact}") is truth for fact, truth in quantity.assumptions0.items())


def some_point(exprs, test):
    """Whether the values of `exprs` pass `test` at some rational point where all are defined.

    Symbols and entries of tensors with numbered indices have values, functions have none.
    """
    exprs = [sympify(expr) for expr in exprs]
    entries = set().union(*(expr.atoms(Indexed) for expr in exprs))
    if any(expr.has(Function) for expr in exprs) or not all(map(is_quantity, entries)):
        return False
    names = {entry: Dummy() for entry in entries}
    symbols = set().union(*(expr.xreplace(names).free_symbols for expr in exprs)) - set(names.values())
    quantities = sorted(symbols | entries, key=str)
    choices = product(*([value for value in VALUES if admits(each, value)] for each in quantities))
    for values in islice(choices, TRIED):
        here = dict(zip(quantities, values, strict=True))
        at = [expr.xreplace(here) for expr in exprs]
        if all(value.is_Rational for value in at) and test(at):
            return True
    return False


def satisfiable(given, ranges):
    """Whether all of `given`, which have sums, are 0 at some point within `ranges`; index functions are 1 there."""
    parts = [sympify(e) for e in (*given, *ranges, *ranges.values()) if not isinstance(e, UndefinedFunction)]
    sizes = sorted({symbol for e in parts for symbol in e.free_symbols if symbol.is_integer}, key=str)
    functions = {e.func: lambda *at: 1 for part in parts for e in part.atoms(AppliedUndef)}
    points = (dict(zip(sizes, values, strict=True)) | functions for values in product(SIZES, repeat=len(sizes)))
    places = (values_at(named, given, ranges) for named in points)
    return any(values and some_point(values, lambda at: not any(at)) for values in places)
