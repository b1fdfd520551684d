"""What two networks return, compared by place, kind and number; and what is counted of it."""

import math

import pytest
import torch

from conv2attn.equivalence.computed.outputs import (
    CHUNK,
    Outputs,
    compare_outputs,
    is_vacuous,
    judge,
    judge_outputs,
    largest_difference,
    leaves,
    other_kind,
)
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, undecided
from conv2attn.verdicts import Strength

ONE, TWO, NAN, INF = (
    torch.ones(2, 3),
    torch.full((2, 3), 2.0),
    torch.tensor([1.0, torch.nan]),
    torch.tensor([torch.inf, 1]),
)


def test_tensors_are_found_in_tuples_lists_and_mappings_by_their_path():
    nested = {"a": ONE, "b": [TWO, (ONE, 3, "text")], 4: {"c": TWO}, "none": None}
    found = list(leaves(nested))
    assert [path for path, _ in found] == ["output['a']", "output['b'][0]", "output['b'][1][0]", "output[4]['c']"]
    assert [tensor is expected for (_, tensor), expected in zip(found, (ONE, TWO, ONE, TWO), strict=True)] == [True] * 4
    assert [path for path, _ in leaves(ONE)] == ["output"]
    assert list(leaves("text")) == list(leaves({})) == []
    assert [path for path, _ in leaves((ONE,), "x")] == ["x[0]"]


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (ONE, ONE, 0.0),
        (ONE, TWO, 1.0),
        (TWO, ONE, 1.0),
        (torch.tensor([1.0, 5.0, -3.0]), torch.tensor([1.5, 1.0, -3.0]), 4.0),
        (torch.tensor(1.0), torch.tensor(-1.0), 2.0),
        (ONE, ONE[:1], math.inf),
        (ONE, ONE.double(), math.inf),
        (ONE, ONE.to("meta"), math.inf),
        (ONE[:0], ONE[:0], math.inf),
        (torch.ones(2), INF, math.inf),
        (torch.ones(2), NAN, math.inf),
        (torch.tensor([2.0**100]), torch.tensor([-(2.0**100)]), 2.0**101),
        (torch.tensor([65504.0], dtype=torch.float16), torch.tensor([-65504.0], dtype=torch.float16), 131008.0),
    ],
)
def test_the_largest_difference_is_in_float64(first, second, difference):
    assert largest_difference(first, second) == difference


@pytest.mark.parametrize("first", [NAN, INF])
def test_where_the_first_is_not_finite_there_is_no_difference(first):
    assert math.isnan(largest_difference(first, torch.ones(2)))
    assert math.isnan(largest_difference(first, first))


@pytest.mark.parametrize("place", [0, 4, 5, 8])
def test_numbers_are_compared_in_chunks(monkeypatch, place):
    assert CHUNK == 2**22
    monkeypatch.setattr("conv2attn.equivalence.computed.outputs.CHUNK", 4)
    first, second = torch.zeros(3, 3), torch.zeros(3, 3)
    second.view(-1)[place] = -7.0
    second[1, 0] -= 0.5
    assert largest_difference(first, second) >= 7.0


def test_what_is_of_another_kind_is_told():
    assert other_kind(ONE, TWO) == ""
    assert other_kind(ONE, ONE[:1]) == "has shape (1, 3), not (2, 3)"
    assert other_kind(ONE, ONE.double()) == "has dtype torch.float64, not torch.float32"
    assert other_kind(ONE, ONE.to("meta")) == "has device meta, not cpu"
    assert other_kind(ONE, ONE[:1].double()) == "has shape (1, 3), not (2, 3)"


def refusal(sentence):
    return refuted("outputs", "C2A407", sentence)


def doubt(sentence):
    return undecided("outputs", "C2A407", sentence)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (ONE, TWO, holds("outputs", Strength.SAMPLED)),
        ({"a": ONE}, {"a": TWO}, holds("outputs", Strength.SAMPLED)),
        ("text", ONE, doubt("the first returns str without any tensor")),
        ((ONE, TWO), (ONE,), refusal("output[1] is missing")),
        ((ONE,), (ONE, TWO), refusal("output[1] is new")),
        ({"a": ONE}, {"b": ONE}, refusal("output['a'] is missing; output['b'] is new")),
        ({"a": ONE, "b": ONE}, {"b": ONE, "a": ONE}, refusal("they come in another order")),
        ((ONE, ONE), (TWO, ONE.double()), refusal("output[1] has dtype torch.float64, not torch.float32")),
        (ONE[:0], ONE[:0], doubt("output is empty in both: there is nothing to compare")),
        (NAN, torch.ones(2), doubt("output of the first is not finite on these inputs")),
        (torch.ones(2), INF, refusal("output: 1 number of the second not finite, the first at image 0")),
        (torch.tensor(1.0), torch.tensor(math.nan), refusal("output: 1 number of the second not finite")),
        (
            torch.ones(2, 2, 2, 2),
            torch.ones(2, 2, 2, 2).index_fill(2, torch.tensor([1]), math.inf),
            refusal("output: 8 numbers of the second not finite, the first at image 0, channel 0, row 1, column 0"),
        ),
        (1.5e308 * ONE.double(), -1.5e308 * ONE.double(), refusal("output: the difference is beyond float64")),
        (
            (ONE, torch.ones(2)),
            (ONE, NAN * torch.nan),
            refusal("output[1]: 2 numbers of the second not finite, the first at image 0"),
        ),
    ],
)
def test_outputs_are_the_same_in_kind(first, second, found):
    assert judge_outputs(first, second) == found
    assert judge(first, second, "") == found
    assert judge(first, second, "it failed") == refusal("the second does not run where the first does: it failed")
    assert isinstance(found, Finding)


