"""What is looked at to tell two layers apart: inputs constructed, calls watched, outputs looked at again."""

import contextlib
import json
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Weights
from conv2attn.equivalence.calls import Comparison, MetCall, compare_calls
from conv2attn.equivalence.computed.faithful import departure, departure_of, is_asked
from conv2attn.equivalence.computed.measure import (
    Measured,
    Watch,
    alone,
    axes_of,
    by_true_softmax,
    measure,
    out_of_memory,
    reason,
    run,
    run_second,
)
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.evidence.inputs import Witness
from conv2attn.equivalence.evidence.pointwise import contribution, dot, exact_value, rounding_allowed
from conv2attn.equivalence.evidence.replay import Replay, Shown, in_words, is_saved, replay
from conv2attn.equivalence.evidence.witness import (
    CHANNELS,
    candidates,
    computed,
    find_witness,
    middle,
    rank,
    small_sides,
    witness_on,
)
from conv2attn.equivalence.readings.places import nearest_float
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.theorem import read
from conv2attn.verdicts import Verdict


def layer(seed=0, channels=(2, 3), **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(*channels, 3, **{"padding": 1, **kwargs})


def pair(change=None, **kwargs):
    """A layer, its conversion with something changed, and the readings of both."""
    original = layer(**kwargs)
    converted = conv2attn.convert(original)
    if change:
        change(converted)
    return (original, converted), (reading_of(original), reading_of(converted))


def image(channels=2, sides=(5, 6), seed=1):
    return torch.randn(channels, *sides, generator=torch.Generator().manual_seed(seed))


def witness(original, converted, allowed=None, exact=None, place=(1, 2, 3)):
    return Witness("a", torch.full((2, 5, 4), -3.0), place, original, converted, allowed, exact)


def test_a_witness_differs_exceeds_and_shows():
    assert witness(1.0, 3.0).difference == 2
    assert math.isnan(witness(math.nan, 1.0).difference)
    assert math.isnan(witness(math.inf, math.inf).difference)
    assert witness(1.0, math.nan).difference == witness(1.0, math.inf).difference == math.inf
    assert witness(math.inf, 1.0).difference == math.inf
    shown = [(None, None), (1.5, None), (2.0, None), (2.0, 0.5), (None, 0.5), (2.0, 0.0)]
    assert [witness(1.0, 3.0, *each).exceeds for each in shown] == [False, True, False, False, False, False]
    assert [witness(1.0, 3.0, *each).shows for each in shown] == [False, True, False, True, True, False]
    assert rank(witness(1.0, 3.0, 1.5)) == (True, 2.0)
    assert rank(witness(1.0, 3.0, 2.5)) == (False, 2.0)
    bare = Witness("a", torch.zeros(1), (0,), 1.0, 2.0)
    assert (bare.allowed, bare.exact) == (None, None)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ((1,), "output channel 1"),
        ((1, 2), "output channel 1, position 2"),
        ((1, 2, 3), "output channel 1, row 2, column 3"),
        ((1, 2, 3, 4), "output channel 1, plane 2, row 3, column 4"),
    ],
)
def test_a_place_is_told_by_the_names_of_its_axes(place, told):
    assert witness(1.0, 2.0, place=place).where == told
    assert witness(1.0, 2.0, place=place).in_words() == f"an input 5x4 within +-3 shows it: {told} is 2, not 1"


def test_a_witness_in_exact_arithmetic_says_so():
    told = "an input 5x4 within +-3 shows it: output channel 1, row 2, column 3 is 2, not 1"
    assert witness(1.0, 2.0, 9.0, 0.25).in_words() == f"{told}, and in exact arithmetic off by 0.25"
    assert witness(1.0, 2.0, 0.5, 0.25).in_words() == told
    uneven = Witness("a", torch.tensor([[1.0, -5.0]]), (0, 0), 1.0, 2.0)
    assert uneven.in_words().startswith("an input 2 within +-5 shows it")
    empty = Witness("a", torch.zeros(2, 0), (0, 0), 1.0, 2.0)
    assert empty.in_words().startswith("an input 0 within +-0 shows it")


def test_an_output_is_compared_where_it_is_most_beyond_what_is_allowed():
    layers, readings = pair(lambda made: made.bias.data[1].add_(1.0))
    found = computed("a", layers, readings, image(), (0, 0, 0))
    assert (found.layer, found.place[0], found.exceeds, found.exact) == ("a", 1, True, None)
    first, second = (each(image()[None])[0] for each in layers)
    assert (found.original, found.converted) == (first[found.place].item(), second[found.place].item())
    limits = rounding_allowed(layers[0], readings[0], image())
    assert found.allowed == limits[1]
    assert found.count == int(((second - first).abs() > torch.tensor(limits)[:, None, None]).sum()) == 30
    assert torch.equal(found.image, image())
    within = computed("a", layers, readings, image(), (2, 4, 5), 9.0)
    assert (within.place, within.allowed, within.exact, within.exceeds) == ((2, 4, 5), 9.0, None, False)
    assert within.count == 0
    beyond = computed("a", layers, readings, image(), (2, 4, 5), 0.5)
    assert (beyond.place[0], beyond.allowed, beyond.exceeds) == (1, 0.5, True)
    assert witness_on("a", layers, readings, image(), (2, 4, 5), 9.0) is None
    assert witness_on("a", layers, readings, image(), (2, 4, 5), 0.5).place == beyond.place


