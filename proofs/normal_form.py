"""Finite sums over indices, with Kronecker deltas and index functions: their normal form, and their value at sizes."""

from itertools import permutations, product
from math import prod

from sympy import Dummy, Indexed, Integer, KroneckerDelta, Mul, Pow, Sum, Symbol, sympify
from sympy.concrete.expr_with_limits import ExprWithLimits
from sympy.core.function import AppliedUndef

from .points import admits


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
    if expr.has(ExprWithLimits) or any(power.has(KroneckerDelta) for power in expr.atoms(Pow)):
        raise ValueError(f"a sum inside another function, or a power of a delta: {expr}")
    return [({}, expr)]


def normal_form(expr, sizes):
    """The coefficients of the contracted summands of `expr`, in which bound indices have names of their own."""
    total, names = {}, {}
    for bound, monomial in terms(expr):
        coefficient, key = contracted(bound, monomial, sizes, names).as_coeff_Mul()
        total[key] = total.get(key, 0) + coefficient
    return total


def contracted(bound, monomial, sizes, names):
    """One summand with `sum_k [k = e] F(k) = F(e)` applied where e is in the range of k, and its indices renamed."""
    deltas = (d for d in Mul.make_args(monomial) if isinstance(d, KroneckerDelta))
    for delta, (k, e) in ((d, pair) for d in deltas for pair in permutations(d.args)):
        if k in bound and not e.has(k) and bound[k] in (bound.get(e), sizes.get(e), sizes.get(e.func)):
            rest = {other: size for other, size in bound.items() if other != k}
            return contracted(rest, (monomial / delta).xreplace({k: e}), sizes, names)
    used = [k for k in bound if monomial.has(k)]
    alike = [[k for k in used if bound[k] == size] for size in dict.fromkeys(bound[k] for k in used)]

    def name(k, place):
        return names.setdefault((bound[k], place), Dummy(f"{bound[k]}.{place}", integer=True))

    orders = product(*map(permutations, alike))  # only indices of the same range may change places
    renamed = (monomial.xreplace({k: name(k, n) for each in order for n, k in enumerate(each)}) for order in orders)
    return min(renamed, key=str) * prod(bound[k] for k in bound if k not in used)


def instantiated(expr, sizes, instance):
    """`expr` summed at an instance, or None where the instance leaves a range or an assumption."""
    indices = {k: Integer(v) for k, v in instance.items() if isinstance(k, Symbol)}
    inside = [admits(k, v) and v >= 0 for k, v in indices.items()]
    inside += [1 <= indices[k] <= indices[size] for k, size in sizes.items() if k in indices]

    def value_of(e):
        value = sympify(instance[e.func](*e.args))
        inside.append(value.is_Integer and (e.func not in sizes or 1 <= value <= indices[sizes[e.func]]))
        return value

    total = Integer(0)
    for bound, monomial in terms(expr):
        for values in product(*(range(1, 1 + sympify(size).xreplace(indices)) for size in bound.values())):
            point = indices | {k: Integer(v) for k, v in zip(bound, values, strict=True)}
            total += monomial.xreplace(point).replace(lambda e: e.func in instance, value_of)
    return total if all(inside) else None


def smallest(expr):
    """`expr` where all ranges have one index."""
    one = Integer(1)
    total = sum(monomial.xreplace(dict.fromkeys(bound, one)) for bound, monomial in terms(expr))
    total = sympify(total).replace(lambda e: isinstance(e, AppliedUndef), lambda e: one)
    placed = [i for e in total.atoms(Indexed) for i in e.indices] + [
        i for e in total.atoms(KroneckerDelta) for i in e.args
    ]
    return total.xreplace({symbol: one for i in placed for symbol in i.free_symbols})
