"""What stands between the layers: each attribute, hook and bit of it counts, and nothing unknown is the same."""

import copy
import functools
import itertools
import threading
import types
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.weight_norm import weight_norm

import conv2attn
from conv2attn.certificates import certify
from conv2attn.certificates.surroundings.stored import attributes_of, bindings, hooks, same_bits, state_of, worst_place
from conv2attn.certificates.surroundings.structure import Comparison, Structure, compare_structure
from conv2attn.certificates.surroundings.values import is_plain
from conv2attn.models.conversion.redirection import pause, resume
from conv2attn.verdicts import Verdict


class Plain:
    """An object with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Told(Plain):
    """An object that says itself what is to be stored of it."""

    def __reduce__(self):
        return Told, ()


class Kept(Plain):
    """The same by another way."""

    def __reduce_ex__(self, protocol):
        return Kept, ()


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Both(Slotted):
    """An object whose slot its dictionary does not show."""


class Listed(list):
    """A list with attributes."""


class Mapped(dict):
    """A dictionary with attributes."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass in slots."""

    number: float


class Read(property):
    """A property, whose function its dictionary does not show."""


class Named(str):
    """A text with attributes."""


Pair = namedtuple("Pair", "one two")


def function(number, default=0, *, word=0):
    """A function that remembers `number`; all of them have one text."""

    def remembers(x, y=default, *, z=word):
        return x + number + y + z

    return remembers


ALIKE = [type("Alike", (), {}) for _ in range(3)]


def with_attribute(thing, **attributes):
    """A thing with more attributes."""
    vars(thing).update(attributes)
    return thing


def ring(number):
    """A list that holds itself."""
    made = [number]
    made.append(made)
    return made


MAKERS = {
    "int": int,
    "float": float,
    "zero": lambda n: -0.0 if n > 1 else 0.0,
    "nan": lambda n: float("nan") if n == 1 else 1.0,
    "complex": lambda n: complex(1, n),
    "complex nan": lambda n: complex(float("nan"), n),
    "str": str,
    "bytes": lambda n: bytes([n]),
    "bool": lambda n: n > 1,
    "dtype": lambda n: torch.float32 if n > 1 else torch.float64,
    "device": lambda n: torch.device("cpu" if n > 1 else "meta"),
    "size": lambda n: torch.Size((n, 3)),
    "class": lambda n: Plain if n > 1 else Told,
    "class of the same name": lambda n: ALIKE[n],
    "slice": lambda n: slice(n, None),
    "tensor": lambda n: torch.tensor([1.0, n]),
    "parameter": lambda n: nn.Parameter(torch.tensor([1.0, n])),
    "list": lambda n: [1, [n]],
    "longer list": lambda n: [1] * n,
    "first of a list": lambda n: [n, 1],
    "tuple": lambda n: (n, 1),
    "pair": lambda n: Pair(1, n),
    "dict": lambda n: {"a": n},
    "keys": lambda n: {n: 1},
    "order": lambda n: {"a": 1, "b": 2} if n > 1 else {"b": 2, "a": 1},
    "ordered": lambda n: OrderedDict(a=n),
    "set": lambda n: {1, n + 7},
    "frozenset": lambda n: frozenset({1, n + 7}),
    "set of kinds": lambda n: {1.0, 5} if n > 1 else {True, 5},
    "set of truth values": lambda n: {1} if n > 1 else {True},
    "set with a zero": lambda n: {0.0} if n > 1 else {-0.0},
    "set with a NaN": lambda n: {float("nan"), 2} if n > 1 else {2},
    "set of pairs": lambda n: {(1, 2), (n, "a")},
    "set of kinds of pairs": lambda n: {(1, 2), (1.0 if n > 1 else True, "a")},
    "set of sets": lambda n: frozenset({frozenset({n}), frozenset({0, 9})}),
    "set of functions": lambda n: {max, min} if n > 1 else {max, sum},
    "set of classes": lambda n: {Plain, Told} if n > 1 else {Plain},
    "set of dataclasses": lambda n: {Frozen(0), Frozen(n), 3},
    "more in a set": lambda n: {Frozen(0)} if n > 1 else {Frozen(0), Frozen(5)},
    "kinds of keys": lambda n: {1.0: "a"} if n > 1 else {True: "a"},
    "NaN as a key": lambda n: {float("nan"): n},
    "kinds of ordered keys": lambda n: OrderedDict({1: "a"} if n > 1 else {True: "a"}),
    "object": lambda n: Plain(a=Plain(b=n)),
    "slots": Slotted,
    "slots and a dictionary": Both,
    "dataclass": Frozen,
    "list with attributes": lambda n: with_attribute(Listed([1]), a=n),
    "content of a list with attributes": lambda n: with_attribute(Listed([n]), a=1),
    "dictionary with attributes": lambda n: with_attribute(Mapped(b=1), a=n),
    "content of a dictionary with attributes": lambda n: with_attribute(Mapped(b=n), a=1),
    "partial": lambda n: functools.partial(max, n),
    "keyword of a partial": lambda n: functools.partial(sorted, key=n),
    "function of a partial": lambda n: functools.partial(max if n > 1 else min, 1),
    "closure": function,
    "closure of a tensor": lambda n: function(torch.tensor([1, n])),
    "default": lambda n: function(1, default=n),
    "keyword default": lambda n: function(1, word=n),
    "attribute of a function": lambda n: with_attribute(function(1), a=n),
    "function": lambda n: (lambda x: x + 1) if n > 1 else (lambda x: x - 1),
    "builtin": lambda n: max if n > 1 else min,
    "module": lambda n: types if n > 1 else functools,
    "method": lambda n: Plain(a=n).__eq__ if n > 5 else with_attribute(Plain(), a=n).__init__,
    "ring": ring,
}
UNKNOWN = {
    "own way to be stored": lambda n: Told(a=n),
    "own way by protocol": lambda n: Kept(a=n),
    "deque": lambda n: deque([n]),
    "lock": lambda n: threading.Lock(),
    "iterator": lambda n: itertools.count(n),
    "generator": lambda n: torch.Generator().manual_seed(n),
    "object": lambda n: object(),
    "property": lambda n: Read(lambda self: n),
    "text with attributes": lambda n: with_attribute(Named("a"), a=n),
}


