"""What is read near the border of grids of every size, against all sizes up to one far beyond those looked at."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention import EnumeratedEncoding, MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.basis import Padding
from conv2attn.equivalence.readings.border import (
    NOTHING,
    Pattern,
    farthest,
    halves,
    kind,
    nearest,
    patterns,
    pixels,
    read,
)
from conv2attn.equivalence.readings.geometry import Geometry
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import GeometryError


def readings(stride=1, room=0, spacing=1, ours=(0, 0), theirs=(0, 0), mode="zeros"):
    """Two readings of one axis under these paddings."""
    made = reading_of(nn.Conv1d(1, 1, 1))
    form = Geometry((stride,), (room,), (spacing,))
    return tuple(
        replace(made, geometry=form, padding=Padding((before,), (after,), mode, (spacing,)))
        for before, after in (ours, theirs)
    )


CASES = {
    "on the grid": ({}, [0]),
    "before the grid": ({"room": 2, "ours": (2, 0), "theirs": (1, 0)}, [-2, -1, 0]),
    "behind the grid": ({"room": 2, "ours": (0, 2), "theirs": (0, 1)}, [0, 1, 2]),
    "strides": ({"stride": 8, "room": 3, "ours": (0, 3), "theirs": (0, 0)}, [0, 3]),
    "long strides": ({"stride": 13, "room": 1, "ours": (0, 1), "theirs": (0, 0)}, [0, 1]),
    "stuffed": ({"spacing": 3, "room": 4, "ours": (2, 2), "theirs": (1, 1)}, [-2, 0, 2]),
    "stuffed, with strides": ({"spacing": 2, "stride": 5, "room": 2, "ours": (1, 1), "theirs": (0, 0)}, [-1, 0, 1]),
    "far": ({"room": 6, "ours": (6, 6), "theirs": (2, 5)}, [-6, 0, 6]),
    "reflected": ({"room": 4, "ours": (2, 2), "theirs": (2, 2), "mode": "reflect"}, [-2, 0, 2]),
    "replicated": ({"room": 4, "ours": (2, 2), "theirs": (0, 1), "mode": "replicate"}, [-2, 0, 2]),
    "cropped": ({"room": -4, "ours": (-2, -2), "theirs": (-2, -2)}, [2, 3]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_kinds_of_patterns_are_those_of_all_sizes(case):
    settings, starts = CASES[case]
    original, converted = readings(**settings)
    stride, spacing, room = (
        settings.get(name, default) for name, default in (("stride", 1), ("spacing", 1), ("room", 0))
    )
    expected = {}
    for side in range(1, 160):
        for query in range(max(0, (spacing * (side - 1) + room) // stride + 1)):
            at = np.array([[start + stride * query for start in starts]])
            rows = [read(each.padding, 0, side, at) for each in (original, converted)]
            if rows[0] is not None:
                row = [int(x) for x in np.concatenate(rows, 1)[0]]
                expected.setdefault(kind(row), (side, query, tuple(row)))
    found = patterns(original, converted, 0, starts)
    assert {kind((*each.ours, *each.theirs)) for each in found} == set(expected)
    assert {(each.side, each.query, (*each.ours, *each.theirs)) for each in found} == set(expected.values())


def test_starts_that_are_the_same_are_read_once_and_told_for_each():
    [pattern] = patterns(*readings(), 0, [0, 0])[:1]
    assert pattern == Pattern((0, 0), (0, 0), 1, 0)
    assert halves([5, 6, 7, 8], [1, 0, 1]) == ((6, 5, 6), (8, 7, 8))


def test_a_padding_that_does_not_fit_what_the_other_takes_is_an_error():
    ours, theirs = readings(room=3, ours=(3, 0), theirs=(3, 0))
    reflecting = replace(theirs, padding=Padding((3,), (0,), "reflect"))
    with pytest.raises(GeometryError, match="none of reflect fits 1 pixels"):
        patterns(ours, reflecting, 0, [-3, 0])
    assert min(each.side for each in patterns(reflecting, reflecting, 0, [-3, 0])) == 4


def test_the_farthest_is_that_of_starts_paddings_and_rooms():
    assert farthest(*readings(), []) == 0
    assert farthest(*readings(room=-3), [(2,)]) == 3
    assert farthest(*readings(room=1), [(2,), (-5,)]) == 5
    assert farthest(*readings(ours=(7, 0)), [(2,)]) == 7
    assert farthest(*readings(ours=(0, 8)), [(2,)]) == 8
    assert farthest(*readings(theirs=(9, 0)), [(2,)]) == 9
    assert farthest(*readings(theirs=(0, 10)), [(2,)]) == 10


def test_kinds_are_alike_where_the_same_numbers_are_the_same():
    assert kind([5, 7, 5, -1]) == kind([2, 3, 2, -1]) != kind([2, 3, 3, -1])
    assert kind([-1, -1]) != kind([0, 0])
    assert kind([0, 0]) == kind([9, 9])


def test_a_pixel_is_nothing_where_it_is_zero_along_any_axis():
    first, second = Pattern((1, 2), (3, -1), 9, 0), Pattern((4, -1), (5, 6), 9, 0)
    assert pixels([first, second], "ours") == [(1, 4), NOTHING]
    assert pixels([first, second], "theirs") == [(3, 5), NOTHING]


def test_places_off_the_keys_are_those_of_the_nearest():
    assert read(Padding((1,), (1,)), 0, 3, np.array([[-5, -1, 0, 2, 3, 9]])).tolist() == [[-1, -1, 0, 2, -1, -1]]
    assert read(Padding((1,), (1,), "replicate"), 0, 3, np.array([[-5, 9]])).tolist() == [[0, 2]]
    assert read(Padding((4,), (1,), "reflect"), 0, 3, np.array([[0]])) is None
    assert read(Padding((-2,), (-2,)), 0, 4, np.array([[0]])) is None


def test_the_nearest_pixel_of_a_target_off_the_grid():
    reading = reading_of(nn.Conv2d(1, 1, 1))
    padded = replace(reading, padding=Padding((1, 0), (0, 0), "replicate"))
    assert nearest(padded, (3, 4), (0, 0), (1, 2)) == (1, 2)
    assert nearest(padded, (3, 4), (2, 3), (-9, 9)) == (0, 3)
    assert nearest(padded, (3, 4), (2, 3), (9, -9)) == (2, 0)
    zeros = replace(reading, padding=Padding((1, 0), (0, 0)))
    assert nearest(zeros, (3, 4), (0, 0), (-1, 2)) == NOTHING
    assert torch.zeros(3, 4)[nearest(zeros, (3, 4), (0, 0), (2, 3))] == 0


def test_a_size_without_a_query_asks_nothing_of_a_padding():
    ours, _ = readings(room=-1)
    reflecting = replace(ours, padding=Padding((1,), (0,), "reflect"))
    assert min(each.side for each in patterns(ours, reflecting, 0, [0])) == 2


def enumerated(encoding=EnumeratedEncoding):
    """Heads on an unpadded grid."""
    converted = conv2attn.convert(nn.Conv2d(1, 1, 1))
    settings = {"d_head": converted.d_head, "value": converted.value is not None, "output": True}
    made = MultiHeadSelfAttention(1, 1, encoding(torch.zeros(1, 2), torch.full((1,), 128.0)), **settings)
    return reading_of(made)


@pytest.mark.parametrize(
    ("at", "start", "pixel"),
    [((0, 4), (0, 2), (0, 4)), ((0, 4), (0, 3), (1, 0)), ((1, 0), (0, -2), (1, 0)), ((1, 0), (0, -3), (0, 4))],
)
def test_the_nearest_key_of_an_enumeration_is_that_of_the_nearest_t(at, start, pixel):
    """Rows are 2 * 5 - 1 apart: two pixels beyond the end of a row it is nearer than the next, three beyond it not."""
    assert nearest(enumerated(), (4, 5), at, start) == pixel
    assert nearest(enumerated(QuadraticEncoding), (4, 5), at, start) == (at[0], 4 if at[1] else 0)


def test_radices_of_an_enumeration_multiply_the_sides_behind():
    """A row below the last, its t is that of a pixel beyond the end of the last; three axes have two radices."""
    assert nearest(enumerated(), (4, 5), (3, 1), (1, 0)) == (3, 4)
    made = MultiHeadSelfAttention(1, 1, EnumeratedEncoding(torch.zeros(1, 3), torch.full((1,), 128.0)))
    reading = reading_of(made)
    assert nearest(reading, (2, 3, 4), (1, 2, 3), (0, 0, 0)) == (1, 2, 3)
    assert nearest(reading, (2, 3, 4), (0, 1, 3), (0, 0, 1)) == (0, 1, 3)
    assert nearest(reading, (2, 3, 4), (0, 1, 3), (0, 0, 3)) == (0, 2, 0)
    assert nearest(reading, (2, 3, 4), (0, 2, 3), (0, 1, 0)) == (0, 2, 3)
    assert nearest(reading, (2, 3, 4), (0, 2, 3), (0, 2, 0)) == (1, 0, 0)
