"""Finite sums over indices, with Kronecker deltas and index functions: their normal form."""

from itertools import permutations, product
from math import prod

from sympy import Dummy, KroneckerDelta, Mul

from .points import terms


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