def test_a_difference_below_rounding_is_exact():
    def change(made):
        made.output.data[1, 0, 4] = torch.nextafter(made.output.data[1, 0, 4], torch.tensor(9.0))

    layers, readings = pair(change)
    found = computed("a", layers, readings, image(), (1, 2, 3))
    expected = Fraction(layers[1].output[1, 0, 4].item()) - Fraction(layers[0].weight[1, 0, 1, 1].item())
    assert found.exact == float(expected * Fraction(image()[0, 2, 3].item())) != 0
    assert (found.place, found.exceeds, found.shows) == ((1, 2, 3), False, True)
    same = computed("a", *pair(), image(), (1, 2, 3))
    assert (same.exact, same.shows) == (0.0, False)


def test_a_difference_where_the_original_is_not_finite_is_none():
    def endless(made):
        made.bias.data[0] = math.inf

    layers, readings = pair()
    endless(layers[0])
    found = computed("a", layers, readings, image(), (2, 1, 1), 1.0)
    assert (found.place, found.difference < 1) == ((2, 1, 1), True)
    layers, readings = pair(endless)
    found = computed("a", layers, readings, image(), (2, 1, 1), 1.0)
    assert (found.place[0], found.difference) == (0, math.inf)
    grown = conv2attn.convert(layer(padding=2))
    assert computed("a", (layers[0], grown), readings, image(), (0, 0, 0)) is None
    assert witness_on("a", (layers[0], grown), readings, image(), (0, 0, 0)) is None


def test_what_is_allowed_is_that_of_the_original_to_the_last_bit(monkeypatch):
    layers, readings = pair()
    for each in (layers[0].weight, layers[0].bias, layers[1].output, layers[1].bias):
        each.data.zero_()
    layers[1].bias.data[1] = 1.0
    asked = []

    def allowed(*arguments):
        asked.append(arguments)
        return [1.0] * 3

    monkeypatch.setattr("conv2attn.equivalence.evidence.witness.rounding_allowed", allowed)
    given = image()
    found = computed("a", layers, [reading_of(each) for each in layers], given, (1, 2, 3))
    assert (found.place, found.exact, found.exceeds, found.count) == ((1, 2, 3), 1.0, False, 0)
    assert asked[0][0] is layers[0]
    assert asked[0][1].positions is None
    assert computed("a", layers, readings, given, (2, 2, 3), 1.0).place == (2, 2, 3)
    assert computed("a", layers, readings, given, (2, 2, 3), 1.0 - 1e-12).place[0] == 1


