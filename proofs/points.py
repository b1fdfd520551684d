"""Rational points: where a question has values, what the assumptions of its symbols admit, and a search for one."""

from itertools import islice, product

from sympy import Dummy, Function, Indexed, Rational, Symbol, sympify

VALUES = [Rational(value) for value in (1, 2, 0, 4, -1, 9, "1/4")]  # tried for each quantity, in this order
TRIED = 40_000  # points; where none serves there may be one, and the question stays undecided


def real(*exprs):
    """Raises TypeError unless all symbols and entries in `exprs` commute and may be real."""
    for atom in set().union(*(sympify(expr).atoms(Symbol, Indexed, Function) for expr in exprs)):
        if not atom.is_commutative or atom.is_extended_real is False:
            raise TypeError(f"{atom} is not a real quantity")


def admits(quantity, value):
    """Whether the assumptions of a symbol, or of an entry of a tensor, admit this rational number."""
    return all(getattr(value, f"is_{fact}") is truth for fact, truth in quantity.assumptions0.items())


def found(exprs, test):
    """Whether the values of `exprs` pass `test` at some rational point where all are defined.

    Symbols and entries of tensors with numbered indices have values, functions have none.
    """
    exprs = [sympify(expr) for expr in exprs]
    entries = set().union(*(expr.atoms(Indexed) for expr in exprs))
    if any(expr.has(Function) for expr in exprs) or not all(i.is_Integer for e in entries for i in e.indices):
        return False
    names = {entry: Dummy() for entry in entries}
    symbols = set().union(*(expr.xreplace(names).free_symbols for expr in exprs)) - set(names.values())
    quantities = sorted(symbols | entries, key=str)
    choices = product(*([value for value in VALUES if admits(each, value)] for each in quantities))
    for values in islice(choices, TRIED):
        point = dict(zip(quantities, values, strict=True))
        at = [expr.xreplace(point) for expr in exprs]
        if all(value.is_Rational for value in at) and test(at):
            return True
    return False