def found(first, second):
    """What is found of two networks, one with each attribute: what differs and what is unknown."""
    sides = [nn.Sequential(nn.ReLU()) for _ in range(2)]
    for side, thing in zip(sides, (first, second), strict=True):
        vars(side[0])["thing"] = thing
    found = Comparison(*sides, set()).run()
    return found.different, found.unknown


@pytest.mark.parametrize("kind", MAKERS)
def test_attributes_are_the_same_where_all_in_them_is(kind):
    make = MAKERS[kind]
    assert found(make(2), make(2)) == ([], [])
    assert found(make(1), make(2)) == (["0: thing differs"], [])
    assert found(make(2), "another type") == (["0: thing differs"], [])
    assert found(make(1), make(1)) == ([], [])


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_may_hold_more_than_it_shows_is_unknown(kind):
    make = UNKNOWN[kind]
    thing = make(1)
    assert found(thing, thing) == ([], [])
    different, unknown = found(make(1), make(2))
    assert not different
    assert unknown == [f"0: thing is a {type(thing).__name__}, which cannot be compared"]
    assert found(make(1), 1)[0] == ["0: thing differs"]


def test_members_of_sets_are_held_against_each_other_in_any_order():
    members = [Frozen(1), Frozen(2), (3, Frozen(4)), 5, float("nan"), "a", max]
    assert found(set(members), set(map(copy.deepcopy, reversed(members)))) == ([], [])
    assert found({Frozen(1), Frozen(2)}, {Frozen(2), Frozen(3)}) == (["0: thing differs"], [])
    assert found({Frozen(1)}, {Frozen(1), Frozen(2)}) == (["0: thing differs"], [])
    comparison = Comparison(nn.ReLU(), nn.ReLU(), set()).values
    assert comparison.same_members([Frozen(1), Frozen(1)], [Frozen(1), Frozen(2)], "there") is False
    assert comparison.same_members([1, 1], [1], "there") is False
    assert comparison.same_members([], [Frozen(1)], "there") is False
    assert comparison.same_members([Frozen(1), 2], [2, Frozen(1)], "there") is True