def test_where_nothing_is_known_of_rounding_nothing_exceeds_it(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.evidence.witness.rounding_allowed", lambda *args: None)
    layers, readings = pair(lambda made: made.bias.data[1].add_(1.0))
    found = computed("a", layers, readings, image(), (1, 0, 0))
    assert (found.allowed, found.exceeds) == (None, False)
    assert math.isclose(found.exact, 1.0, rel_tol=1e-6)
    leaking = readings[0], reading_of(conv2attn.convert(layers[0], alpha=3))
    assert computed("a", layers, leaking, image(), (1, 0, 0)).exact is None
    assert computed("a", layers, leaking[::-1], image(), (1, 0, 0)).exact is None


def test_numbers_beyond_floats_are_infinite():
    assert nearest_float(Fraction(1, 3)) == 1 / 3
    assert nearest_float(Fraction(10) ** 400) == math.inf
    assert nearest_float(-(Fraction(10) ** 400)) == -math.inf


def test_the_best_witness_is_one_whose_numbers_speak():
    layers, readings = pair(lambda made: made.output.data[2, 1, 4].add_(0.5))
    found = find_witness("a", layers, readings, 2.0)
    assert (found.layer, found.place[0], found.image.abs().max().item(), found.exceeds) == ("a", 2, 2.0, True)
    assert math.isclose(found.difference, 1.0, rel_tol=1e-5)
    everywhere = pair(lambda made: made.output.data[2, 1].add_(0.5))
    assert math.isclose(find_witness("a", *everywhere, 2.0).difference, 9.0, rel_tol=1e-5)
    assert find_witness("a", *pair(), 2.0) is None
    assert find_witness("a", layers, readings, 2.0, tolerance=3.0) is None
    assert find_witness("a", layers, readings, 2.0, tolerance=0.9).allowed == 0.9
    biased = pair(lambda made: made.bias.data[0].sub_(0.25))
    assert (find_witness("a", *biased, 2.0).place[0], round(find_witness("a", *biased, 2.0).difference, 4)) == (0, 0.25)


def test_layers_of_any_format_and_either_side_have_witnesses():
    original = layer().double()
    converted = conv2attn.convert(original)
    converted.bias.data[1] += 1e-9
    readings = reading_of(original), reading_of(converted)
    assert find_witness("a", (original, converted), readings, 1.0).place[0] == 1
    valued = conv2attn.convert(layer(channels=(4, 2)))
    moved = conv2attn.convert(layer(channels=(4, 2)))
    moved.bias.data[1] += 1.0
    assert valued.output is None
    readings = reading_of(valued), reading_of(moved)
    assert find_witness("a", (valued, moved), readings, 1.0).place[0] == 1


def test_a_second_layer_that_does_not_run_has_no_witness():
    layers, readings = pair()
    assert find_witness("a", (layers[0], conv2attn.convert(layer(channels=(4, 3)))), readings, 1.0) is None

    class Sometimes(nn.Module):
        def forward(self, given):
            if given.abs().max() > 0:
                raise RuntimeError("only zeros")
            return layers[0](given) * 2 + 1

    found = find_witness("a", (layers[0], Sometimes()), readings, 1.0)
    assert found.image.abs().max() == 0
    assert found.exceeds


def test_inputs_are_zero_and_the_worst_for_corner_middle_and_end():
    def change(made):
        made.output.data[2].add_(0.5)
        made.bias.data[1].add_(7.0)

    layers, readings = pair(change)
    found = [(each.detach(), place) for each, place in candidates(layers, readings, 1.5)]
    zero, place = found[0]
    assert (zero.shape, zero.any().item(), place[0]) == ((1, 2, *small_sides(readings[0])), False, 1)
    sides = layers[0](zero).shape[2:]
    ends = {(0, 0), (sides[0] // 2, sides[1] // 2), (sides[0] - 1, sides[1] - 1)}
    assert {place for _, place in found[1:]} == {(2, *end) for end in ends}
    for each, place in found[1:]:
        seen = (each != 0).any(1)[0]
        assert set(each.unique().tolist()) == {0.0, 1.5}
        box = [slice(max(0, at - 1), at + 2) for at in place[1:]]
        assert seen[tuple(box)].all()
        assert seen.sum() == seen[tuple(box)].numel()


def test_the_channels_that_differ_most_are_tried(monkeypatch):
    assert CHANNELS == 16
    monkeypatch.setattr("conv2attn.equivalence.evidence.witness.CHANNELS", 2)

    def change(made):
        for channel, size in enumerate((0.1, 0.4, 0.0, 0.3)):
            made.output.data[channel, :, 4].add_(size)
        made.bias.data[0].add_(0.6)

    layers, readings = pair(change, channels=(2, 4))
    assert {place[0] for _, place in list(candidates(layers, readings, 1.0))[1:]} == {0, 1}


def test_the_middle_is_counted_in_rows():
    assert [middle(torch.Size(sides)) for sides in ((5,), (4, 6), (3, 4, 5), ())] == [
        2,
        2 * 6 + 3,
        (1 * 4 + 2) * 5 + 2,
        0,
    ]


@pytest.mark.parametrize(
    ("settings", "sides"),
    [
        ({}, (6, 7)),
        ({"padding": 0}, (6, 7)),
        ({"padding": (0, 4)}, (6, 9)),
        ({"stride": (3, 1)}, (10, 7)),
        ({"dilation": (1, 4), "padding": 0}, (6, 13)),
    ],
)
def test_small_images_have_outputs_away_from_the_border(settings, sides):
    reading = reading_of(layer(**settings))
    assert small_sides(reading) == sides
    assert min(layer(**settings)(torch.zeros(1, 2, *sides)).shape[2:]) >= 3
    cropped = replace(reading, padding=replace(reading.padding, before=(-9, -9), after=(-9, -9)))
    assert all(small <= whole for small, whole in zip(small_sides(cropped), sides, strict=True))


def test_an_output_is_what_the_heads_add_up_to():
    assert dot(torch.tensor([0.5, 0.0, -2.0]), [Fraction(1, 3), Fraction(5), Fraction(1)]) == Fraction(1, 6) - 2
    assert dot(torch.tensor([0.0]), [Fraction(1)]) == 0
    reading = reading_of(layer(channels=(4, 6), groups=2, bias=False))
    column = [Fraction(n, 3) for n in range(4)]
    tap = reading.taps[5]
    expected = Fraction(tap[4, 0].item()) * column[2] + Fraction(tap[4, 1].item()) * column[3]
    assert contribution(reading, 5, 4, column) == expected
    first = Fraction(tap[1, 0].item()) * column[0] + Fraction(tap[1, 1].item()) * column[1]
    assert contribution(reading, 5, 1, column) == first
    value = torch.arange(9 * 6 * 2.0).reshape(9, 6, 2) - 50
    output = torch.arange(9 * 6 * 3.0).reshape(9, 6, 3) / 8
    formed = replace(reading, weights=Weights(value, output, None, 2), taps=None)
    product = (output[5, 4] @ value[5, 3:]).tolist()
    assert contribution(formed, 5, 4, column) == sum(Fraction(w) * x for w, x in zip(product, column[2:], strict=True))
    product = (output[5, 1] @ value[5, :3]).tolist()
    assert contribution(formed, 5, 1, column) == sum(Fraction(w) * x for w, x in zip(product, column[:2], strict=True))
    centre = contribution(reading, 4, 4, [Fraction(1)] * 4)
    assert (
        exact_value(replace(reading, starts=((0, 0),), taps=reading.taps[4:5]), torch.ones(4, 3, 3), (4, 1, 2))
        == centre
    )


def test_no_exact_output_where_a_head_looks_off_the_grid():
    reading = reading_of(conv2attn.convert(layer()))
    assert exact_value(reading, image(), (0, 4, 5)) is not None
    assert exact_value(reading, image(), (0, 6, 5)) is None
    assert exact_value(reading, image(), (0, 4, 7)) is None
    moved = replace(reading, starts=((-2, 0), *reading.starts[1:]))
    assert exact_value(moved, image(), (0, 0, 2)) is None
    assert exact_value(moved, image(), (0, 1, 2)) is not None


def test_rounding_allows_what_the_bound_of_the_right_conversion_does():
    original = layer()
    converted = conv2attn.convert(original)
    ours, right = reading_of(original), reading_of(converted)
    given = image() * 3
    reach = given.abs().max().item()
    assert rounding_allowed(original, ours, given) == difference_bounds(ours, right, reach, (7, 8))
    assert rounding_allowed(converted, right, given) == difference_bounds(right, right, reach, (7, 8))
    nothing = given[:, :0]
    assert rounding_allowed(original, ours, nothing) == difference_bounds(ours, right, 0.0, (2, 8))


def test_half_precision_on_a_processor_is_looked_at_again():
    for dtype, asked in ((torch.float16, True), (torch.bfloat16, True), (torch.float32, False)):
        assert is_asked(torch.zeros(1, dtype=dtype)) is asked
    assert not is_asked(torch.zeros(1, dtype=torch.float16, device="meta"))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_departure_is_from_the_formula_in_float32(axes, bias):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    settings = {"stride": 2, "dilation": 2, "groups": 2, "padding": 1, "bias": bias}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = kind(4, 6, 3, **settings, padding_mode="replicate").bfloat16()
    given = torch.randn(2, 4, *range(9, 9 + axes), generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = made.float()(given.float())
    made = made.bfloat16()
    assert departure(made, given, exact.bfloat16()) == (exact - exact.bfloat16().float()).abs().max().item()
    off = exact.bfloat16()
    off[-1, -1] += 8
    assert 7 < departure(made, given, off) < 9
    assert 7 < departure(made, given[1], off[1]) < 9
    assert departure(made, given, off[:, :1]) == 0
    assert departure(made.float(), given.float(), exact + 8) == 0
    assert departure(nn.ReLU(), given, off) == 0
    assert departure_of(read(made), given, exact + 8) == 0
    assert 7 < departure_of(read(made), given, off) < 9
    assert departure(made, given[:, :3], off) == 0


def test_calls_are_counted_and_the_worst_is_kept():
    fresh = Measured()
    fresh.add(0.0, torch.zeros(2, 0), torch.zeros(6, 7, 8), 2)
    assert (fresh.input_range, fresh.grid) == (0.0, (7, 8))
    seen = Measured()
    assert vars(Measured()) == {
        "max_error": 0.0,
        "input_range": 0.0,
        "sides": (),
        "grid": (),
        "calls": 0,
        "trouble": "",
        "like": None,
        "shape": (),
        "spread": 0.0,
        "departure": 0.0,
        "earlier": (),
    }
    seen.add(0.5, torch.full((2, 3, 4, 5), -2.0), torch.zeros(2, 6, 7, 8), 2)
    assert (seen.max_error, seen.input_range, seen.sides, seen.grid) == (0.5, 2.0, (4, 5), (7, 8))
    assert (seen.calls, seen.shape, seen.like.numel(), seen.like.dtype) == (1, (2, 3, 4, 5), 0, torch.float32)
    seen.add(0.25, torch.ones(3, 6), torch.zeros(6, 9), 1)
    assert (seen.max_error, seen.input_range, seen.sides, seen.grid, seen.calls) == (0.5, 2.0, (6,), (9,), 2)
    seen.add(0.75, torch.full((1, 1, 1), 4.0), torch.zeros(1, 1, 1), 1)
    assert (seen.max_error, seen.input_range) == (0.75, 4.0)
    seen.add(math.nan, torch.zeros(1, 0), torch.zeros(1, 0), 1)
    assert math.isnan(seen.max_error)
    assert seen.input_range == 4.0
    seen.add(0.0, torch.full((1, 1), math.nan), torch.zeros(1, 1), 1)
    assert math.isnan(seen.max_error) or seen.max_error == 0.0
    assert math.isnan(seen.input_range)
    for off in (0.5, 0.25):
        seen.departs(off)
        assert seen.departure == 0.5
    seen.departs(math.nan)
    assert math.isnan(seen.departure)


def watched(other, *args, **kwargs):
    made = layer()
    watch = Watch(other)
    with torch.no_grad():
        watch(made, args, kwargs, made(*args, **kwargs))
    return watch.seen


def test_the_second_layer_runs_on_what_the_first_was_called_on():
    given = image()[None]
    for args, kwargs in (((given,), {}), ((), {"input": given})):
        seen = watched(layer(), *args, **kwargs)
        assert (seen.max_error, seen.trouble, seen.calls, seen.sides, seen.grid) == (0.0, "", 1, (5, 6), (5, 6))
        assert seen.input_range == given.abs().max().item()
    assert 0 < watched(layer(1), given).max_error < math.inf
    made = layer()
    watch = Watch(nn.Identity())
    watch.other.forward = lambda first, second: made(first)
    watch(made, (given, torch.full((1, 2, 9, 9), 50.0)), {}, made(given))
    assert (watch.seen.sides, watch.seen.input_range < 50) == ((5, 6), True)
    wrong = watched(layer(channels=(2, 4)), given)
    assert (wrong.max_error, wrong.trouble) == (math.inf, "an output has shape (1, 4, 5, 6), not (1, 3, 5, 6)")
    assert watched(layer(padding=0), image(sides=(9, 9))).sides == (9, 9)


def test_what_the_first_is_off_by_is_kept(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.computed.measure.departure", lambda *args: 0.5)
    monkeypatch.setattr("conv2attn.equivalence.calls.departure_of", lambda *args: 0.25)
    assert watched(layer(), image()[None]).departure == 0.5
    net = Inner()
    [met] = compare_calls(net, conv2attn.convert(net, example_input=image()[None]), image()[None])
    assert met.seen.departure == 0.25


@pytest.mark.parametrize("failure", [RuntimeError, IndexError, TypeError, ValueError, AttributeError])
def test_a_second_that_fails_is_trouble(failure):
    class Failing(nn.Module):
        def forward(self, given):
            raise failure("first line\nsecond line")

    seen = watched(Failing(), image()[None])
    assert (seen.max_error, seen.trouble, seen.calls) == (math.inf, "first line", 1)
    assert run_second(Failing(), image()) == (None, f"{failure.__name__}: first line")


def test_where_memory_ends_nothing_is_said_of_the_second():
    class Full(nn.Module):
        def forward(self, given):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")

    with pytest.raises(RuntimeError, match="allocate memory"):
        watched(Full(), image()[None])
    with pytest.raises(UsageError, match=r"the second needs more memory than there is.*Pass smaller images"):
        run_second(Full(), image())
    assert out_of_memory(torch.OutOfMemoryError("CUDA"))
    assert not out_of_memory(RuntimeError("another"))


def test_the_axes_of_a_layer_are_those_of_its_kernel():
    assert [axes_of(each) for each in (layer(), nn.Conv1d(1, 1, 3), conv2attn.convert(nn.Conv3d(1, 1, 2)))] == [2, 1, 3]


def test_heads_that_depend_on_positions_alone_are_evaluated_as_softmaxes():
    encoding = conv2attn.convert(layer()).encoding
    net = nn.Sequential(conv2attn.convert(layer()), conv2attn.convert(layer(), encoding="enumerated"), nn.ReLU())
    net.append(MultiHeadSelfAttention(2, 2, encoding, content=True))
    for each in (net[0], net[1], net[3]):
        each.engine = "dense"
    made = by_true_softmax(net)
    assert [made[n].engine for n in (0, 1, 3)] == ["separable", "auto", "auto"]
    assert net[0].engine == "dense"


def test_both_networks_run_on_the_same_random_numbers():
    noise = nn.Dropout().train()
    first = run(noise, torch.ones(99))
    torch.rand(1)
    assert torch.equal(first, run(noise, torch.ones(99)))
    before = torch.random.get_rng_state()
    assert torch.equal(run(noise, torch.ones(99)), run(noise, torch.ones(99)))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not run(layer(), image()[None]).requires_grad
    second, failure = run_second(noise, torch.ones(99))
    assert torch.equal(second, first)
    assert failure == ""


def test_layers_are_watched_in_a_copy():
    net = nn.Sequential(layer(channels=(2, 2)), nn.BatchNorm2d(2), layer(1))
    seen, first = measure(net, {"0": copy_network(net[0]), "2": layer(2)}, image()[None])
    assert (seen["0"].max_error, seen["0"].calls) == (0.0, 1)
    assert seen["2"].max_error > 0
    assert net[1].num_batches_tracked == 0
    assert not net[0]._forward_hooks
    assert first.shape == (1, 3, 5, 6)
    linear = nn.Sequential(layer())
    named = nn.Sequential(layer())
    named.forward = lambda given: named[0](input=given)
    assert measure(linear, {"0": layer()}, image()[None])[0]["0"].calls == 1


class Inner(nn.Module):
    """A functional convolution, called by keyword or not."""

    def __init__(self, stride=1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(stride)))
        self.stride = stride

    def forward(self, given):
        if self.stride == 1:
            return F.conv2d(input=given, weight=self.weight, padding=1)
        return F.conv2d(given, self.weight, stride=self.stride, padding=1)


class Outer(nn.Module):
    """Two modules that convolve, a layer, and a convolution of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.layer = Inner(), Inner(2), layer(channels=(2, 2))
        self.weight = nn.Parameter(torch.ones(2, 2, 1, 1))

    def forward(self, given):
        return F.conv2d(self.layer(self.second(self.first(given))), self.weight)


def test_functional_calls_are_compared_where_they_attend():
    net = Outer()
    converted = conv2attn.convert(net, example_input=image()[None])
    met = compare_calls(net, converted, image()[None])
    assert [call.name for call in met] == ["first:conv2d", "second:conv2d", "(root):conv2d"]
    assert all(0 <= call.seen.max_error < 1e-4 for call in met)
    assert [call.seen.calls for call in met] == [1, 1, 1]
    assert [call.seen.grid for call in met] == [(5, 6), (3, 3), (3, 3)]
    assert met[1].convolution.stride == (2, 2)
    assert met[0].layer.heads == 9
    assert met[1].signature.startswith("conv2d")
    assert [call.seen.trouble for call in met] == ["", "", ""]
    assert compare_calls(net, net, image()[None]) == []
    resting = Comparison(converted).resting
    assert {name for name in resting if "attending_calls" not in name} == {"layer"}
    left = conv2attn.convert(net, example_input=image()[None], skip="first*")
    assert [call.name for call in compare_calls(net, left, image()[None])] == ["second:conv2d", "(root):conv2d"]


def test_the_reason_of_an_error_is_one_line_and_never_nothing():
    assert reason(RuntimeError("first\nsecond")) == "first"
    assert reason(ValueError()) == "ValueError"
    assert run_second(nn.Sequential(Silent()), image()) == (None, "ValueError: ValueError")


class Silent(nn.Module):
    """A module that fails and does not say why."""

    def forward(self, given):
        raise ValueError


class Trying(nn.Module):
    """Runs a module that fails, and convolves all the same; or has a hook that convolves."""

    def __init__(self):
        super().__init__()
        self.inner, self.weight = Inner(), nn.Parameter(torch.ones(2, 2, 1, 1))

    def forward(self, given):
        with contextlib.suppress(TypeError):
            self.inner("no tensor")
        return F.conv2d(self.inner(given), self.weight)


def test_a_call_belongs_to_the_module_that_makes_it():
    net = Trying()
    converted = conv2attn.convert(net, example_input=image()[None])
    assert [call.name for call in compare_calls(net, converted, image()[None])] == ["inner:conv2d", "(root):conv2d"]
    only = conv2attn.convert(net, example_input=image()[None], skip="(root)*")
    names = [call.name for call in compare_calls(net, only, image()[None])]
    assert names == [name for name in ("inner:conv2d", "(root):conv2d") if name in names]


class Kinds(nn.Module):
    """Two functions in one module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2, 3, 3))

    def forward(self, given):
        return F.conv2d(given, self.weight) + F.conv_transpose2d(given, self.weight)[:, :, 2:-2, 2:-2]


def test_functions_left_alone_are_not_compared():
    net = Kinds()
    whole = conv2attn.convert(net, example_input=image()[None])
    assert [call.name for call in compare_calls(net, whole, image()[None])] == [
        "(root):conv2d",
        "(root):conv_transpose2d",
    ]
    part = conv2attn.convert(net, example_input=image()[None], skip="*transpose2d")
    assert [call.name for call in compare_calls(net, part, image()[None])] == ["(root):conv2d"]


def test_what_attends_wrongly_or_not_at_all_is_seen():
    net = Inner()
    converted = conv2attn.convert(net, example_input=image()[None])
    attending = converted.attending_calls.layers[0]
    attending.encoding.center.data[0] += 1
    [met] = compare_calls(net, converted, image()[None])
    assert (met.name, met.seen.trouble) == ("(root):conv2d", "")
    assert 0.1 < met.seen.max_error < math.inf
    for failure in ("broken", "allocate memory"):

        def fail(*args, failure=failure, **kwargs):
            raise RuntimeError(f"{failure}\nmore")

        vars(attending)["forward"] = fail
        if failure == "broken":
            [met] = compare_calls(net, converted, image()[None])
            assert (met.seen.max_error, met.seen.trouble) == (math.inf, "broken")
        else:
            with pytest.raises(RuntimeError, match="allocate memory"):
                compare_calls(net, converted, image()[None])
    vars(attending)["forward"] = lambda given, weights=None: given[:, :1]
    [met] = compare_calls(net, converted, image()[None])
    assert (met.seen.max_error, met.seen.trouble) == (math.inf, "an output has shape (1, 1, 5, 6), not (1, 2, 5, 6)")
    assert MetCall("a:b:conv2d", met.convolution, met.layer).seen.calls == 0


@pytest.mark.parametrize(
    ("entry", "fits"),
    [
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, 1)}, True),
        ("text", False),
        ({"layer": 1, "image": torch.ones(2, 3), "place": (0, 1)}, False),
        ({"image": torch.ones(2, 3), "place": (0, 1)}, False),
        ({"layer": "a", "image": [1.0], "place": (0,)}, False),
        ({"layer": "a", "image": torch.ones(2, 3, dtype=torch.int64), "place": (0, 1)}, False),
        ({"layer": "a", "image": torch.tensor([[1.0, torch.inf]]), "place": (0, 1)}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": [0, 1]}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0,)}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, -1)}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, True)}, False),
        ({"layer": "a", "image": torch.ones(2, 3)}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "part": "outputs"}, True),
        ({"layer": "a", "image": torch.ones(2, 3), "part": "call"}, True),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, 1), "part": "others"}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, 1), "part": 3}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, 1), "part": torch.ones(2)}, False),
        ({"layer": "a", "image": torch.ones(2, 3, dtype=torch.int64), "part": "outputs"}, False),
        ({"layer": "a", "image": torch.ones(2, 3), "place": (0, 1), "part": ""}, True),
    ],
)
def test_what_was_saved_is_a_layer_an_image_and_a_place(entry, fits):
    assert is_saved(entry) is fits


