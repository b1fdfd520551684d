"""Where two outputs differ most, and what the axes there are called."""

import math

import pytest
import torch

from conv2attn.equivalence.computed.axes import GRID, axis_names, in_axes
from conv2attn.equivalence.computed.gaps import Gap, gap, most_different, widest_gap

NAN, INF = math.nan, math.inf


def test_axes_are_called_as_torch_means_them():
    assert GRID == {0: (), 1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
    assert [axis_names(axes) for axes in range(8)] == [
        (),
        ("image",),
        ("image", "class"),
        ("image", "channel", "position"),
        ("image", "channel", "row", "column"),
        ("image", "channel", "plane", "row", "column"),
        ("image", "axis 1", "axis 2", "axis 3", "axis 4", "axis 5"),
        ("image", "axis 1", "axis 2", "axis 3", "axis 4", "axis 5", "axis 6"),
    ]
    assert in_axes((3, 1, 0, 7)) == "image 3, channel 1, row 0, column 7"
    assert in_axes([]) == ""


def test_the_widest_gap_is_found_with_how_many_are_beyond_the_limit():
    first = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    second = torch.tensor([[1.0, 2.5, 3.0], [4.0, 4.0, 6.25]])
    assert widest_gap(first, second, 0.25) == Gap("output", (1, 1), 5.0, 4.0, 2)
    assert widest_gap(first, second, 0.0).count == 3
    assert widest_gap(first, second, 1.0).count == 0
    assert widest_gap(first, first, 0.0) == Gap("output", (0, 0), 1.0, 1.0, 0)
    outputs = {"a": first, "b": (first, torch.tensor(1.0))}
    others = {"a": second, "b": (first, torch.tensor(-1.5))}
    assert widest_gap(outputs, others, 0.25) == Gap("output['b'][1]", (), 1.0, -1.5, 3)
    uneven = torch.tensor([0.0, 9.0]), torch.tensor([1.0, 1.0])
    assert widest_gap((torch.zeros(2), torch.zeros(2)), uneven, 0.5) == Gap("output[0]", (1,), 0.0, 9.0, 3)
    assert widest_gap((torch.zeros(2), torch.zeros(2)), uneven[::-1], 0.5).output == "output[1]"


def test_numbers_that_are_not_finite_are_the_widest_gap_unless_they_are_the_firsts():
    first = torch.tensor([INF, NAN, 1.0, 2.0, 3.0])
    found = widest_gap(first, torch.tensor([1.0, 1.0, 1.5, NAN, -INF]), 1e300)
    assert (found.place, found.original, math.isnan(found.converted), found.count) == ((3,), 2.0, True, 2)
    assert widest_gap(first, torch.tensor([5.0, 5.0, 1.5, 2.0, 3.0]), 0.25) == Gap("output", (2,), 1.0, 1.5, 1)
    assert widest_gap(first[:2], torch.ones(2), 0.0) is None
    assert gap(first, torch.tensor([1.0, INF, INF, NAN, 2.0]))[:, 0].tolist() == [-1.0, -1.0, INF, INF, 1.0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2).double()),
        ((torch.ones(2),), (torch.ones(2), torch.ones(2))),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2), torch.ones(2).half())),
        (torch.ones(2), None),
        (None, None),
        (torch.ones(0), torch.ones(0)),
    ],
)
def test_what_is_of_another_kind_or_empty_has_no_gap(first, second):
    assert widest_gap(first, second, 0.0) is None


def test_what_is_empty_beside_others_is_passed_over():
    assert widest_gap((torch.ones(0), torch.ones(1)), (torch.ones(0), torch.zeros(1)), 0.5).output == "output[1]"


def test_truth_values_integers_and_complex_numbers_have_gaps():
    assert widest_gap(torch.tensor([True, False]), torch.tensor([True, True]), 0.5) == Gap("output", (1,), 0.0, 1.0, 1)
    large = torch.tensor([2**53 - 1, 7])
    assert widest_gap(large, large - torch.tensor([1, 0]), 0.5) == Gap("output", (0,), 2.0**53 - 1, 2.0**53 - 2, 1)
    waves = torch.tensor([1 + 2j, 3 + 4j])
    assert widest_gap(waves, waves + torch.tensor([1 - 1j, 2j]), 0.5) == Gap("output", (1,), 4.0, 6.0, 2)


def test_images_come_by_how_much_their_outputs_differ():
    first, second = torch.zeros(4, 2), torch.zeros(4, 2)
    second[1, 0], second[3, 1] = 1.0, -2.0
    assert most_different(first, second, 4) == [3, 1, 0, 2]
    other = torch.zeros(4, 3, 3)
    other[0, 2, 1] = NAN
    assert most_different((first, torch.zeros(4, 3, 3)), (second, other), 4) == [0, 3, 1, 2]
    assert most_different((first, torch.zeros(2)), (second, 9 * torch.ones(2)), 4) == [3, 1, 0, 2]
    assert most_different((first, torch.tensor(0.0)), (second, torch.tensor(9.0)), 4) == [3, 1, 0, 2]
    assert most_different((first, torch.zeros(4, 0)), (second, torch.zeros(4, 0)), 4) == [3, 1, 0, 2]
    assert most_different((first, torch.zeros(4)), (second, torch.ones(4).double()), 4) == [3, 1, 0, 2]
    assert most_different({"a": first, "b": 9 * first}, {"a": second, "c": second}, 4) == [3, 1, 0, 2]
    assert most_different(first, None, 3) == [0, 1, 2]
    assert most_different(second.bfloat16(), first.bfloat16(), 4) == [3, 1, 0, 2]