def test_what_was_held_against_a_member_is_compared_again_elsewhere():
    """That one pair in a set is not the same must be known where this pair is to be the same."""
    first, second, other = Frozen(1), Frozen(2), Frozen(1)
    assert found([{first, second}, first], [{second, other}, second]) == (["0: thing differs"], [])


def test_what_is_unknown_of_a_member_is_told_once():
    held = threading.Lock(), threading.Lock()
    told = ["0: thing is a lock, which cannot be compared"]
    assert found({held[0], Frozen(1)}, {Frozen(1), held[1]}) == ([], told)
    assert found({(held[0], 1)}, {(held[1], 2)}) == (["0: thing differs"], [])
    assert [is_plain(x) for x in (1, "a", torch.float32, float, Frozen(1), with_attribute(Named("a"), a=1))] == [
        True, True, True, False, False, False]  # fmt: skip


def test_state_is_told_only_where_it_is_whole():
    assert state_of(Plain(a=1)) == ({"a": 1}, None)
    assert state_of(Slotted(1)) == ((None, {"number": 1}), None)
    assert state_of(with_attribute(Both(1), a=2)) == (({"a": 2}, {"number": 1}), None)
    assert state_of(with_attribute(Listed([3]), a=1)) == ({"a": 1}, [3])
    assert state_of(Mapped(a=1)) == (None, [("a", 1)])
    assert state_of(Pair(1, 2)) == (None, [1, 2])
    assert state_of(Plain()) is not None
    for make in UNKNOWN.values():
        assert state_of(make(1)) is None


def test_builtin_methods_are_those_of_one_object():
    things = []
    assert found(things.append, things.append) == ([], [])
    assert found(things.append, [].append) == (["0: thing differs"], [])
    assert Comparison(nn.ReLU(), nn.ReLU(), set()).values.same(1, "1", "there") is False


def test_an_attribute_of_either_side_counts():
    first, second = nn.ReLU(), nn.ReLU()
    vars(first)["thing"] = 1
    for sides in ((first, second), (second, first)):
        assert Comparison(*sides, set()).run().different == ["the network: thing differs"]


def test_hooks_are_the_same_whatever_their_handles():
    first, second = nn.ReLU(), nn.ReLU()
    second.register_forward_hook(min).remove()
    for side in (first, second):
        side.register_forward_hook(print)
    assert list(first._forward_hooks) != list(second._forward_hooks)
    assert Comparison(first, second, set()).run().different == []
    second.register_forward_hook(min)
    assert Comparison(first, second, set()).run().different == ["the network: _forward_hooks differs"]
    assert hooks([1]) == [1]
    for side, number in ((first, 1), (second, 2)):
        side.own_hooks = [number]
    assert "the network: own_hooks differs" in Comparison(first, second, set()).run().different


def test_tensors_that_cannot_be_compared_are_not_known():
    first, second = nn.ReLU(), nn.ReLU()
    for side in (first, second):
        side.table = torch.eye(2).to_sparse()
    told = ["the network: table is a sparse, quantised or nested tensor, which cannot be compared"]
    assert Comparison(first, second, set()).run() == Structure([], told)
    second.table = torch.eye(2)
    assert Comparison(first, second, set()).run().unknown == Comparison(second, first, set()).run().unknown == told


@pytest.mark.parametrize(
    ("kind", "given"),
    [("forward_pre", {"with_kwargs": True}), ("forward", {"with_kwargs": True}), ("forward", {"always_call": True})],
)
def test_hooks_of_layers_are_called_alike(kind, given):
    sides = [nn.Sequential(nn.Conv2d(1, 1, 1)) for _ in range(2)]
    getattr(sides[1][0], f"register_{kind}_hook")(min).remove()
    for side in sides:
        getattr(side[0], f"register_{kind}_hook")(print, **given)
    assert Comparison(*sides, {"0"}).run().different == []
    sides[1][0] = nn.Conv2d(1, 1, 1)
    getattr(sides[1][0], f"register_{kind}_hook")(print)
    assert Comparison(*sides, {"0"}).run().different == [f"0: _{kind}_hooks differs"]


class Member:
    """A thing in a set that it holds itself."""

    def __init__(self):
        self.home = {self}


