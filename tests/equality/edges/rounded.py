"""Networks that are one but for the rounding of their weights hold as *rounded*; of others the place is printed."""

import copy
import json

import pytest
import torch
from equality.pairs import After, Net
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import conv2attn
from conv2attn.equality import certify, recheck_certificate
from conv2attn.verdicts import Strength, Verdict

SIZE = (3, 9, 7)


def network(eps=1e-5):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps), nn.ReLU(), nn.Conv2d(8, 4, 3))
        net[1].running_mean.normal_()
        net[1].running_var.uniform_(0.5, 2)
    return net.eval()


def folded(net):
    done = copy.deepcopy(net)
    done[0], done[1] = fuse_conv_bn_eval(net[0], net[1]), nn.Identity()
    return done


def test_a_change_of_rounding_alone_holds_as_rounded():
    report = certify(network(), folded(network()), input_size=SIZE)
    assert (report.verdict, report.strength, report.exit_code) == (Verdict.HOLDS, Strength.ROUNDED, 0), report.to_text()
    assert report.claim.startswith("on inputs of 2x3x9x7, with these integers, booleans, Python numbers and masks")
    assert "(8 allowed). Not covered: stored numbers lost beside larger ones" in report.claim
    assert "inputs at which code divides by zero, state kept from one call to the next" in report.claim
    assert "A sample, not a proof." in report.claim
    assert not report.counterexamples
    assert {row.verdict for row in report.rows} == {Verdict.HOLDS}
    assert "weights off" not in report.to_text()


def test_a_wrong_epsilon_never_holds_and_is_named_beside_the_verdict():
    report = certify(network(), network(1.1e-5), input_size=SIZE)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert report.place.what == "its eps is 1.1e-05, not 1e-05"
    assert report.place.second == "1 (BatchNorm2d)"
    assert "1 (BatchNorm2d): its eps is" in " ".join(report.to_text(200).splitlines()[1:2])
    assert json.loads(report.to_json())["place"]["second"] == "1 (BatchNorm2d)"


@pytest.mark.parametrize("packed", [False, True])
def test_a_refuted_network_has_its_place_by_the_callers_names(packed):
    other = network()
    other[3].bias.data[2] += 1
    second = Net(lambda net, x: {"logits": net.inner(x)}, inner=other) if packed else other
    report = certify(network(), second, input_size=SIZE)
    assert report.verdict is Verdict.REFUTED
    assert report.place.second.startswith("inner.3 (Conv2d), " if packed else "3 (Conv2d)")
    assert report.place.what == "its bias differs most at output channel 2"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_images_that_refute_are_followed_as_they_are(monkeypatch, count):
    """Networks that differ on them are not called once more with more images or fewer."""
    asked = []
    monkeypatch.setattr("conv2attn.equality.comparison.operators_called", lambda *inputs: asked.append(inputs))
    other = network()
    other[3].bias.data[2] += 1
    report = certify(network(), other, torch.rand(count, *SIZE, generator=torch.Generator().manual_seed(0)))
    assert (report.verdict, bool(asked)) == (Verdict.REFUTED, count > 2)
    assert report.place.what == "its bias differs most at output channel 2"


def test_an_operator_without_a_rule_is_named():
    def running(net, x):
        x = net.inner(x)
        return x.cummax(-1).values * 2 if net.late else (x * 2).cummax(-1).values

    networks = (Net(running, inner=network(), late=late) for late in (True, False))
    report = certify(*networks, input_size=SIZE)
    assert report.verdict is Verdict.UNDECIDED
    assert "sections are not compared: no rule for cummax" in report.to_text(300)


def test_a_rounded_certificate_is_derived_anew_by_recheck():
    first, second = network(), folded(network())
    report = certify(first, second, input_size=SIZE)
    body = json.loads(report.to_json())
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is Verdict.HOLDS
    body["rounded"]["units"] = 0.0
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is not Verdict.HOLDS


def scaled(factor):
    return After(lambda net, x: x * net.factor, factor=factor)


def test_the_place_is_named_in_a_conversion_too():
    report = certify(scaled(2.0), conv2attn.convert(scaled(2.5)), input_size=SIZE)
    assert report.verdict is Verdict.REFUTED
    assert "its other is 2.5, not 2.0" in report.place.in_words()
