"""Random statements put to the trusted core: nothing false may hold, nothing true may be refuted.

Statements are drawn as trees, written for the core in sympy, and evaluated here on their own, in fractions, where
`None` is the value of what is not defined. The suite draws 1,000; `make attack` draws 10,000.
"""

import os
from fractions import Fraction
from itertools import product

import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conv2attn.verdicts import Verdict
from proofs.core import identity, index_sums, sign

HOLDS, REFUTED = Verdict.HOLDS, Verdict.REFUTED
attack = settings(max_examples=int(os.environ.get("CONV2ATTN_ATTACK", "1000")) // 4, deadline=None)
NAMES = ("x", "y", "p")
SYMBOLS = {"x": sympy.Symbol("x"), "y": sympy.Symbol("y", real=True), "p": sympy.Symbol("p", positive=True)}
GRID = [Fraction(v) for v in (-2, -1, 0, 1, 2, 3)] + [Fraction(-1, 2), Fraction(1, 2)]
POINTS = [dict(zip(NAMES, point, strict=True)) for point in product(GRID, repeat=3) if point[2] > 0]
TREES = st.recursive(
    st.sampled_from(NAMES) | st.integers(-2, 2),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+*"), inner, inner),
        st.tuples(st.just("^"), inner, st.sampled_from([-2, -1, 2, 3])),
    ),
    max_leaves=4,
)
FACTORS = st.sampled_from(
    [
        *("x", "y", "p", 2, -1, ("*", -1, "x"), ("*", -1, "y"), ("+", "x", 1), ("+", 1, ("*", -1, "y"))),
        *(("^", "x", 2), ("^", "x", -2), ("^", "y", -1), ("^", "p", -1), ("^", "p", -2)),
        *(("^", ("+", "x", "y"), 2), ("^", ("+", 1, ("^", "y", -1)), 2), ("^", ("+", "p", ("^", "p", -1)), 2)),
        *(("*", "x", ("^", "y", -1)), ("+", "x", ("*", -1, "y")), ("^", ("+", "x", -1), 3)),
    ]
)


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
    return sympy.Integer(tree)


def defined(*trees):
    return not any(written(tree).has(sympy.zoo, sympy.nan) for tree in trees)


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
    return Fraction(tree)


def summed(products):
    """A sum of products of trees, as a tree."""
    total = 0
    for factors in products:
        part = 1
        for factor in factors:
            part = ("*", part, factor)
        total = ("+", total, part)
    return total


@attack
@given(
    st.lists(st.lists(FACTORS, min_size=1, max_size=3), max_size=2),
    st.lists(FACTORS, max_size=3),
    st.lists(FACTORS, max_size=2),
    st.booleans(),
    st.none() | TREES,
)
def test_inequalities(products, known, positive, strict, other):
    goal = summed(products) if other is None else other
    assume(defined(goal, *known, *positive, *(f for factors in products for f in factors)))
    options = {"given": tuple(map(written, known)), "positive": tuple(map(written, positive)), "strict": strict}

    def truth(point):
        """Whether the goal is true there; None where it, or a premise, is not defined or not met."""
        at, *premises = (value(tree, point) for tree in (goal, *known, *positive))
        if None in (at, *premises) or min(premises, default=1) < 0 or 0 in premises[len(known) :]:
            return None
        return at > 0 or (at == 0 and not strict)

    verdict = sign(written(goal), tuple(tuple(map(written, factors)) for factors in products), **options)
    assert verdict is not REFUTED
    assert not (verdict is HOLDS and False in map(truth, POINTS))
    for point in POINTS[::37]:
        witness = {SYMBOLS[name]: sympy.Rational(v.numerator, v.denominator) for name, v in point.items()}
        refuted = sign(written(goal), **options, witness=witness) is REFUTED
        values = [value(tree, point) for tree in (goal, *known, *positive)]
        assert not refuted or None in values or truth(point) is False


@attack
@given(TREES, TREES, st.sampled_from(["other", "expanded", "together", "shifted"]), st.integers(1, 3))
def test_equations(left, right, kind, shift):
    assume(defined(left, right))
    lhs = written(left)
    made = {"expanded": sympy.expand, "together": sympy.together, "shifted": lambda e: sympy.expand(e) + shift}
    verdict = identity(lhs, made[kind](lhs) if kind in made else written(right))
    if kind != "other":
        assert verdict is HOLDS if kind != "shifted" else verdict is not HOLDS
        return
    sides = [(value(left, point), value(right, point)) for point in POINTS]
    differs = any(None not in pair and pair[0] != pair[1] for pair in sides)
    assert not (verdict is HOLDS and differs)
    far = {symbol: sympy.Rational(n, 7) for n, symbol in enumerate(SYMBOLS.values(), 11)}
    assert verdict is not REFUTED or differs or (lhs - written(right)).xreplace(far) != 0


@attack
@given(st.lists(st.tuples(TREES, st.sampled_from(NAMES), st.integers(-1, 2)), min_size=1, max_size=2), TREES)
def test_equations_from_given_equations(pairs, left):
    """`left = left - sum of multiplier * (symbol - number)` holds only if it does at every point with these numbers."""
    knowns = [("+", name, -number) for _, name, number in pairs]
    multipliers = [multiplier for multiplier, *_ in pairs]
    right = ("+", left, summed([[-1, *pair] for pair in zip(multipliers, knowns, strict=True)]))
    assume(defined(left, right, *multipliers))
    given_ = list(zip(map(written, multipliers), map(written, knowns), strict=True))
    verdict = identity(written(left), written(right), given=given_)
    met = [point for point in POINTS if all(value(known, point) == 0 for known in knowns)]
    assert verdict is not REFUTED
    assert not (verdict is HOLDS and not met)
    for point in met if verdict is HOLDS else ():
        at = value(left, point), value(right, point)
        assert None in at or at[0] == at[1]