def test_after_an_overflow_in_the_first_the_second_may_overflow_too():
    told = doubt("output: 1 number of the second overflow; a: too large")
    assert judge_outputs(torch.ones(2), INF, "a: too large") == judge(torch.ones(2), INF, "", "a: too large") == told
    assert judge_outputs(ONE, TWO, "a: too large") == holds("outputs", Strength.SAMPLED)


def test_numbers_are_counted_where_the_outputs_are_the_same_in_kind():
    assert compare_outputs((ONE,), (ONE, TWO), "i", None) is None
    assert compare_outputs("text", "text", "i", None) is None
    assert compare_outputs(torch.ones(2), INF, "i", None) is None
    assert compare_outputs(NAN, NAN, "i", None) is None
    many = compare_outputs((ONE, -3 * ONE), (ONE + 0.5, -3 * ONE), "i", torch.tensor([0, 1]), 0.25)
    assert many == Outputs("i", 2, 0.5, 3.0, bound=0.25, vacuous=False)
    assert compare_outputs(torch.tensor(2.0), torch.tensor(1.5), "i", None) == Outputs("i", 1, 0.5, 2.0)
    assert compare_outputs(torch.ones(4, 1), torch.ones(4, 1), "i", None) == Outputs("i", 4, 0.0, 1.0)
    assert compare_outputs(torch.ones(4, 3, 2), torch.ones(4, 3, 2), "i", None) == Outputs("i", 4, 0.0, 1.0)
    assert compare_outputs(torch.ones(4), torch.ones(4), "i", None, 5.0) == Outputs(
        "i", 4, 0.0, 1.0, bound=5.0, vacuous=True
    )


def test_classes_and_margins_are_counted_for_each_image():
    first = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.5], [1.0, 0.0, 5.0], [4.0, 3.0, 0.0]])
    second = torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.5, 2.0], [1.0, 0.0, 2.75], [4.0, 3.5, 0.0]])
    labels = torch.tensor([0, 2, 2, 1])
    expected = Outputs("i", 4, 2.25, 5.0, same_top1=3, stable=1)
    assert compare_outputs(first, second, "i", None) == expected
    found = compare_outputs(first, second, "i", labels, 0.75)
    assert found == Outputs("i", 4, 2.25, 5.0, 3, (2, 3), 1, 0.75, False, 2)
    assert compare_outputs(first, first, "i", None, 1.0).stable_by_bound == 1
    assert compare_outputs(first, first, "i", None).stable == 4
    near, off = torch.tensor([[5.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    assert compare_outputs(near, off, "i", None).stable == 1
    assert compare_outputs((ONE, torch.ones(2)), (ONE, INF), "i", None) is None
    ties = torch.tensor([[1.0, 1.0]])
    assert compare_outputs(ties, ties, "i", None).stable == 0
    two = torch.tensor([[2.0, 1.0]])
    assert (compare_outputs(two, two, "i", None).same_top1, compare_outputs(two, two, "i", None).stable) == (1, 1)


def test_outputs_that_are_no_floats_are_compared_by_number():
    truths = torch.tensor([[True, False]])
    assert largest_difference(truths, ~truths) == 1.0
    assert compare_outputs(truths, ~truths, "i", None) == Outputs("i", 1, 1.0, 1.0)
    assert compare_outputs(torch.tensor([[-3, 7]]), torch.tensor([[2, 7]]), "i", None) == Outputs("i", 1, 5.0, 7.0)
    waves = torch.tensor([[3 + 4j, 0]])
    assert compare_outputs(waves, waves * 2, "i", None) == Outputs("i", 1, 5.0, 5.0)
    large = torch.tensor([[2.0**24, 1.0]], dtype=torch.float64)
    assert largest_difference(large, large + 1) == 1.0


def test_a_bound_above_the_largest_output_is_vacuous():
    assert [is_vacuous(bound, 2.0) for bound in (None, 1.0, 2.0, 3.0, math.nan)] == [None, False, False, True, True]


def test_what_is_not_told_is_nothing():
    assert Outputs("i", 1, 0.0, 0.0) == Outputs("i", 1, 0.0, 0.0, None, None, None, None, None, None)
