"""Whether two readings are the same map, from readings made by hand: what is said of the first thing that is not."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.basis import Padding, Weights
from conv2attn.equivalence.readings.finding import holds, refuted, undecided, unsupported
from conv2attn.equivalence.readings.geometry import Geometry
from conv2attn.equivalence.readings.maps import compare_forms, compare_maps, compare_places, compare_weights
from conv2attn.equivalence.readings.places import at_places, different_sums, entry, places_used, single
from conv2attn.equivalence.readings.reading import reading_of

SAME = [holds("geometry"), holds("weights")]


def layer(groups=1, bias=True, mode="zeros", dtype=torch.float32):
    """A layer of 2 by 3 taps, of which number n has weights between n and n + 1."""
    made = nn.Conv2d(4, 6, (2, 3), padding=1, groups=groups, bias=bias, padding_mode=mode)
    with torch.no_grad():
        taps = torch.arange(6.0).reshape(2, 3) + 1
        rest = torch.arange(6 * (4 // groups)).reshape(6, -1, 1, 1) / 64
        made.weight.copy_(taps + rest)
        if bias:
            made.bias.copy_(torch.arange(6.0))
    return made.to(dtype)


def read(**kwargs):
    return reading_of(layer(**kwargs))


def moved(reading, tap, start):
    """The reading with one tap elsewhere."""
    change = lambda given: tuple(start if number == tap else each for number, each in enumerate(given))  # noqa: E731
    return replace(reading, starts=change(reading.starts), offsets=change(reading.offsets))


def formed(reading, value, output):
    """The reading with two factors, whose product is not plain to see."""
    return replace(reading, weights=Weights(value, output, reading.weights.bias, reading.weights.groups), taps=None)


def halved(reading):
    """The reading with each tap as a product of two factors."""
    heads, groups = len(reading.starts), reading.weights.groups
    width = reading.channels[0] // groups
    return formed(reading, torch.eye(width).repeat(heads, groups, 1) * 0.5, reading.weights.output * 2)


def geometry(sentence):
    return refuted("geometry", "C2A401", sentence)


def weights(sentence):
    return refuted("weights", "C2A402", sentence)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_a_layer_is_itself_and_its_conversion(groups, mode):
    given = layer(groups, mode=mode)
    for other in (given, conv2attn.convert(given), conv2attn.convert(given, trainable=True)):
        assert compare_maps(reading_of(given), reading_of(other)) == SAME
        assert compare_maps(reading_of(other), reading_of(given)) == SAME
    assert compare_maps(read(groups=groups, mode=mode), halved(read(groups=groups, mode=mode))) == SAME


@pytest.mark.parametrize("which", ["value", "output", "bias"])
def test_weights_that_are_not_finite_are_no_map_or_another_one(which):
    endless = halved(read())
    endless.weights.bias[2] = 1.0
    spoilt = getattr(endless.weights, which)
    endless = replace(
        endless,
        weights=replace(endless.weights, **{which: spoilt.clone().index_fill_(0, torch.tensor([1]), torch.inf)}),
    )
    told = "a weight of the original is not finite: there is no map to compare with"
    assert compare_maps(endless, read()) == [unsupported("C2A408", told)]
    assert compare_maps(read(), endless) == [weights("a weight is not finite, and the original's all are")]


def form(reading, **changes):
    return replace(reading, geometry=replace(reading.geometry, **changes))


def test_forms_differ_in_channels_axes_strides_rooms_or_spacings():
    ours = read()
    assert compare_forms(ours, read()) is None
    assert compare_forms(ours, replace(ours, channels=(4, 7))) == geometry("channels are (4, 7), not (4, 6)")
    line = replace(ours, geometry=Geometry((1,), (0,), (1,)))
    assert compare_forms(ours, line) == geometry("there are 1 axes, not 2")
    assert ours.geometry == Geometry((1, 1), (1, 0), (1, 1))
    other = form(ours, stride=(2, 1), room=(5, 0))
    assert compare_forms(ours, other) == geometry("stride is (2, 1), not (1, 1); room is (5, 0), not (1, 0)")
    stuffed = form(ours, spacing=(2, 1))
    assert compare_forms(ours, stuffed) == geometry("spacing is (2, 1), not (1, 1)")
    doubled = form(ours, stride=(2, 1), spacing=(2, 1))
    doubt = undecided("geometry", "C2A401", "zeros are stuffed at another spacing, and left out by the stride")
    assert compare_forms(ours, doubled) == compare_forms(doubled, ours) == doubt
    assert compare_forms(form(ours, stride=(2, 1)), form(ours, spacing=(2, 1))).verdict is geometry("").verdict
    assert compare_maps(ours, other) == [compare_forms(ours, other)]


def test_another_dtype_is_another_map():
    assert compare_maps(read(), read(dtype=torch.float64)) == [weights("weights are torch.float64, not torch.float32")]


def test_heads_elsewhere_are_named_with_what_is_needed():
    assert compare_maps(read(), moved(read(), 4, (7, 7)))[0] == geometry(
        "head 4 attends to (7, 7); the convolution needs (1, 0) (1 head off)"
    )
    less = replace(read(), starts=read().starts[:-1], offsets=read().offsets[:-1])
    less = replace(less, weights=replace(less.weights, output=less.weights.output[:-1]), taps=less.taps[:-1])
    assert compare_maps(read(), less)[0] == geometry(f"no head attends to {read().offsets[5]} (1 tap without a head)")
    assert compare_maps(less, read())[0] == geometry(
        f"head 5 attends to {read().offsets[5]}; the convolution has no tap there (1 head off)"
    )
    assert compare_maps(read(), less)[1] == holds("weights")


def test_the_first_head_elsewhere_is_named_whatever_it_does():
    twice = moved(moved(read(), 4, (7, 7)), 2, (8, 8))
    told = "head 2 attends to (8, 8); the convolution needs (0, 1) (2 heads off)"
    assert compare_maps(read(), twice)[0].sentence == told
    few = moved(read(), 4, (7, 7))
    few.taps[4] = 0.0
    few.taps[4, 3, 2] = 1.0
    rest = read()
    rest.taps[4] = 0.0
    told = "head 4 attends to (7, 7); the convolution has no tap there (1 head off)"
    assert compare_maps(rest, few)[0] == geometry(told)
    assert compare_maps(few, rest)[0] == geometry("no head attends to (7, 7) (1 tap without a head)")


def test_heads_that_add_up_to_nothing_copy_nothing():
    idle = moved(read(), 4, (7, 7))
    idle.taps[4] = 0.0
    rest = read()
    rest.taps[4] = 0.0
    assert compare_maps(rest, idle) == compare_maps(idle, rest) == SAME


def test_padding_counts_where_a_tap_reaches_beyond_the_pixels():
    ours, theirs = read(mode="reflect"), read(mode="replicate")
    assert compare_maps(ours, theirs)[0] == geometry("beyond the pixels there is replicate padding, not reflect")
    inner = [replace(each, starts=((0, 0),), offsets=((0, 0),), taps=each.taps[:1]) for each in (ours, theirs)]
    inner = [
        replace(each, weights=replace(each.weights, output=each.taps), geometry=Geometry((1, 1), (0, 0), (1, 1)))
        for each in inner
    ]
    assert compare_maps(*inner) == SAME
    out = [replace(each, starts=((0, 1),)) for each in inner]
    assert compare_maps(*out)[0].sentence == "beyond the pixels there is replicate padding, not reflect"
    for each in out:
        each.taps.zero_()
    assert compare_maps(*out) == SAME


def test_heads_that_can_leave_the_grid_are_judged_apart(monkeypatch):
    asked = []
    told = geometry("judged")
    monkeypatch.setattr("conv2attn.equivalence.readings.maps.judge_strays", lambda *sides: asked.append(sides) or told)
    positions = reading_of(conv2attn.convert(layer())).positions
    stray = replace(read(), positions=replace(positions, strays=(2,)))
    assert stray.strays == (2,)
    for sides in ((read(), stray), (stray, read()), (stray, stray)):
        assert compare_maps(*sides)[0] == told
        assert asked.pop() == sides
    assert compare_maps(read(), read()) == SAME
    assert not asked


def test_padding_of_other_amounts_fits_other_inputs():
    ours = read(mode="reflect")
    theirs = replace(ours, padding=Padding((1, 2), (1, 1), "reflect"))
    told = "reflect padding refuses a side of 2 pixels, which the original takes"
    assert compare_maps(ours, theirs) == [refuted("geometry", "C2A401", told), holds("weights")]
    told = "reflect padding is by (1, 1) and (1, 1), not (1, 2) and (1, 1): other sizes of input fit it"
    assert compare_maps(theirs, ours) == [undecided("geometry", "C2A401", told), holds("weights")]
    zeros = read()
    assert compare_maps(zeros, replace(zeros, padding=Padding((1, 2), (1, 1)))) == SAME
    inner = [
        replace(each, geometry=Geometry((1, 1), (-9, -9), (1, 1)), starts=tuple((n, n) for n in range(6)))
        for each in (ours, theirs)
    ]
    assert compare_maps(*inner) == SAME


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_that_are_off_are_counted_and_the_worst_is_told_in_full(groups):
    ours, theirs = read(groups=groups), read(groups=groups)
    theirs.taps[1, 0, 0] += 2.0
    theirs.taps[2, 4, 1] += 8.0
    theirs.taps[5, 5, 0] -= 4.0
    before = ours.taps[2, 4, 1].item()
    channel = 1 if groups == 1 else 3
    told = (
        f"3 weights off, the worst in the tap at {ours.offsets[2]} (head 2), output channel 4, "
        f"input channel {channel}: "
        f"{before + 8!r}, not {before!r} (off by 8)"
    )
    assert compare_maps(ours, theirs) == [holds("geometry"), weights(told)]
    assert compare_maps(ours, halved(theirs)) == [holds("geometry"), weights(told)]
    assert "(off by -8)" in compare_maps(theirs, ours)[1].sentence


def test_a_difference_beyond_all_floats_is_the_worst():
    ours, theirs = read(dtype=torch.float64), read(dtype=torch.float64)
    theirs.taps[1, 0, 0] += 1.0
    theirs.taps[4, 3, 2], ours.taps[4, 3, 2] = 1.5e308, -1.5e308
    told = "output channel 3, input channel 2: 1.5e+308, not -1.5e+308 (off by inf)"
    assert told in compare_maps(ours, theirs)[1].sentence


def test_one_weight_at_a_place_of_two_heads_names_both():
    ours = read()
    twice = replace(
        ours,
        starts=(*ours.starts, ours.starts[3]),
        offsets=(*ours.offsets, ours.offsets[3]),
        taps=torch.cat([ours.taps, torch.zeros(1, 6, 4)]),
    )
    twice = replace(twice, weights=replace(twice.weights, output=twice.taps))
    assert compare_maps(ours, twice) == compare_maps(twice, ours) == SAME
    twice.taps[6, 0, 2] = 0.5
    sentence = compare_maps(ours, twice)[1].sentence
    assert sentence.startswith(
        f"1 weight off, the worst in the tap at {ours.offsets[3]} (heads 3, 6), output channel 0, input"
    )
    assert sentence.endswith("(off by 0.5)")


def test_weights_in_other_groups_are_the_same_numbers():
    grouped, whole = read(groups=2), read()
    whole.taps.zero_()
    whole.taps[:, :3, :2], whole.taps[:, 3:, 2:] = grouped.taps[:, :3], grouped.taps[:, 3:]
    assert compare_maps(grouped, whole) == compare_maps(whole, grouped) == SAME
    whole.taps[1, 4, 3] += 2.0
    assert "output channel 4, input channel 3: " in compare_maps(grouped, whole)[1].sentence
    assert compare_maps(grouped, halved(whole))[1].sentence == compare_maps(grouped, whole)[1].sentence


def test_only_places_that_both_have_are_questions_of_weight():
    ours, theirs = read(), moved(read(), 4, (7, 7))
    places = tuple(dict.fromkeys((*ours.starts, *theirs.starts)))
    wrong = different_sums(ours, theirs, places)
    assert wrong.flatten(1).any(1).tolist() == [False] * 4 + [True, False, True]
    assert compare_weights(ours, theirs, places, wrong) == holds("weights")
    assert compare_weights(theirs, ours, places, wrong) == holds("weights")
    assert compare_places(ours, theirs, places, wrong & False) == holds("geometry")


def biased(numbers, dtype=torch.float32):
    bias = None if numbers is None else torch.tensor(numbers, dtype=dtype)
    made = read(bias=False)
    return replace(made, weights=replace(made.weights, bias=bias))


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ([0.0] * 6, None, None),
        (None, [-0.0] * 6, None),
        ([1.0] * 6, [1.0] * 6, None),
        ([0.0, 1, 2, 3, 4, 5], [0.0, 1, 7, 3, -8, 6], "3 biases off, the worst in output channel 4: -8.0, not 4.0"),
        (None, [0.0, 0, 0, 0, 0, 1], "1 bias off, the worst in output channel 5: 1.0, not 0.0"),
        ([1.0] * 6, [1.0], "the bias is torch.float32 (1,)"),
    ],
)
def test_biases_are_the_same_numbers(ours, theirs, told):
    expected = holds("weights") if told is None else weights(told)
    assert compare_maps(biased(ours), biased(theirs)) == [holds("geometry"), expected]


def test_a_bias_of_another_dtype_is_another_bias():
    found = compare_maps(biased([1.0] * 6), biased([1.0] * 6, torch.float64))
    assert found[1] == weights("the bias is torch.float64 (6,)")


def test_no_bias_is_a_bias_of_zeros_of_the_same_dtype():
    zero, without = layer(dtype=torch.float64), read(bias=False, dtype=torch.float64)
    zero.bias.data.zero_()
    assert compare_maps(without, reading_of(zero)) == compare_maps(reading_of(zero), without) == SAME


def test_numbers_are_compared_as_they_are_where_nothing_is_summed(monkeypatch):
    ours, theirs = read(groups=2), read(groups=2)
    theirs.taps[1, 2, 1] = torch.nextafter(theirs.taps[1, 2, 1], torch.tensor(9.0))
    places = (*reversed(ours.starts), (9, 9))
    by_primes = different_sums(ours, halved(theirs), places)
    monkeypatch.setattr("conv2attn.equivalence.readings.places.differing", lambda *sums: 1 / 0)
    plainly = different_sums(ours, theirs, places)
    assert torch.equal(plainly, by_primes)
    assert plainly.nonzero().tolist() == [[4, 2, 1]]
    assert plainly.shape == (7, 6, 2)
    with pytest.raises(ZeroDivisionError):
        different_sums(ours, halved(theirs), places)
    with pytest.raises(ZeroDivisionError):
        different_sums(ours, read(), places)
    narrow = replace(read(), taps=read().taps[:, :3])
    with pytest.raises(ZeroDivisionError):
        different_sums(read(), narrow, places)
    twice = replace(ours, starts=(ours.starts[0],) * 6)
    with pytest.raises(ZeroDivisionError):
        different_sums(twice, ours, places)
    with pytest.raises(ZeroDivisionError):
        different_sums(ours, twice, places)


def test_taps_at_places_are_in_their_order_and_zero_elsewhere():
    reading = read()
    assert single(reading)
    assert not single(halved(reading))
    assert not single(replace(reading, starts=(reading.starts[0],) * 6))
    found = at_places(reading, (reading.starts[3], (9, 9), reading.starts[0]))
    assert torch.equal(found, torch.stack([reading.taps[3], torch.zeros(6, 4), reading.taps[0]]))


def test_places_are_used_by_taps_that_are_not_zero():
    reading = read()
    reading.taps[2] = 0.0
    reading.taps[3, 1] = 0.0
    used = {start for number, start in enumerate(reading.starts) if number != 2}
    assert places_used(reading) == used
    assert places_used(halved(reading)) == used


@pytest.mark.parametrize("groups", [1, 2])
def test_one_number_of_a_sum_is_exact(groups):
    reading = read(groups=groups)
    twice = replace(halved(reading), starts=(reading.starts[0],) * 6)
    whole = replace(reading, starts=(reading.starts[0],) * 6)
    alone = replace(whole, weights=Weights(reading.taps, None, None, groups))
    blocks = torch.stack([torch.block_diag(*tap.unflatten(0, (groups, -1))) for tap in reading.taps]).double()
    for out, inp in ((0, 0), (5, 3), (2, 1), (3, 2)):
        expected = sum(Fraction(x) for x in blocks[:, out, inp].tolist())
        for each in (twice, whole, alone):
            assert entry(each, reading.starts[0], out, inp) == expected
        assert entry(reading, reading.starts[4], out, inp) == Fraction(blocks[4, out, inp].item())
        assert entry(reading, (9, 9), out, inp) == 0
    assert (
        entry(replace(whole, weights=Weights(None, reading.taps + 2.0**-20, None, groups)), reading.starts[0], 0, 0) > 0
    )