def test_what_is_shown_again_is_told_with_what_is_allowed():
    place = "output channel 1, row 2, column 3"
    assert (
        in_words(witness(math.nan, 1.0), True)
        == f"{place}: the original is not finite there, so this input shows nothing"
    )
    assert in_words(witness(1.5, 1.5), True) == f"{place} is 1.5 in both: this input shows no difference"
    assert in_words(witness(1.0, 2.0, 0.5), True) == f"{place} is 2, not 1: off by 1, rounding allows 0.5"
    assert in_words(witness(1.0, 2.0, 0.5), False) == f"{place} is 2, not 1: off by 1, the tolerance allows 0.5"
    numbers = f"{place} is 2, not 1: off by 1"
    assert (
        in_words(witness(1.0, 2.0), True) == f"{numbers}, what rounding allows is not known: this input shows nothing"
    )
    nothing = "what the tolerance allows is not known: this input shows nothing"
    assert in_words(witness(1.0, 2.0), False) == f"{numbers}, {nothing}"
    assert in_words(replace(witness(1.0, 2.0, 0.5), count=1), True) == f"{numbers}, rounding allows 0.5 (1 number off)"
    exact = "in exact arithmetic it is off by 0.25, and should not be"
    assert in_words(witness(1.0, 2.0, 3.0, 0.25), True) == f"{numbers}, rounding allows 3; {exact}"
    assert in_words(witness(1.0, 1.0, 3.0, 0.25), True) == f"{place} is 1, not 1: off by 0, rounding allows 3; {exact}"