SIZES = {name: sympy.Symbol(name, integer=True) for name in "nm"}
INDICES = {name: sympy.Symbol(name, integer=True) for name in "ijkg"}
TENSORS = {name: sympy.IndexedBase(name) for name in "ab"}
READS = sympy.Function("f")
PLACES = st.sampled_from(["i", "j", "k", "g", ("f", "i"), ("f", "k"), ("f", "g")])
SUMS = st.recursive(
    st.one_of(
        st.tuples(st.just("entry"), st.sampled_from("ab"), PLACES),
        st.tuples(st.just("delta"), PLACES, PLACES),
        st.integers(-1, 2),
        st.sampled_from("nm"),
    ),
    lambda inner: (
        st.tuples(st.sampled_from("+*"), inner, inner)
        | st.tuples(st.just("sum"), st.sampled_from("ijk"), st.sampled_from("nm"), inner)
    ),
    max_leaves=5,
)
RANGES = st.dictionaries(st.sampled_from("kgf"), st.sampled_from("nm"), max_size=3)
ENTRIES = {(tensor, v): (-1) ** v * (3 + 5 * v + 7 * v * v * ord(tensor)) for tensor in "ab" for v in range(-9, 10)}
INSTANCES = [
    ({"n": n, "m": m}, dict.fromkeys("ij", 1) | {"k": k, "g": g}, lambda v, reach=reach: 1 + (v * reach) % 3)
    for n, m, k, g, reach in product((0, 1, 3), (1, 2), (1, 2), (1, 3), (0, 1, 2))
]


def sum_written(tree):
    """The tree of sums in sympy."""

    def at(place):
        return INDICES[place] if isinstance(place, str) else READS(INDICES[place[1]])

    match tree:
        case ("entry", tensor, place):
            return TENSORS[tensor][at(place)]
        case ("delta", one, other):
            return sympy.KroneckerDelta(at(one), at(other))
        case ("sum", index, size, inner):
            return sympy.Sum(sum_written(inner), (INDICES[index], 1, SIZES[size]))
        case ("+", left, right):
            return sum_written(left) + sum_written(right)
        case ("*", left, right):
            return sum_written(left) * sum_written(right)
        case str(size):
            return SIZES[size]
    return sympy.Integer(tree)


def total(tree, sizes, places, reads):
    """The tree of sums, added up."""

    def at(place):
        return places[place] if isinstance(place, str) else reads(places[place[1]])

    match tree:
        case ("entry", tensor, place):
            return ENTRIES[tensor, at(place)]
        case ("delta", one, other):
            return int(at(one) == at(other))
        case ("sum", index, size, inner):
            return sum(total(inner, sizes, places | {index: v}, reads) for v in range(1, 1 + sizes[size]))
        case ("+", left, right):
            return total(left, sizes, places, reads) + total(right, sizes, places, reads)
        case ("*", left, right):
            return total(left, sizes, places, reads) * total(right, sizes, places, reads)
        case str(size):
            return sizes[size]
    return tree


def rewritten(tree, draw):
    """A tree of the same value: sums exchanged or split, and parts swapped."""
    match tree:
        case ("sum", index, size, inner):
            match rewritten(inner, draw):
                case ("sum", other, other_size, innermost) if other != index and draw(st.booleans()):
                    return ("sum", other, other_size, ("sum", index, size, innermost))
                case ("+", left, right) if draw(st.booleans()):
                    return ("+", ("sum", index, size, left), ("sum", index, size, right))
                case same:
                    return ("sum", index, size, same)
        case (("+" | "*") as operation, left, right):
            left, right = rewritten(left, draw), rewritten(right, draw)
            return (operation, right, left) if draw(st.booleans()) else (operation, left, right)
    return tree


def inside(instance, ranges):
    """Whether the free indices lie in the ranges, and the function has its values there."""
    sizes, places, reads = instance
    top = {place: sizes[size] for place, size in ranges.items()}
    indices = all(1 <= places[name] <= top[name] for name in set(top) - {"f"})
    return indices and ("f" not in top or all(1 <= reads(v) <= top["f"] for v in range(1, 10)))


@attack
@given(SUMS, SUMS, RANGES, st.booleans(), st.sampled_from(INSTANCES), st.data())
def test_equations_of_sums(tree, other, ranges, same, case, data):
    other = rewritten(tree, data.draw) if same else other
    lhs, rhs = sum_written(tree), sum_written(other)
    assume(not any(e.has(sympy.KroneckerDelta) for expr in (lhs, rhs) for e in expr.atoms(sympy.Pow)))
    sizes = {READS if name == "f" else INDICES[name]: SIZES[size] for name, size in ranges.items()}
    verdict = index_sums(lhs, rhs, sizes=sizes)
    assert verdict is not REFUTED
    for instance in INSTANCES if verdict is HOLDS else ():
        assert not inside(instance, ranges) or total(tree, *instance) == total(other, *instance)
    values, places, reads = case
    point = {SIZES[name]: v for name, v in values.items()} | {INDICES[name]: place for name, place in places.items()}
    if index_sums(lhs, rhs, sizes=sizes, instance=point | {READS: reads}) is REFUTED:
        assert not same
        assert verdict is not HOLDS
        assert all(1 <= places[name] <= values[size] for name, size in ranges.items() if name != "f")
        assert total(tree, *case) != total(other, *case)
