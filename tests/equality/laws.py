"""Laws of certificates: what differs never holds, what is the same is proved, and a guess is never a proof."""

import copy
import functools

import pytest
import torch
from equality.cases import ERRORS, SAME, TWINS, Autocast, Branching, ByValue, Functional, made, parametrised, recurrent

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

IMAGES = torch.randn(2, 4, 14, 11, generator=torch.Generator().manual_seed(3))


@functools.cache
def original_of(kind):
    return made(kind)


def pair_of(case):
    kind, change = case
    original = original_of(kind)
    converted = conv2attn.convert(original, example_input=IMAGES)
    change(converted)
    return original, converted


ELSEWHERE = {
    "a bias that is left out": "it was zero",
    "a branch that small images do not take": "the claim is of one size",
    "code for certain batch sizes": "the claim is of one batch",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_differs_elsewhere_is_one_formula_at_the_size_that_was_run(name):
    report = certify(*pair_of(ERRORS[name]), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), report.to_text()
    assert "of 1x4x14x11, without gradients, in evaluation mode" in report.claim
    assert any("the network's own code does the same at every call" in line for line in report.assumptions)


@pytest.mark.parametrize("name", [name for name in ERRORS if name not in ELSEWHERE])
def test_a_changed_context_never_holds(name):
    report = certify(*pair_of(ERRORS[name]), images=IMAGES)
    assert report.verdict in (Verdict.REFUTED, Verdict.UNDECIDED), report.to_text()
    assert all(finding.sentence for finding in report.between if finding.verdict is not Verdict.HOLDS)


READ = ["what dropout reads", "slope of an activation", "statistics of the batch", "arguments of a block"]


@pytest.mark.parametrize("name", SAME)
def test_the_same_function_by_other_objects_is_not_refuted(name):
    report = certify(*pair_of(SAME[name]), images=IMAGES)
    if name in ("channels last", "a global hook on both"):  # weights in other places; hooks of no network
        assert report.verdict is Verdict.UNDECIDED, report.to_text()
    else:
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), report.to_text()
        assert "for all finite inputs of 1x4x14x11" in report.claim


@pytest.mark.parametrize("name", TWINS)
def test_a_harmless_twin_is_proved(name):
    report = certify(*pair_of(TWINS[name]), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize("name", [name for name in TWINS if name != "a recurrent layer"])
def test_a_harmless_twin_is_proved_on_its_device(name, device):
    """The imitated device has no fused cell of LSTM."""
    pair = [copy.deepcopy(network).to(device) for network in pair_of(TWINS[name])]
    report = certify(*pair, images=IMAGES.to(device))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize("kind", [Functional, Branching, Autocast, recurrent, parametrised])
def test_a_network_is_proved_to_be_itself_and_its_copy(kind):
    network = original_of(kind)
    for second in (network, copy.deepcopy(network)):
        report = certify(network, second, images=IMAGES)
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


def test_a_branch_on_values_is_the_same_code():
    original = made(ByValue)
    report = certify(original, conv2attn.convert(original), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED)


def test_the_users_networks_are_as_they_were():
    original = made(Functional)
    converted = conv2attn.convert(original, example_input=IMAGES)
    before = [{name: dict(vars(module)) for name, module in side.named_modules()} for side in (original, converted)]
    certify(original, converted, images=IMAGES)
    after = [{name: dict(vars(module)) for name, module in side.named_modules()} for side in (original, converted)]
    for first, second in zip(before, after, strict=True):
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].keys() == second[name].keys(), name
            for key, held in first[name].items():
                assert held is second[name][key] or held == second[name][key], (name, key)