def test_a_replay_is_refuted_by_one_input_and_never_holds():
    one, other = Shown("a", Verdict.REFUTED, "is off"), Shown("b", Verdict.UNDECIDED, "is not")
    report = Replay("f.pt", (one, other))
    assert (report.verdict, report.exit_code) == (Verdict.REFUTED, 1)
    assert report.to_text() == "a: is off\nb: is not\n1 of 2 saved inputs show a difference: refuted\n"
    assert report.to_markdown() == "- a: is off\n- b: is not\n- 1 of 2 saved inputs show a difference: refuted\n"
    text = report.to_json()
    assert json.loads(text) == {
        "schema": "conv2attn.replay/1",
        "file": "f.pt",
        "verdict": "refuted",
        "exit_code": 1,
        "shown": [{"layer": "a", "verdict": "refuted", "sentence": "is off"},
                  {"layer": "b", "verdict": "undecided", "sentence": "is not"}],
    }  # fmt: skip
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    rest = Replay("f.pt", (other,))
    assert (rest.verdict, rest.exit_code) == (Verdict.UNDECIDED, 3)
    last = "0 of 1 saved inputs show a difference: undecided (and nothing is known of other inputs)"
    assert rest.to_text() == f"b: is not\n{last}\n"


def entry(name="(root)", given=None, place=(1, 2, 3)):
    return {"witnesses": [{"layer": name, "image": image() if given is None else given, "place": place}]}


