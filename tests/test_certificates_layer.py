"""The certificate of one layer, from readings made by hand: what each part decides, and what was measured."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention.probes import SPIKE
from conv2attn.equivalence.computed.arithmetic import padding_copies_middle, spread_of
from conv2attn.equivalence.computed.measure import Measured
from conv2attn.equivalence.computed.overflow import overflow
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.layer import LayerCertificate, certify_layer, judge_measured, strength_of
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, unsupported
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.verdicts import Strength, Verdict

SAMPLED = holds("measured", Strength.SAMPLED)


def layer(**kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Conv2d(3, 4, 3, **{"padding": 1, **kwargs})


def seen(**changes):
    """Two calls on images of 5 by 7 pixels, without any difference."""
    told = {
        "max_error": 0.0,
        "input_range": 2.0,
        "sides": (5, 7),
        "grid": (5, 7),
        "calls": 2,
        "like": torch.empty(0),
        "shape": (2, 3, 5, 7),
    }
    return Measured(**{**told, **changes})


@cache
def original():
    return reading_of(layer())


@cache
def converted():
    return reading_of(conv2attn.convert(layer()))


@cache
def soft():
    return reading_of(conv2attn.convert(layer(), alpha=3))


@cache
def bounds():
    return tuple(difference_bounds(original(), converted(), 2.0, (7, 9)))


def test_a_layer_that_is_the_same_map_is_proved_and_bounded():
    found = certify_layer(original(), converted(), seen(max_error=1e-6))
    assert found == LayerCertificate(
        (holds("geometry"), holds("weights"), holds("leak"), SAMPLED), 0.0, 2.0, 1e-6, bounds()
    )
    assert found.bound == max(bounds()) > min(bounds())
    assert certify_layer(original(), converted(), seen(max_error=found.bound)).findings[-1] == SAMPLED
    assert strength_of(found.findings) is Strength.PROVED
    assert LayerCertificate((), 0.0) == LayerCertificate((), 0.0, None, None, ())
    assert LayerCertificate((), 0.0).bound is None


def test_the_bound_is_for_the_padded_sides():
    found = certify_layer(original(), soft(), seen())
    assert found.bounds == tuple(difference_bounds(original(), soft(), 2.0, (7, 9)))
    assert found.leak > 0.1
    assert [finding.part for finding in found.findings] == ["geometry", "weights", "leak", "measured"]
    assert found.findings[2].verdict is Verdict.REFUTED


def test_unless_exactly_only_the_geometry_decides():
    assert [f.part for f in certify_layer(original(), soft(), seen(), exactly=False).findings] == [
        "geometry",
        "measured",
    ]
    elsewhere = replace(converted(), channels=(3, 5))
    for exactly in (True, False):
        found = certify_layer(original(), elsewhere, seen(), exactly=exactly)
        assert found.findings[0].verdict is Verdict.REFUTED
        assert found.findings[-1] == SAMPLED
        assert (found.bounds, found.bound) == ((), None)
    other = reading_of(layer().double())
    found = certify_layer(original(), other, seen(), exactly=False)
    assert [finding.part for finding in found.findings] == ["weights", "measured"]


def test_without_a_call_nothing_is_measured():
    found = certify_layer(original(), converted(), seen(calls=0))
    assert found == LayerCertificate((holds("geometry"), holds("weights"), holds("leak")), 0.0)


def test_where_there_is_no_map_nothing_is_measured():
    endless = replace(original(), weights=replace(original().weights, bias=torch.full((4,), torch.nan)))
    found = certify_layer(endless, converted(), seen())
    assert [finding.part for finding in found.findings] == ["support", "leak"]
    assert found.max_error is None


def test_another_geometry_has_no_bound():
    moved = replace(converted(), starts=(*converted().starts[:-1], (1, 0)))
    found = certify_layer(original(), moved, seen(max_error=1.0))
    assert found.findings[0].verdict is Verdict.REFUTED
    assert (found.findings[-1], found.bounds, found.max_error) == (SAMPLED, (), 1.0)


def test_other_weights_at_the_same_places_are_bounded():
    other = replace(converted(), weights=replace(converted().weights, bias=converted().weights.bias + 1))
    found = certify_layer(original(), other, seen(max_error=1.0))
    assert [finding.verdict for finding in found.findings[:2]] == [Verdict.HOLDS, Verdict.REFUTED]
    assert found.bounds == tuple(difference_bounds(original(), other, 2.0, (7, 9)))
    assert found.bound > 1


def test_a_layer_that_is_no_direct_sum_has_no_bound():
    found = certify_layer(original(), converted(), seen(spread=0.5, max_error=1e-6))
    assert (found.bounds, found.findings[-1].verdict, found.findings[-1].code) == ((), Verdict.HOLDS, "C2A404")
    unknown = certify_layer(original(), converted(), seen(spread=math.nan, max_error=1e-6))
    assert unknown.bounds == bounds()


def test_a_layer_that_overflows_has_no_bound():
    found = certify_layer(original(), converted(), seen(input_range=3e38))
    assert (found.bounds, found.findings[-1].verdict) == ((), Verdict.UNDECIDED)
    assert found.findings[-1].sentence == overflow(original(), 3e38) != ""


def test_without_output_channels_any_error_is_within_the_bound_of_zero(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.layer.difference_bounds", lambda *args: [])
    found = certify_layer(original(), converted(), seen())
    assert (found.findings[-1], found.bounds) == (SAMPLED, ())
    assert certify_layer(original(), converted(), seen(max_error=0.5)).findings[-1].verdict is Verdict.REFUTED


def test_where_no_bound_is_known_the_same_map_is_undecided(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.layer.difference_bounds", lambda *args: None)
    found = certify_layer(original(), converted(), seen())
    assert found.findings[-1].verdict is Verdict.UNDECIDED
    assert found.findings[-1].sentence == "no bound is known to hold the measured difference against"


TOO_LARGE = "|error| 2 was measured above the bound 1"
FAULTY = "from its own formula on this device, so it cannot tell what is right"
JUDGED = {
    "within": (seen(max_error=1.0), 1.0, True, "", SAMPLED),
    "no bound, another map": (seen(max_error=1.0), None, False, "", SAMPLED),
    "no bound, the same map": (
        *(seen(max_error=1.0), None, True, "", Verdict.UNDECIDED),
        "no bound is known to hold the measured difference against",
    ),
    "above": (seen(max_error=2.0), 1.0, True, "", Verdict.REFUTED, TOO_LARGE),
    "above, seen on nothing": (seen(max_error=2.0, like=None), 1.0, True, "", Verdict.REFUTED, TOO_LARGE),
    "above by half of what the original is off": (
        seen(max_error=2.0, departure=0.5),
        1.0,
        True,
        "",
        Verdict.REFUTED,
        TOO_LARGE,
    ),
    "above by what the original is off": (
        *(seen(max_error=2.0, departure=0.51), 1.0, True, "", Verdict.UNDECIDED),
        f"{TOO_LARGE}: the original itself is off by 0.51 {FAULTY}",
    ),
    "above where the original is NaN": (
        *(seen(max_error=2.0, departure=math.nan), 1.0, True, "", Verdict.UNDECIDED),
        f"{TOO_LARGE}: the original itself is off by nan {FAULTY}",
    ),
    "the first is not finite": (
        *(seen(max_error=math.nan), 1.0, True, "", Verdict.UNDECIDED),
        "the original's output is not finite on the inputs met",
    ),
    "the second is not finite": (
        *(seen(max_error=math.inf), None, False, "", Verdict.REFUTED),
        "on an input on which the original runs, an output is not finite",
    ),
    "the second has trouble": (
        *(seen(max_error=math.inf, trouble="it fails"), 1.0, True, "beyond", Verdict.REFUTED),
        "on an input on which the original runs, it fails",
    ),
    "overflow": (seen(max_error=math.inf), None, True, "beyond", Verdict.UNDECIDED, "beyond"),
    "overflow within": (seen(), 1.0, True, "beyond", Verdict.UNDECIDED, "beyond"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_was_measured_is_held_against_the_bound(case):
    met, bound, same, beyond, verdict, *told = JUDGED[case]
    found = judge_measured(met, bound, same, beyond) if beyond else judge_measured(met, bound, same)
    if told:
        assert found == Finding("measured", verdict, Strength.PROVED, "C2A404", told[0])
    else:
        assert found == verdict


def test_a_trace_of_winograd_is_told_and_sampled():
    found = judge_measured(seen(max_error=0.9, spread=0.25), 1.0, same=True)
    told = f"the original is no direct sum on this device, so no bound is given: a pixel of {SPIKE:g} changes outputs"
    assert found == Finding("measured", Verdict.HOLDS, Strength.SAMPLED, "C2A404", f"{told} that do not see it by 0.25")
    assert judge_measured(seen(spread=0.0), None, same=False) == SAMPLED


def test_where_convolutions_are_no_direct_sums_the_bound_refutes_nothing(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.layer.indirect_convolution", lambda image: "a trace")
    found = judge_measured(seen(max_error=2.0), 1.0, same=True)
    assert found == Finding(
        "measured", Verdict.UNDECIDED, Strength.PROVED, "C2A404", f"{TOO_LARGE}, which does not hold here: a trace"
    )


def test_the_weakest_part_is_the_strength_of_a_layer():
    bounded = holds("leak", Strength.BOUNDED)
    assert strength_of((holds("geometry"), bounded, SAMPLED)) is Strength.BOUNDED
    assert strength_of((bounded, holds("geometry"))) is Strength.BOUNDED
    assert strength_of((refuted("weights", "C2A402", "x"),)) is Strength.PROVED
    assert strength_of((unsupported("C2A101", "x"), SAMPLED)) is Strength.PROVED
    assert strength_of((SAMPLED,)) is Strength.SAMPLED
    assert strength_of(()) is Strength.SAMPLED


def reach(monkeypatch, module, **changes):
    """Where `spread_of` expects a spike to be seen, and how it asks."""
    asked = []

    def spike(*arguments):
        asked.append(arguments)
        return 0.25

    monkeypatch.setattr("conv2attn.equivalence.computed.arithmetic.spread_of_spike", spike)
    found = spread_of(module, reading_of(module), seen(**changes))
    return found, asked


@pytest.mark.parametrize(
    ("settings", "around"),
    [
        ({}, (slice(1, 5), slice(2, 6))),
        ({"padding": 0}, (slice(0, 4), slice(1, 5))),
        ({"padding": 0, "stride": 2}, (slice(0, 3), slice(0, 3))),
        ({"padding": 9}, (slice(9, 13), slice(10, 14))),
        ({"padding": 0, "dilation": (1, 3)}, (slice(0, 4), slice(0, 5))),
        ({"padding": 0, "dilation": (2, 3), "stride": (1, 3)}, (slice(0, 4), slice(0, 3))),
    ],
)
def test_a_spike_is_put_where_a_layer_sees_it(monkeypatch, settings, around):
    module = layer(**settings)
    found, [(asked, shape, dtype, device, where)] = reach(monkeypatch, module)
    assert (found, shape, dtype, device) == (0.25, torch.Size((2, 3, 5, 7)), torch.float32, "cpu")
    assert type(asked.args[0]) is type(module)
    assert where == around
    with torch.no_grad():
        image, spike = torch.zeros(1, 3, 5, 7), torch.zeros(1, 3, 5, 7)
        spike[:, :, 2, 3] = 1.0
        changed = (module(spike) - module(image)).abs().sum((0, 1))
    changed[where] = 0
    assert not changed.any()


def test_a_transposed_layer_sees_a_spike_where_it_is_spread(monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.ConvTranspose2d(3, 4, 3, stride=(2, 3))
    _, [(*_, where)] = reach(monkeypatch, module)
    assert where == (slice(4, 8), slice(9, 13))


def test_a_spike_that_no_output_sees_leaves_a_trace_in_none(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "conv2attn.equivalence.computed.arithmetic.spread_of_spike", lambda *arguments: asked.append(arguments) or 0.0
    )
    spread_of(layer(), replace(original(), starts=((9, 0), (8, 1))), seen())
    assert asked[0][-1] == (slice(0, 0), slice(2, 5))


@pytest.mark.parametrize("changes", [{"like": None}, {"shape": (3, 5, 7)}, {"shape": (1, 2, 3, 5, 7)}])
def test_where_nothing_was_met_or_not_in_a_batch_no_spike_is_put(monkeypatch, changes):
    assert reach(monkeypatch, layer(), **changes) == (0.0, [])


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("before", "after", "sides", "may"),
    [
        ((1, 1), (1, 1), (5, 7), False),
        ((2, 1), (1, 1), (5, 7), True),
        ((1, 1), (1, 3), (5, 7), True),
        ((1, 2), (1, 2), (5, 7), False),
        ((1, 1), (1, 1), (4, 7), True),
        ((0, 1), (0, 1), (2, 7), True),
        ((0, 1), (0, 1), (3, 7), False),
        ((1, 1), (1, 1), (6, 7), False),
        ((2, 1), (1, 1), (6, 7), True),
    ],
)
def test_padding_copies_the_middle_of_small_images_only(mode, before, after, sides, may):
    reading = replace(original(), padding=replace(original().padding, before=before, after=after, mode=mode))
    assert padding_copies_middle(reading, sides) is (may and mode != "zeros")


def test_a_spike_that_the_padding_may_copy_is_not_put(monkeypatch):
    module = layer(padding_mode="replicate")
    assert reach(monkeypatch, module, sides=(2, 7), shape=(2, 3, 2, 7)) == (0.0, [])
    assert reach(monkeypatch, module)[0] == 0.25
