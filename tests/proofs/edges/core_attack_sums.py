"""Random questions to the trusted core on finite sums: nothing false holds, nothing true is refuted.

Sums are drawn as trees, written for the core in sympy, and added up here at many sizes, ranges and index functions.
True equations are made by exchanging sums, moving factors and renaming bound indices, where nothing is captured.
"""

from itertools import product

import sympy
from hypothesis import assume, event, given
from hypothesis import strategies as st

from conv2attn.verdicts import Verdict
from proofs.core import index_sums

HOLDS, REFUTED = Verdict.HOLDS, Verdict.REFUTED
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
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+*"), inner, inner),
        st.tuples(st.just("sum"), st.sampled_from("ijk"), st.sampled_from("nm"), inner),
        st.tuples(st.just("sum"), st.sampled_from("ijk"), st.sampled_from("nm"), inner),
    ),
    max_leaves=5,
)


def place_written(place):
    return INDICES[place] if isinstance(place, str) else READS(INDICES[place[1]])


def sum_written(tree):
    """The tree of sums in sympy."""
    match tree:
        case ("entry", tensor, place):
            return TENSORS[tensor][place_written(place)]
        case ("delta", one, other):
            return sympy.KroneckerDelta(place_written(one), place_written(other))
        case ("sum", index, size, inner):
            return sympy.Sum(sum_written(inner), (INDICES[index], 1, SIZES[size]))
        case ("+", left, right):
            return sum_written(left) + sum_written(right)
        case ("*", left, right):
            return sum_written(left) * sum_written(right)
        case str(size):
            return SIZES[size]
        case number:
            return sympy.Integer(number)


def total(tree, sizes, places, reads, entries):
    """The tree of sums, added up."""

    def at(place):
        return places[place] if isinstance(place, str) else reads(places[place[1]])

    match tree:
        case ("entry", tensor, place):
            return entries[tensor, at(place)]
        case ("delta", one, other):
            return int(at(one) == at(other))
        case ("sum", index, size, inner):
            return sum(total(inner, sizes, places | {index: v}, reads, entries) for v in range(1, 1 + sizes[size]))
        case ("+", left, right):
            return total(left, sizes, places, reads, entries) + total(right, sizes, places, reads, entries)
        case ("*", left, right):
            return total(left, sizes, places, reads, entries) * total(right, sizes, places, reads, entries)
        case str(size):
            return sizes[size]
        case number:
            return number


def rewritten(tree, draw):
    """A tree of the same value: sums exchanged, factors moved, indices renamed where nothing is captured."""
    match tree:
        case ("sum", index, size, inner):
            inner = rewritten(inner, draw)
            match inner:
                case ("sum", other, other_size, innermost) if other != index and draw(st.booleans()):
                    return ("sum", other, other_size, ("sum", index, size, innermost))
                case ("+", left, right) if draw(st.booleans()):
                    return ("+", ("sum", index, size, left), ("sum", index, size, right))
            free = draw(st.sampled_from("ijk"))
            if free not in mentioned(inner):
                return ("sum", free, size, renamed(inner, index, free))
            return ("sum", index, size, inner)
        case (("+" | "*") as operation, left, right):
            left, right = rewritten(left, draw), rewritten(right, draw)
            return (operation, right, left) if draw(st.booleans()) else (operation, left, right)
    return tree


def mentioned(tree):
    return (
        set(tree) if isinstance(tree, str) else set().union(*map(mentioned, tree)) if isinstance(tree, tuple) else set()
    )


def renamed(tree, old, new):
    """Index `old` of the tree, bound outside, called `new`."""
    match tree:
        case ("entry", tensor, place):
            return ("entry", tensor, renamed_place(place, old, new))
        case ("delta", one, other):
            return ("delta", renamed_place(one, old, new), renamed_place(other, old, new))
        case ("sum", index, size, inner):
            return tree if index == old else ("sum", index, size, renamed(inner, old, new))
        case (operation, left, right):
            return (operation, renamed(left, old, new), renamed(right, old, new))
    return tree


def renamed_place(place, old, new):
    return {old: new, ("f", old): ("f", new)}.get(place, place)


ENTRIES = {(tensor, v): (-1) ** v * (3 + 5 * v + 7 * v * v * ord(tensor)) for tensor in "ab" for v in range(-9, 10)}
INSTANCES = [
    ({"n": n, "m": m}, dict.fromkeys("ij", 1) | {"k": k, "g": g}, lambda v, reach=reach: 1 + (v * reach) % 3)
    for n, m, k, g, reach in product((0, 1, 3), (1, 2), (1, 2), (1, 3), (0, 1, 2))
]


def inside(sizes, places, reads, ranges):
    """Whether the free indices lie in the ranges, and the function has its values there."""
    top = {place: sizes[size] for place, size in ranges.items()}
    return all(1 <= places[name] <= top[name] for name in set(top) - {"f"}) and (
        "f" not in top or all(1 <= reads(v) <= top["f"] for v in range(1, 10))
    )


RANGES = st.dictionaries(st.sampled_from("kgf"), st.sampled_from("nm"), max_size=3)


@given(SUMS, SUMS, RANGES, st.booleans(), st.sampled_from(INSTANCES), st.data())
def test_an_equation_of_sums_that_holds_is_true_and_one_that_is_refuted_is_false(tree, other, ranges, same, case, data):
    other = rewritten(tree, data.draw) if same else other
    lhs, rhs = sum_written(tree), sum_written(other)
    assume(not any(e.has(sympy.KroneckerDelta) for expr in (lhs, rhs) for e in expr.atoms(sympy.Pow)))
    sizes = {READS if name == "f" else INDICES[name]: SIZES[size] for name, size in ranges.items()}
    verdict = index_sums(lhs, rhs, sizes=sizes)
    event(f"{'same' if same else 'other'}: {verdict.value}")
    assert verdict is not REFUTED
    if verdict is HOLDS:
        for instance in INSTANCES:
            if inside(*instance, ranges):
                assert total(tree, *instance, ENTRIES) == total(other, *instance, ENTRIES)
    values, places, reads = case
    free = {INDICES[name]: place for name, place in places.items()}
    instance = {SIZES[name]: v for name, v in values.items()} | free | {READS: reads}
    refuted = index_sums(lhs, rhs, sizes=sizes, instance=instance) is REFUTED
    assert not (refuted and (same or verdict is HOLDS))
    if refuted:
        in_range = all(1 <= places[name] <= values[size] for name, size in ranges.items() if name != "f")
        assert in_range
        assert total(tree, *case, ENTRIES) != total(other, *case, ENTRIES)
