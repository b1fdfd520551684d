"""Inputs that show a difference: each shows what is said of it, no other fault."""

import math
from fractions import Fraction

import pytest
import torch
from equality import planted
from equality.pairs import Net
from equality.planted import image, pair
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Verdict


@pytest.mark.parametrize("channels", [4, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_numbers_of_a_counterexample_are_those_of_the_layers(channels, dtype):
    original = nn.Conv2d(3, channels, (3, 2), padding=1, stride=(1, 2), dtype=dtype)
    converted = conv2attn.convert(original, alpha=3)
    witness = certify(original, converted, input_size=(3, 9, 8), input_range=2.0).counterexamples[0]
    assert witness.image.abs().max() == 2
    conv2attn.set_engine(converted, "dense")
    with torch.no_grad():
        shown = [net(witness.image[None])[0][witness.place].item() for net in (original, converted)]
    assert shown == pytest.approx([witness.original, witness.converted], rel=1e-5)
    assert witness.exceeds
    assert witness.difference > max(0.5, witness.allowed)


def off_by(number, channel, dtype=torch.float32):
    """A layer, and its conversion with one channel off: in its bias, or in a weight by one ulp."""
    original = nn.Conv2d(3, 40, 3, dtype=dtype)
    converted = conv2attn.convert(original)
    if number:
        converted.bias.data[channel] += number
    else:
        planted.ulp(planted.taps(converted), (4, channel, 1))
    return original, converted


@pytest.mark.parametrize("channel", [0, 37])
def test_the_channel_that_is_wrong_is_found_among_many(channel):
    for number in (0.25, 0.0):
        witness = certify(*off_by(number, channel), input_size=(3, 9, 8)).counterexamples[0]
        assert witness.place[0] == channel
        assert witness.exceeds is (number > 0)
        assert (witness.exact is None) is witness.exceeds
    assert certify(*off_by(1e-9, channel, torch.float64), input_size=(3, 9, 8)).counterexamples[0].place[0] == channel


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_a_difference_below_rounding_is_that_of_fractions(groups, mode):
    options = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2), "groups": groups, "padding_mode": mode}
    original = nn.Conv2d(4, 6, (3, 2), **options)
    converted = conv2attn.convert(original)
    planted.rewritten(converted)
    planted.ulp(converted.bias.data, (2,))
    witness = certify(original, converted, input_size=(4, 7, 6)).counterexamples[0]
    assert (witness.place[0], witness.exceeds) == (2, False)
    bias = [Fraction(layer.bias[2].item()) for layer in (converted, original)]
    assert witness.exact == float(bias[0] - bias[1]) > 0


def test_one_ulp_of_a_weight_is_shown_by_one_pixel():
    original = nn.Conv2d(3, 4, 3, bias=False)
    converted = conv2attn.convert(original)
    planted.ulp(planted.taps(converted), (4, 1, 2))
    witness = certify(original, converted, input_size=(3, 9, 8)).counterexamples[0]
    (pixel,) = witness.image[witness.image != 0].tolist()
    before, after = original.weight[1, 2, 1, 1].item(), planted.taps(converted)[4, 1, 2].item()
    assert witness.exact == float((Fraction(after) - Fraction(before)) * Fraction(pixel)) != 0
    assert witness.place[0] == 1


def test_no_more_layers_are_shown_than_a_reader_looks_at():
    original = nn.Sequential(*(nn.Conv2d(2, 2, 1) for _ in range(6)))
    converted = conv2attn.convert(original)
    for layer in list(converted)[1:]:
        layer.bias.data += 1
    report = certify(original, converted, input_size=(2, 4, 5))
    assert [each.layer for each in report.counterexamples] == ["1", "2", "3", "4", "(network)"]


# Rounding is never shown as a difference.


def test_rounding_alone_is_no_counterexample():
    original, converted = pair(planted.on("border", planted.cancelling))
    report = certify(original, converted, images=image())
    assert report.outputs.max_difference > 0
    assert report.counterexamples == ()
    layer = nn.Conv2d(30, 4, 3)  # a leak above the roundoff, and too small to be seen
    report = certify(layer, conv2attn.convert(layer, alpha=16), input_size=(30, 9, 8))
    assert report.verdict is Verdict.REFUTED
    assert all(each.exceeds for each in report.counterexamples)


def test_where_a_layer_may_leak_a_difference_below_rounding_shows_nothing():
    original = nn.Conv2d(3, 4, 3)
    converted = conv2attn.convert(original, alpha=46)
    planted.ulp(planted.taps(converted), (4, 1, 2))
    report = certify(original, converted, input_size=(3, 9, 8))
    assert (report.verdict, report.counterexamples) == (Verdict.REFUTED, ())


def test_after_an_overflow_in_the_first_an_infinity_of_the_second_shows_nothing():
    original = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1))
    spoilt = conv2attn.convert(original)
    spoilt.register_forward_hook(lambda module, args, output: output * torch.inf)
    quiet = torch.rand(1, 2, 5, 6)
    assert {each.part for each in certify(original, spoilt, images=quiet).counterexamples} == {"outputs"}
    loud = certify(original, spoilt, images=quiet * 3e38)
    (outputs,) = [each for each in loud.between if each.part == "outputs"]
    assert outputs.verdict is Verdict.UNDECIDED


# Between the layers.


def test_the_image_that_differs_most_is_shown_with_what_both_networks_return():
    torch.manual_seed(0)
    original = nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 3), nn.Flatten(), nn.Linear(210, 7))
    converted = conv2attn.convert(original)
    converted[1] = nn.GELU()
    given = torch.cat([0.01 * image(), image(2)[:1], 0.02 * image()])
    (witness,) = certify(original, converted, images=given).counterexamples
    assert (witness.index, [*witness.axes], witness.count) == (2, ["class"], 7)
    assert torch.equal(witness.image, given[2])
    with torch.no_grad():
        assert witness.original == pytest.approx(original(given[2:3])[witness.place].item(), rel=1e-5)
        assert abs(witness.converted - converted(given[2:3])[witness.place].item()) < 1e-5


def several(net, images):
    """Takes two images and no fewer."""
    if len(images) < 2:
        raise RuntimeError("too few")
    return net.layer(images).sum((2, 3))


def test_a_network_that_takes_no_single_image_is_refuted_all_the_same():
    original = Net(several, layer=nn.Conv2d(4, 5, 3))
    converted = conv2attn.convert(original)
    converted.register_forward_hook(lambda module, args, output: output * math.nan)
    report = certify(original, converted, images=image())
    assert report.verdict is Verdict.REFUTED