def test_a_set_may_hold_what_holds_it():
    sides = [nn.ReLU() for _ in range(2)]
    for side in sides:
        side.members = Member().home
    assert Comparison(*sides, set()).run() == Structure([], [])


class Unchanged(nn.Module):
    """A parametrisation that changes nothing."""

    def forward(self, weight):
        return weight


def test_how_layers_apart_compute_their_weights_is_not_compared_here():
    sides = [nn.Sequential(nn.Conv2d(1, 1, 1)) for _ in range(2)]
    for side, kind in zip(sides, (Unchanged, nn.Identity), strict=True):
        nn.utils.parametrize.register_parametrization(side[0], "weight", kind())
    assert Comparison(*sides, {"0"}).run().different == []


def test_layers_apart_are_known_and_their_parts_are_not():
    for apart, known in (("", {"": True, "0": False}), ("0", {"": True, "0": True, "0.0": False, "00": True})):
        comparison = Comparison(nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU()), {apart})
        assert {name: comparison.is_known(name) for name in known} == known


def test_a_module_of_two_names_is_two_modules():
    shared = nn.ReLU()
    first, second = nn.Sequential(shared, shared), nn.Sequential(nn.ReLU(), nn.ReLU())
    assert Comparison(first, second, set()).run().different == []
    second[1].eval()
    assert Comparison(first, second, set()).run().different == ["1: one is in training mode"]


def test_modules_in_attributes_are_known_by_their_names():
    sides = [nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Tanh()) for _ in range(2)]
    for place, expected in ((1, []), (2, ["0: other differs"])):
        for side, other in zip(sides, (1, place), strict=True):
            vars(side[0])["other"] = [side[other]]
        assert Comparison(*sides, set()).run().different == expected
    for slope, expected in ((1.0, []), (2.0, ["0: other differs"])):
        for side, each in zip(sides, (1.0, slope), strict=True):
            vars(side[0])["other"] = [nn.Sequential(nn.LeakyReLU(each))]
        assert Comparison(*sides, set()).run().different == expected
    vars(sides[0][0])["other"] = [sides[0][1]]
    assert Comparison(*sides, set()).run().different == ["0: other differs"]


def test_what_cannot_be_compared_inside_of_an_unregistered_module_is_told():
    sides = [nn.Sequential(nn.ReLU()) for _ in range(2)]
    for side in sides:
        inner = nn.Tanh()
        inner.queue, inner.outer = deque(), side[0]
        vars(side[0])["other"] = [inner]
    found = Comparison(*sides, set()).run()
    assert not found.different
    assert found.unknown == ["0: other: the network: queue is a deque, which cannot be compared"]


def test_a_function_with_other_globals_is_another_function():
    def scaled(tensor):
        return tensor

    sides = [nn.Sequential(nn.ReLU()) for _ in range(2)]
    sides[0].scaled, sides[1].scaled = scaled, types.FunctionType(scaled.__code__, dict(scaled.__globals__))
    assert Comparison(*sides, set()).run().different == ["the network: scaled differs"]


def test_methods_are_those_of_the_same_object():
    sides = [nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)) for _ in range(2)]
    for place, expected in ((1, []), (0, ["0: other differs"])):
        for side, other in zip(sides, (1, place), strict=True):
            side[0].load_state_dict(sides[0][0].state_dict())
            side[1].load_state_dict(sides[0][0].state_dict())
            side[0].other = side[other].forward
        assert Comparison(*sides, set()).run().different == expected
    sides[0][0].other, sides[1][0].other = sides[0][1].extra_repr, sides[1][1].forward
    assert Comparison(*sides, set()).run().different == ["0: other differs"]


def test_a_pair_that_differs_twice_is_told_twice_or_once_but_never_passed():
    first, second = [1], [2]
    assert found([first, first], [second, second])[0] == ["0: thing differs"]
    shared = Plain(a=1)
    assert found([shared, shared], [Plain(a=1), Plain(a=1)]) == ([], [])


def compared(change, build=lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))):
    """What differs after `change` of the second of two networks with the same numbers."""
    first, second = build(), build()
    second.load_state_dict(first.state_dict())
    change(second)
    return Comparison(first, second, set()).run().different