def test_saved_inputs_are_shown_on_their_layer():
    layers, readings = pair(lambda made: made.bias.data[1].add_(1.0))
    [shown] = replay(entry(), "f.pt", *layers).shown
    found = computed("(root)", (layers[0], by_true_softmax(layers[1])), readings, image(), (1, 2, 3))
    assert shown == Shown("(root)", Verdict.REFUTED, in_words(found, True))
    [shown] = replay(entry(), "f.pt", *layers, tolerance=9.0).shown
    assert shown.verdict is Verdict.UNDECIDED
    assert "the tolerance allows 9: this input shows nothing" in shown.sentence
    net = nn.Sequential(layers[0]), nn.Sequential(layers[1])
    [shown] = replay(entry("0"), "f.pt", *net, tolerance=9.0).shown
    assert (shown.layer, shown.verdict) == ("0", Verdict.REFUTED)
    assert "rounding allows" in shown.sentence
    assert replay(entry(), "f.pt", layers[0], conv2attn.convert(layers[0])).verdict is Verdict.UNDECIDED
    assert replay(entry(), "f.pt", *layers, tolerance=0.0).verdict is Verdict.REFUTED


def test_a_difference_below_rounding_is_shown_again_in_exact_arithmetic():
    def change(made):
        made.output.data[1, 0, 4] = torch.nextafter(made.output.data[1, 0, 4], torch.tensor(9.0))

    layers, _ = pair(change)
    [shown] = replay(entry(), "f.pt", *layers).shown
    assert shown.verdict is Verdict.REFUTED
    assert "in exact arithmetic it is off by" in shown.sentence


