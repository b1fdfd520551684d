"""Random questions to the trusted core on rational functions: nothing false holds, nothing true is refuted.

The truth is decided by an evaluator of its own: expressions are drawn as trees, written for the core in sympy, and
evaluated here in fractions, where `None` is the value of what is not defined.
"""

from fractions import Fraction
from itertools import product

import sympy
from hypothesis import assume, event, given
from hypothesis import strategies as st

from conv2attn.verdicts import Verdict
from proofs.core import identity, sign

HOLDS, REFUTED = Verdict.HOLDS, Verdict.REFUTED
NAMES = ("x", "y", "p")
SYMBOLS = {"x": sympy.Symbol("x"), "y": sympy.Symbol("y", real=True), "p": sympy.Symbol("p", positive=True)}
GRID = [Fraction(v) for v in (-2, -1, 0, 1, 2, 3)] + [Fraction(-1, 2), Fraction(1, 2)]
POINTS = [dict(zip(NAMES, point, strict=True)) for point in product(GRID, repeat=3) if point[2] > 0]


def trees(leaves):
    """Trees of `leaves` under addition, multiplication and small powers, negative ones too."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from("+*"), inner, inner),
            st.tuples(st.just("^"), inner, st.sampled_from([-2, -1, 2, 3])),
        ),
        max_leaves=4,
    )


RATIONALS = trees(st.sampled_from(NAMES) | st.integers(-2, 2))


def written(tree):
    """The tree in sympy."""
    match tree:
        case ("+", left, right):
            return written(left) + written(right)
        case ("*", left, right):
            return written(left) * written(right)
        case ("^", base, power):
            return written(base) ** power
        case str(name):
            return SYMBOLS[name]
        case number:
            return sympy.Integer(number)


def defined(tree):
    return not written(tree).has(sympy.zoo, sympy.nan)


def value(tree, point):
    """The tree at a point; None if any part of it is not defined there."""
    match tree:
        case (operation, left, right):
            left, right = value(left, point), right if operation == "^" else value(right, point)
            if left is None or right is None or (operation == "^" and right < 0 and left == 0):
                return None
            return {"+": left.__add__, "*": left.__mul__, "^": left.__pow__}[operation](right)
        case str(name):
            return point[name]
        case number:
            return Fraction(number)


FACTORS = st.sampled_from(
    [
        *("x", "y", "p", 2, -1, ("*", -1, "x"), ("*", -1, "y"), ("+", "x", 1), ("+", 1, ("*", -1, "y"))),
        *(("^", "x", 2), ("^", "x", -2), ("^", "y", -1), ("^", "p", -1), ("^", "p", -2)),
        *(("^", ("+", "x", "y"), 2), ("^", ("+", 1, ("^", "y", -1)), 2), ("^", ("+", "p", ("^", "p", -1)), 2)),
        *(("*", "x", ("^", "y", -1)), ("+", "x", ("*", -1, "y")), ("^", ("+", "x", -1), 3)),
    ]
)


def summed(products):
    """A sum of products of trees, as a tree."""
    total = 0
    for factors in products:
        part = 1
        for factor in factors:
            part = ("*", part, factor)
        total = ("+", total, part)
    return total


@given(
    st.lists(st.lists(FACTORS, min_size=1, max_size=3), max_size=2),
    st.lists(FACTORS, max_size=3),
    st.lists(FACTORS, max_size=2),
    st.booleans(),
    st.none() | RATIONALS,
)
def test_an_inequality_that_holds_is_true_and_one_that_is_refuted_is_false(products, known, positive, strict, other):
    goal = summed(products) if other is None else other
    assume(all(map(defined, (goal, *known, *positive, *(f for factors in products for f in factors)))))
    goal_written = written(goal)
    options = {"given": tuple(map(written, known)), "positive": tuple(map(written, positive)), "strict": strict}
    verdict = sign(goal_written, tuple(tuple(map(written, factors)) for factors in products), **options)
    event(verdict.value)
    assert verdict is not REFUTED
    if verdict is HOLDS:
        for point in POINTS:
            at, hypotheses = value(goal, point), [value(tree, point) for tree in (*known, *positive)]
            if at is not None and None not in hypotheses:
                met = min(hypotheses, default=1) >= 0 and all(h > 0 for h in hypotheses[len(known) :])
                assert not met or at > 0 or (at == 0 and not strict)
    for point in POINTS[::37]:
        witness = {SYMBOLS[name]: sympy.Rational(v.numerator, v.denominator) for name, v in point.items()}
        refuted = sign(goal_written, **options, witness=witness) is REFUTED
        values = [value(tree, point) for tree in (goal, *known, *positive)]
        if refuted and None not in values:
            at, *hypotheses = values
            assert at < 0 or (at == 0 and strict)
            assert min(hypotheses, default=1) >= 0
            assert all(h > 0 for h in hypotheses[len(known) :])


@given(RATIONALS, RATIONALS, st.sampled_from(["other", "expanded", "together", "shifted"]), st.integers(1, 3))
def test_an_equation_that_holds_is_true_and_one_that_is_refuted_is_false(left, right, kind, shift):
    assume(defined(left) and defined(right))
    lhs = written(left)
    rhs = {
        "other": lambda: written(right),
        "expanded": lambda: sympy.expand(lhs),
        "together": lambda: sympy.together(lhs),
        "shifted": lambda: sympy.expand(lhs) + shift,
    }[kind]()
    verdict = identity(lhs, rhs)
    event(f"{kind}: {verdict.value}")
    if kind in ("expanded", "together"):
        assert verdict is HOLDS
    if kind == "shifted":
        assert verdict is not HOLDS
    if kind == "other":
        differs = [
            point for point in POINTS if None not in (a := (value(left, point), value(right, point))) and a[0] != a[1]
        ]
        assert not (verdict is HOLDS and differs)
        assert verdict is not REFUTED or differs or value_of_difference(lhs - rhs)


def value_of_difference(expr):
    """Whether a point far from the grid tells the two sides apart."""
    return expr.xreplace({symbol: sympy.Rational(n, 7) for n, symbol in enumerate(SYMBOLS.values(), 11)}) != 0


@given(st.lists(st.tuples(RATIONALS, st.sampled_from(NAMES), st.integers(-1, 2)), min_size=1, max_size=2), RATIONALS)
def test_an_equation_from_given_equations_is_true_where_they_are(pairs, left):
    """`left = left - sum of multiplier * (symbol - number)` holds only if it does at every point with these numbers."""
    knowns = [("+", name, -number) for _, name, number in pairs]
    right = (
        "+",
        left,
        summed([[-1, multiplier, known] for (multiplier, *_), known in zip(pairs, knowns, strict=True)]),
    )
    assume(all(map(defined, (left, right, *(multiplier for multiplier, *_ in pairs)))))
    given_ = [(written(multiplier), written(known)) for (multiplier, *_), known in zip(pairs, knowns, strict=True)]
    verdict = identity(written(left), written(right), given=given_)
    event(verdict.value)
    met = [point for point in POINTS if all(value(known, point) == 0 for known in knowns)]
    assert verdict is not REFUTED
    if verdict is HOLDS:
        assert met
        for point in met:
            at = value(left, point), value(right, point)
            assert None in at or at[0] == at[1]