def test_parameters_and_buffers_are_told_by_place_and_number():
    def number(net):
        net[0].weight.data[1, 2] = 7.0
        first = net[1].running_var
        first[0] = 3.0

    weight = compared(lambda net: net[0].weight.data.__setitem__((1, 2), 7.0))
    assert len(weight) == 1
    assert weight[0].startswith("0: weight differs in 1 number, the worst at (1, 2): 7.0, not ")
    assert [line.split(",")[0] for line in compared(number)] == [
        "0: weight differs in 1 number",
        "1: running_var differs in 1 number",
    ]
    assert compared(lambda net: net[0].register_parameter("more", None)) == ["0: more is only on one side"]
    assert compared(lambda net: net[0].register_buffer("more", torch.ones(1)))[:1] == ["0: more is only on one side"]
    assert compared(lambda net: setattr(net[0], "bias", None)) == ["0: (in_features=3, out_features=2, bias=False)"
        " instead of (in_features=3, out_features=2, bias=True)", "0: bias differs"]  # fmt: skip


def test_modules_are_told_by_name_class_order_and_arguments():
    assert compared(lambda net: None) == []
    assert compared(lambda net: net.append(nn.ReLU())) == ["2 is only in the second"]
    assert compared(lambda net: net.pop(1)) == ["1 is only in the first"]
    assert compared(lambda net: net.__setitem__(1, nn.ReLU())) == ["1: ReLU instead of BatchNorm1d"]
    assert compared(lambda net: setattr(net[1], "eps", 1e-3))[0].startswith("1: (2, eps=0.001, ")
    assert compared(lambda net: net[1].eval()) == ["1: one is in training mode"]
    assert compared(lambda net: vars(net).update(thing=1)) == ["the network: thing differs"]

    def reordered(net):
        net._modules = dict(reversed(net._modules.items()))

    assert compared(reordered) == ["the network: its modules come in another order"]


def test_what_differs_comes_in_the_order_of_names():
    lines = compared(lambda net: (net.append(nn.ReLU()), net[0].eval(), net[1].eval()))
    assert lines == ["0: one is in training mode", "1: one is in training mode", "2 is only in the second"]


def test_names_apart_are_left_out_but_for_their_hooks_and_what_was_added_to_both():
    def build():
        return nn.ModuleDict({"a": nn.Sequential(nn.ReLU()), "ab": nn.ReLU(), "c": nn.ReLU()})

    first, second = build(), build()
    second["a"][0] = nn.Tanh()
    assert Comparison(first, second, {"a"}).run().different == ["a: 0 differs"]
    assert Comparison(first, second, {"a.0"}).run().different == []
    second["a"] = nn.Sequential()
    assert Comparison(first, second, {"a"}).run().different == []
    second["ab"].eval()
    assert Comparison(first, second, {"a"}).run().different == ["ab: one is in training mode"]
    parts = ["the network: a differs", "the network: ab differs"]
    assert Comparison(first, second, {""}).run().different == parts
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        handle = getattr(second["a"], register)(print)
        key = f"_{register.removeprefix('register_')}s"
        assert Comparison(first, second, {"a", "ab"}).run().different == [f"a: {key} differs"]
        handle.remove()
    second.register_forward_hook(print)
    assert Comparison(first, second, {""}).run().different == ["the network: _forward_hooks differs", *parts]


def test_a_network_that_attends_differs_only_in_its_layers():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2, 1, 1))

        def forward(self, image):
            return torch.nn.functional.conv2d(image, self.weight)

    original = nn.Sequential(Functional())
    converted = conv2attn.convert(original, example_input=torch.ones(1, 2, 3, 4))
    assert "forward" in vars(converted[0])
    assert "forward" not in attributes_of(converted[0])
    vars(converted[0])["nothing"] = None
    assert "nothing" in attributes_of(converted[0])
    assert Comparison(original, converted, set()).run().different == []
    again = conv2attn.convert(original, example_input=torch.ones(1, 2, 3, 4))
    for net in (converted, again):
        net[0].more = nn.ReLU()
    again[0]._modules = dict(reversed(again[0]._modules.items()))
    assert Comparison(converted, again, set()).run().different == []
    del converted[0].more, again[0].more
    moved = conv2attn.convert(original, example_input=torch.ones(1, 2, 3, 4))
    vars(converted[0])["forward"] = vars(moved[0])["forward"]
    assert attributes_of(converted[0])["forward"] is vars(moved[0])["forward"]
    for net in (original, converted):
        vars(net[0])["forward"] = print
    assert Comparison(original, converted, set()).run().different == []