def test_seconds_of_other_kinds_are_refuted_or_do_not_run():
    layers, _ = pair()
    [shown] = replay(entry(), "f.pt", layers[0], conv2attn.convert(layer().double())).shown
    assert (shown.layer, shown.verdict) == ("(root)", Verdict.REFUTED)
    assert shown.sentence.startswith("the second does not run on it: ")
    assert "\n" not in shown.sentence
    grown = conv2attn.convert(layer(padding=2))
    [shown] = replay(entry(), "f.pt", layers[0], grown).shown
    assert shown == Shown("(root)", Verdict.REFUTED, "the outputs are of other shapes")
    with pytest.raises(CheckpointError, match=r"which \(root\) has not"):
        replay(entry(place=(0, 6, 7)), "f.pt", layers[0], grown)


def test_an_original_that_attends_by_its_values_is_shown_too():
    attention = conv2attn.convert(layer(channels=(4, 2)))
    assert attention.output is None
    assert replay(entry(given=image(4), place=(1, 0, 0)), "f.pt", attention, attention).verdict is Verdict.UNDECIDED


def test_the_first_line_says_why_an_original_does_not_run(monkeypatch):
    layers, _ = pair()

    def fail(*args):
        raise RuntimeError("first\nsecond")

    layers[0].register_forward_pre_hook(fail)
    with pytest.raises(UsageError, match=r"does not run on the input in f\.pt: first\."):
        replay(entry(), "f.pt", *layers)


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ({}, CheckpointError, "f.pt holds no saved witnesses"),
        ({"witnesses": []}, CheckpointError, "Write one by verify --save-witness"),
        ({"witnesses": 3}, CheckpointError, "f.pt holds no saved witnesses"),
        ({"witnesses": ["a"]}, CheckpointError, "f.pt holds no saved witnesses"),
        ({"witnesses": [*entry()["witnesses"], "a"]}, CheckpointError, "f.pt holds no saved witnesses"),
        (entry("nowhere"), UsageError, "f.pt is of a layer nowhere, which these networks have not"),
        (
            entry(given=image().double()),
            UsageError,
            r"f.pt holds torch.float64, and \(root\) is torch.float32.*--dtype",
        ),
        (entry(given=image(4)), UsageError, r"\(root\) of the original does not run on the input in f.pt: "),
        (entry(place=(3, 0, 0)), CheckpointError, r"f.pt is of output \(3, 0, 0\), which \(root\) has not"),
        (entry(place=(0, 0, 6)), CheckpointError, "has not"),
    ],
)
def test_what_cannot_be_shown_again_is_an_error(content, error, told):
    layers, _ = pair()
    with pytest.raises(error, match=told):
        replay(content, "f.pt", *layers)


