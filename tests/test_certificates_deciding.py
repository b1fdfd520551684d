"""What a tolerance is decided by, in single steps: findings word for word, and a layer's bounds number for number."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.domain import SLACK, Carried
from conv2attn.equivalence.readings.finding import holds, refuted, undecided
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.equivalence.tolerance import absolute_blocks, claim, judge_layer, judge_network, layer_rule
from conv2attn.verdicts import Strength

BOUNDED = holds("tolerance", Strength.BOUNDED)


def test_the_claim_names_tolerance_size_and_range():
    told = "the outputs differ by at most 0.25 for all finite inputs 3x9x8 within +-2"
    assert claim(0.25, 2.0, (3, 9, 8)) == told


def shown(difference):
    return SimpleNamespace(difference=difference, in_words=lambda: "an input")


@pytest.mark.parametrize(
    ("bound", "witness", "finding"),
    [
        (0.5, None, BOUNDED),
        (0.5, shown(0.5), BOUNDED),
        (0.75, None, undecided("tolerance", "C2A409", "0.75 is proved; no input found shows more than 0.5")),
        (0.75, shown(0.5), undecided("tolerance", "C2A409", "0.75 is proved; no input found shows more than 0.5")),
        (None, None, undecided("tolerance", "C2A409", "nothing is proved; no input found shows more than 0.5")),
        (0.75, shown(0.625), refuted("tolerance", "C2A409", "the difference is 0.625: an input")),
        (None, shown(torch.nan), refuted("tolerance", "C2A409", "the difference is nan: an input")),
        (torch.nan, None, undecided("tolerance", "C2A409", "nan is proved; no input found shows more than 0.5")),
    ],
)
def test_a_layer_is_decided_by_its_bound_or_by_an_input(bound, witness, finding):
    assert judge_layer(bound, 0.5, witness) == finding


def outputs(bound, difference):
    return SimpleNamespace(bound=bound, max_difference=difference, images="3 images")


PASSED = "and no difference above 0.5 was measured"


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        (None, undecided("tolerance", "C2A409", "the outputs cannot be compared")),
        (outputs(0.5, 0.5), BOUNDED),
        (outputs(None, 0.625), refuted("tolerance", "C2A409", "on 3 images they differ by 0.625")),
        (outputs(0.25, torch.nan), refuted("tolerance", "C2A409", "on 3 images they differ by nan")),
        (outputs(0.75, 0.5), undecided("tolerance", "C2A409", f"the propagated bound is 0.75, {PASSED}")),
        (outputs(None, 0.5), undecided("tolerance", "C2A409", f"no bound passes there, {PASSED}")),
        (outputs(torch.nan, 0.5), undecided("tolerance", "C2A409", f"the propagated bound is nan, {PASSED}")),
    ],
)
def test_a_network_is_decided_by_its_bound_or_by_what_is_measured(given, finding):
    assert judge_network(given, 0.5, "there") == finding


def pair(**kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        original = nn.Conv2d(2, 3, (2, 3), **kwargs)
    return tuple(map(reading_of, (original, conv2attn.convert(original, alpha=9.0))))


@pytest.mark.parametrize("bias", [True, False])
def test_a_pair_of_layers_carries_a_bound_as_it_says(bias):
    readings = pair(bias=bias)
    size, error = (torch.tensor(x, dtype=torch.float64).reshape(1, 2, 1, 1) for x in ([2.0, 3.0], [0.5, 0.25]))
    found = layer_rule(readings, (7, 8))(Carried(size, error))
    blocks = (absolute_blocks(readings[0]) * SLACK)[0]
    own = torch.tensor(difference_bounds(*readings, 3.25 * SLACK, (7, 8)), dtype=torch.float64)
    passed = (blocks @ size.flatten() + (readings[0].weights.bias.double().abs() if bias else 0)) * SLACK
    assert torch.equal(found.size, ((passed + own) * SLACK).detach().reshape(1, 3, 1, 1))
    assert torch.equal(found.error, ((blocks @ error.flatten() * SLACK + own) * SLACK).reshape(1, 3, 1, 1))
    wide = Carried(size.expand(1, 2, 5, 6).clone(), error.expand(1, 2, 5, 6).clone())
    wide.size[0, 1, :2, 3:] = wide.error[0, 1, 2:, :3] = 0.0
    again = layer_rule(readings, (7, 8))(wide)
    assert torch.equal(again.size, found.size)
    assert torch.equal(again.error, found.error)


@pytest.mark.parametrize(("kind", "sides"), [(nn.Conv1d, (7,)), (nn.Conv3d, (5, 6, 7))])
def test_grids_may_have_one_axis_or_three(kind, sides):
    layer = kind(2, 3, 1)
    ones = torch.ones(1, 2, *(1 for _ in sides), dtype=torch.float64)
    found = layer_rule((reading_of(layer), reading_of(layer)), sides)(Carried(ones, ones))
    expected = layer.weight.double().abs().flatten(1).sum(1)
    assert found.error.shape == (1, 3, *(1 for _ in sides))
    torch.testing.assert_close(found.error.flatten(), expected, rtol=1e-5, atol=0)


def test_weights_without_a_rounding_bound_have_an_infinite_one(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.tolerance.difference_bounds", lambda *given: None)
    found = layer_rule(pair(), (7, 8))(Carried(*(torch.ones(1, 2, 1, 1, dtype=torch.float64) for _ in "se")))
    assert found.size.isinf().all()
    assert found.error.isinf().all()


def test_blocks_are_the_same_whichever_way_they_are_summed():
    original, converted = pair()
    weight = original.taps.double().abs().sum(0)
    assert torch.equal(absolute_blocks(original), weight[None])
    assert torch.equal(absolute_blocks(converted), weight[None])
    grouped = reading_of(nn.Conv2d(4, 6, 3, groups=2))
    assert torch.equal(absolute_blocks(grouped), grouped.taps.double().abs().sum(0).unflatten(0, (2, -1)))


def test_heads_at_one_place_are_added_before_their_magnitudes_are_taken():
    layer = conv2attn.convert(nn.Conv2d(2, 3, (1, 2)))
    with torch.no_grad():
        layer.encoding.center[1] = layer.encoding.center[0]
    reading = reading_of(layer)
    assert len(set(reading.starts)) == 1
    summed = reading.taps.double().sum(0).abs()
    assert torch.equal(absolute_blocks(reading), summed[None])
    assert not torch.equal(summed, reading.taps.double().abs().sum(0))