def test_a_forward_of_its_own_is_seen_through_a_forward_that_attends():
    class Functional(nn.Module):
        def forward(self, image):
            return torch.nn.functional.conv2d(image, torch.ones(2, 2, 1, 1))

    original = Functional()
    own = original.forward.__func__
    vars(original)["forward"] = functools.partial(own, original)
    converted = conv2attn.convert(original, example_input=torch.ones(1, 2, 3, 4))
    assert attributes_of(converted)["forward"].func is own


def test_hooks_that_keep_redirections_out_or_compute_weights_are_left_out():
    module = nn.Linear(2, 2)
    module.register_forward_pre_hook(pause)
    module.register_forward_hook(resume)
    assert (hooks(module._forward_pre_hooks), hooks(module._forward_hooks)) == ([], [])
    module.register_forward_hook(print)
    assert hooks(module._forward_hooks) == [print]
    assert hooks(None) is None
    prune.identity(module, "weight")
    assert hooks(module._forward_pre_hooks) == []
    with pytest.warns(FutureWarning):
        normed = weight_norm(nn.Linear(2, 2))
    assert hooks(normed._forward_pre_hooks) == []


def test_a_function_holds_what_its_text_does_not_say():
    bound = function(3, 4, word=5)
    assert bindings(with_attribute(bound, a=6)) == ([3], (4,), {"z": 5}, {"a": 6})
    assert bindings(function) == ([], (0,), {"word": 0}, {})


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (None, torch.ones(1), ""),
        (torch.ones(1), None, ""),
        (torch.ones(2), torch.ones(3), ": torch.float32 (3,), not torch.float32 (2,)"),
        (torch.ones(2), torch.ones(2).double(), ": torch.float64 (2,), not torch.float32 (2,)"),
        (torch.zeros(2), -torch.zeros(2), " in the sign of a zero or the bits of a NaN"),
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [5.0, 6.0]]),
         " in 2 numbers, the worst at (1, 0): 5.0, not 3.0"),
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.5], [3.0, 6.0]]),
         " in 2 numbers, the worst at (1, 1): 6.0, not 4.0"),
        (torch.tensor([1.0, 2.0]), torch.tensor([5.0, torch.nan]), " in 2 numbers, the worst at (1,): nan, not 2.0"),
        (torch.tensor([1, 7, 9]), torch.tensor([1, 8, 9]), " in 1 number, the worst at (1,): 8, not 7"),
        (torch.tensor(1j), torch.tensor(2j), " in 1 number, the worst at (): 2j, not 1j"),
        (torch.tensor([torch.inf, 1.0, 2.0]), torch.tensor([1.0, 1.0, 2.0]),
         " in 1 number, the worst at (0,): 1.0, not inf"),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 2.0]),
         " in 1 number, the worst at (1,): 2.0, not 1.0"),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([1.0, 1.0]), " in 1 number, the worst at (0,): 1.0, not nan"),
        (torch.tensor([1.0, 1.0]), torch.tensor([1.0, torch.nan]), " in 1 number, the worst at (1,): nan, not 1.0"),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 1.0]), " in 1 number, the worst at (1,): 1.0, not nan"),
        (torch.tensor([torch.nan] * 2), torch.tensor([torch.nan, 1.0]),
         " in 1 number, the worst at (1,): 1.0, not nan"),
    ],
)  # fmt: skip
def test_the_place_that_differs_most_is_told(first, second, told):
    assert worst_place(first, second) == told


def test_bits_are_compared_not_numbers():
    numbers = torch.tensor([[0.0, torch.nan, 1.0], [2.0, 3.0, 4.0]])
    assert same_bits(numbers, numbers.clone())
    assert same_bits(numbers, numbers.t().contiguous().t())
    assert not same_bits(numbers, numbers * torch.tensor([-1.0, 1, 1]))
    assert same_bits(numbers, numbers.double()) is False
    assert not same_bits(numbers, numbers[:1])
    assert not same_bits(torch.ones(1), torch.ones(1, 1))
    assert same_bits(torch.empty(0, 3), torch.empty(0, 3))
    assert not same_bits(torch.zeros(1), torch.ones(1))
    assert not same_bits(torch.zeros(1, dtype=torch.int32), torch.zeros(1))
    assert same_bits(torch.tensor(1.5), torch.tensor(1.5))
    assert not same_bits(torch.tensor(True), torch.tensor(False))