def test_the_tolerance_of_a_replay_is_a_number():
    layers, _ = pair()
    for tolerance in (-1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match=f"tolerance={tolerance!r} is not a finite number of at least 0"):
            replay(entry(), "f.pt", *layers, tolerance=tolerance)


def test_the_largest_image_is_that_along_each_axis():
    seen = Measured()
    for sides in ((5, 3), (4, 6), (2, 2)):
        seen.add(0.0, torch.zeros(1, 2, *sides), torch.zeros(1, 2, *sides), 2)
    assert (seen.sides, seen.grid) == ((5, 6), (5, 6))


def test_a_weight_that_a_hook_computes_is_computed_anew():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = nn.utils.weight_norm(layer())
    given = image()[None]
    before = alone(other, given)
    with torch.no_grad():
        other.weight_g.mul_(2)
    assert torch.equal(alone(other, given), other(given))
    assert not torch.equal(alone(other, given), before)


def test_a_layer_is_watched_before_its_own_hooks_change_its_output():
    original = nn.Sequential(layer())
    original[0].register_forward_hook(lambda module, args, output: 2 * output)
    seen, first = measure(original, {"0": layer()}, image()[None])
    assert seen["0"].max_error == 0
    assert torch.equal(first, 2 * layer()(image()[None]))


class Hooked(Inner):
    """A module whose own hook convolves before it does."""

    def __init__(self):
        super().__init__()
        self.register_forward_pre_hook(lambda module, args: (F.conv2d(args[0], module.weight, padding=2),))


def test_a_hook_that_convolves_belongs_to_its_module():
    net = Hooked()
    comparison = Comparison(conv2attn.convert(Inner(), example_input=image()[None]))
    comparison.watch("", net)
    with torch.no_grad(), comparison:
        net(image()[None])
    assert [met.convolution.padding.before for met in comparison.met.values()] == [(2, 2), (1, 1)]


class Double(nn.Module):
    """Two functional convolutions, of which one is of a dtype without a softmax."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2, 3, 3))

    def forward(self, given):
        return F.conv2d(given, self.weight) + F.conv2d(given.to(torch.complex64), self.weight.to(torch.complex64)).real


def test_a_call_that_is_no_convolution_of_ours_goes_on_as_it_is():
    comparison = Comparison(conv2attn.convert(Inner(), example_input=image()[None]))
    net = Double()
    comparison.watch("", net)
    with torch.no_grad(), comparison:
        output = net(image()[None])
    assert len(comparison.met) == 1
    assert torch.equal(output, net(image()[None]))
