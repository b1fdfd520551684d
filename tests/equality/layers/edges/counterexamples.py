"""What shows a difference: an image on which both networks differ, and the numbers of a layer that are off."""

import math
from fractions import Fraction

import pytest
import torch
from equality import planted
from equality.pairs import Net, row_of
from equality.planted import image, pair
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Verdict


@pytest.mark.parametrize("channels", [4, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_numbers_of_a_counterexample_are_those_of_the_networks(channels, dtype):
    original = nn.Conv2d(3, channels, (3, 2), padding=1, stride=(1, 2), dtype=dtype)
    converted = conv2attn.convert(original, alpha=3)
    (witness,) = certify(original, converted, input_size=(3, 9, 8), input_range=2.0).counterexamples
    with torch.no_grad():
        shown = [net(witness.image[None])[witness.gap.place].item() for net in (original, converted)]
    assert shown == pytest.approx([witness.gap.original, witness.gap.converted], rel=1e-5)
    assert witness.gap.difference > max(1e-3, witness.allowed)


def weights_finding(original, converted):
    """The sentence on the weights of a layer, which is refuted."""
    row = row_of(original, converted)
    assert row.verdict is Verdict.REFUTED
    return row.part("weights").sentence


@pytest.mark.parametrize("channel", [0, 37])
@pytest.mark.parametrize("number", [0.25, 0.0, 1e-9])
def test_the_channel_that_is_wrong_is_named_among_many(channel, number):
    original = nn.Conv2d(3, 40, 3, dtype=torch.float64 if number == 1e-9 else torch.float32)
    converted = conv2attn.convert(original)
    if number:
        converted.bias.data[channel] += number
    else:
        planted.ulp(planted.taps(converted), (4, channel, 1))
    sentence = weights_finding(original, converted)
    assert f"output channel {channel}" in sentence
    assert sentence.startswith("1 bias off" if number else "1 weight off")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_a_difference_below_rounding_is_told_with_both_numbers(groups, mode):
    options = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2), "groups": groups, "padding_mode": mode}
    original = nn.Conv2d(4, 6, (3, 2), **options)
    for change in (planted.rewritten, planted.factored):
        converted = conv2attn.convert(original)
        change(converted)
        planted.ulp(converted.bias.data, (2,))
        sentence = weights_finding(original, converted)
        assert sentence.endswith(f"channel 2: {converted.bias[2].item()!r}, not {original.bias[2].item()!r}")
    converted = conv2attn.convert(original)
    planted.ulp(planted.taps(converted), (2, 4, 1))
    after, before = planted.taps(converted)[2, 4, 1].item(), original.weight[4, 1, 1, 0].item()
    numbers = f"{after!r}, not {before!r} (off by {float(Fraction(after) - Fraction(before)):.3g})"
    channel = 1 + 2 * (groups == 2)  # the fifth output is of the second group, whose inputs are the last two
    named = weights_finding(original, converted)
    assert named.endswith(f"output channel 4, input channel {channel}: {numbers}")


# Rounding is never shown as a difference.


def test_rounding_alone_is_no_counterexample():
    original, converted = pair(planted.on("border", planted.cancelling))
    report = certify(original, converted, images=image())
    assert report.outputs.max_difference > 0
    assert report.counterexamples == ()
    layer = nn.Conv2d(30, 4, 3)  # a leak above the roundoff, and too small to be seen
    report = certify(layer, conv2attn.convert(layer, alpha=16), input_size=(30, 9, 8))
    assert (report.verdict, report.counterexamples) == (Verdict.REFUTED, ())


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
    assert len(certify(original, spoilt, images=quiet).counterexamples) == 1
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
    assert (witness.index, [*witness.gap.axes], witness.gap.count) == (2, ["image", "class"], 7)
    assert torch.equal(witness.image, given[2])
    with torch.no_grad():
        assert witness.gap.original == pytest.approx(original(given[2:3])[witness.gap.place].item(), rel=1e-5)
        assert abs(witness.gap.converted - converted(given[2:3])[witness.gap.place].item()) < 1e-5


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