def test_findings_are_refuted_then_undecided_then_hold():
    def sides(first, second):
        made = [nn.ReLU(), nn.ReLU()]
        for side, thing in zip(made, (first, second), strict=True):
            vars(side)["thing"] = thing
        return made

    (same,) = compare_structure(*sides(1, 1), set())
    assert (same.part, same.verdict, same.code, same.sentence) == ("structure", Verdict.HOLDS, "", "")
    (unknown,) = compare_structure(*sides(deque(), deque()), set())
    assert (unknown.part, unknown.verdict, unknown.code) == ("structure", Verdict.UNDECIDED, "C2A405")
    assert unknown.sentence == "the network: thing is a deque, which cannot be compared"
    (wrong,) = compare_structure(*sides([deque(), 1], [deque(), 2]), set())
    assert (wrong.part, wrong.verdict, wrong.code) == ("structure", Verdict.REFUTED, "C2A405")
    assert wrong.sentence == "the network: thing differs"


ADDED = {
    "attribute": lambda layer, number: setattr(layer, "limit", number),
    "buffer": lambda layer, number: layer.register_buffer("limit", torch.tensor(number)),
    "parameter": lambda layer, number: layer.register_parameter("limit", nn.Parameter(torch.tensor(number))),
    "module": lambda layer, number: layer.add_module("limit", nn.Threshold(number, 0.0)),
}


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("to_attention", [True, False])
@pytest.mark.parametrize("kind", ADDED)
def test_what_hooks_may_read_of_layers_is_the_same(kind, to_attention, behind):
    conv = nn.Conv2d(3, 4, 3)
    layers = [conv, conv2attn.convert(conv)] if to_attention else [conv, copy.deepcopy(conv)]
    ADDED[kind](layers[0], 1.0)
    networks = [nn.Sequential(layer, nn.ReLU()) if behind else layer for layer in layers]
    images = torch.rand(1, 3, 6, 7)
    assert certify(*networks, images=images).verdict is Verdict.HOLDS
    for number, verdict in ((1.0, Verdict.HOLDS), (2.0, Verdict.REFUTED)):
        layers[1]._buffers.pop("limit", None)
        layers[1]._parameters.pop("limit", None)
        ADDED[kind](layers[1], number)
        report = certify(*networks, images=images)
        assert report.verdict is verdict, report.to_text()
    assert [finding.sentence for finding in report.between if finding.part == "structure"] == [
        "0: limit differs" if behind else "the network: limit differs"
    ]


def test_the_means_of_a_weight_are_not_compared():
    with pytest.warns(FutureWarning):
        first, second = (weight_norm(nn.Conv2d(3, 4, 3)) for _ in range(2))
    with torch.no_grad():
        for layer, factor in ((first, 1.0), (second, 2.0)):
            layer.weight_v.fill_(factor), layer.weight_g.fill_(1.0), layer.bias.zero_()
    assert certify(first, second, images=torch.rand(1, 3, 6, 7)).verdict is Verdict.HOLDS


@pytest.mark.parametrize("side", [0, 1])
def test_a_module_of_the_network_is_not_another_just_like_it(side):
    sides = [nn.Sequential(nn.ReLU(), nn.Tanh()) for _ in range(2)]
    for each, network in enumerate(sides):
        vars(network[0])["other"] = [network[1] if each == side else nn.Tanh()]
    assert Comparison(*sides, set()).run().different == ["0: other differs"]


def test_what_torch_notes_of_backward_hooks_is_no_attribute():
    first, second = nn.ReLU(), nn.ReLU()
    second.register_full_backward_hook(lambda *arguments: None).remove()
    assert vars(first)["_is_full_backward_hook"] is not vars(second)["_is_full_backward_hook"]
    assert "_is_full_backward_hook" not in attributes_of(second)
    assert Comparison(first, second, set()).run().different == []
