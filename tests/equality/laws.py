"""Laws of certificates: what differs never holds, what is the same is proved, and a guess is never a proof."""

import copy
import functools

import pytest
import torch
from equality.cases import (
    ERRORS,
    SAME,
    TWINS,
    Functional,
    autocast,
    branching,
    by_value,
    forget_hooks_on_all_modules,
    made,
    parametrised,
    recurrent,
)
from equality.reports import at_most_rounded
from imitated_device import has_float64

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

IMAGES = torch.randn(2, 4, 14, 11, generator=torch.Generator().manual_seed(3))


@functools.cache
def original_of(kind):
    return made(kind)


def pair_of(case, device=IMAGES.device):
    """A network and its conversion with something changed; both are changed where they are."""
    kind, change = case
    original = original_of(kind) if device.type == "cpu" else made(kind).to(device)
    converted = conv2attn.convert(original, example_input=IMAGES.to(device))
    change(converted)
    return original, converted


@functools.cache
def found_on_the_cpu(name):
    """The report on a planted error on the CPU."""
    report = certify(*pair_of(ERRORS[name]), images=IMAGES)
    forget_hooks_on_all_modules()
    return report


ELSEWHERE = {
    "a bias that is left out": "it was zero",
    "a branch that small images do not take": "the claim is of one size",
    "a hook that knows the module by its identity": "copies run: looking_code.py asks for the premise",
    "code for certain batch sizes": "the claim is of one batch",
}


def of_one_size(device):
    """How a claim begins that both are one formula."""
    place = "" if device.type == "cpu" else ", run on the CPU"
    return f"for all finite inputs of 2x4x14x11, without gradients, in evaluation mode{place}, but for"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_differs_elsewhere_is_one_formula_at_the_size_that_was_run(name, device):
    report = certify(*pair_of(ERRORS[name], device), images=IMAGES.to(device))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), report.to_text()
    assert of_one_size(device) in report.claim
    assert any("the network's own code does the same at every call" in line for line in report.assumptions)


@pytest.mark.rotated
@pytest.mark.parametrize("name", [name for name in ERRORS if name not in ELSEWHERE])
def test_a_changed_context_never_holds_but_for_rounding(name):
    report = found_on_the_cpu(name)
    assert at_most_rounded(report), report.to_text()
    assert all(finding.sentence for finding in report.between if finding.verdict is not Verdict.HOLDS)


ON_DEVICES = (
    *("running statistics", "dropout in training mode", "a check of values", "a buffer that is not persistent"),
    *("a hook with noise of its own", "an attribute of a parameter", "a recurrent weight", "stride of a function"),
)
"""A weight, a buffer, a mode, a draw, an attribute, an argument and an assertion: what a device could compute apart."""


@pytest.mark.rotated
@pytest.mark.parametrize("name", ON_DEVICES)
def test_a_changed_context_is_judged_on_a_device_as_on_the_cpu(name, device):
    """Where a device has no assertions, a network that asserts does not run."""
    expected, report = found_on_the_cpu(name), certify(*pair_of(ERRORS[name], device), images=IMAGES.to(device))
    if name == "a check of values" and not has_float64(device):
        assert report.verdict is Verdict.REFUTED
        assert "the second network does not run where the first network does" in report.to_text()
    else:
        assert (report.verdict, report.strength) == (expected.verdict, expected.strength), report.to_text()


@pytest.mark.rotated
@pytest.mark.parametrize("name", SAME)
def test_the_same_function_by_other_objects_is_not_refuted(name, device):
    report = certify(*pair_of(SAME[name], device), images=IMAGES.to(device))
    if name in ("channels last", "a global hook on both"):  # weights in other places; hooks of no network
        assert report.verdict is not Verdict.REFUTED, report.to_text()
        assert at_most_rounded(report)
    else:
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), report.to_text()
        assert of_one_size(device) in report.claim


@pytest.mark.parametrize("name", TWINS)
def test_a_harmless_twin_is_proved(name, device):
    report = certify(*pair_of(TWINS[name], device), images=IMAGES.to(device))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize("kind", [Functional, branching, autocast, recurrent, parametrised])
def test_a_network_is_proved_to_be_itself_and_its_copy(kind):
    network = original_of(kind)
    for second in (network, copy.deepcopy(network)):
        report = certify(network, second, images=IMAGES)
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


def test_a_branch_on_values_is_the_same_code():
    original = made(by_value)
    report = certify(original, conv2attn.convert(original), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED)
