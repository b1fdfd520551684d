"""What a run depends on beside its input: sizes, gradient modes, autocast, control flow, chance, and odd shapes."""

import math

import pytest
import torch
from equality.pairs import After, Net
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

SIZE = (3, 8, 10)


def ending(code):
    """A convolution, and code on what it returns."""
    return After(lambda net, y: code(y), channels=(3, 3))


ELSEWHERE = {
    "a size that is an int": lambda y: y * 2 if isinstance(y.shape[2], int) and y.shape[2] > 100 else y,
    "inference mode": lambda y: y * 2 if torch.is_inference_mode_enabled() else y,
    "gradients": lambda y: y * 2 if y.requires_grad else y,
    "the gradient mode": lambda y: y * 2 if torch.is_grad_enabled() else y,
    "autocast": lambda y: y * 2 if torch.is_autocast_enabled("cpu") else y,
}


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("way", ELSEWHERE)
def test_code_that_differs_under_other_conditions_is_not_proved_under_them(way, converted):
    first, second = ending(lambda y: y).eval(), ending(ELSEWHERE[way]).eval()
    second = conv2attn.convert(second) if converted else second
    found = certify(first, second, input_size=SIZE)
    assert found.strength is Strength.IDENTIFIED or found.verdict is not Verdict.HOLDS, found.to_text()
    assert "of 2x3x8x10, without gradients, in evaluation mode" in found.claim or not found.claim


@pytest.mark.parametrize("height", [9, 10])
def test_sizes_that_are_rounded_apart_are_apart(height):
    first = ending(lambda y: y[:, :, : math.floor(y.shape[2] * (1 / 3))])
    second = ending(lambda y: y[:, :, : math.floor(y.shape[2] * 0.333333333333333)])
    image = torch.rand(1, 3, height, 4)
    same = first(image).shape == second(image).shape
    assert same is (height == 10)
    found = certify(first, second, images=image)
    assert (found.verdict is Verdict.HOLDS) is same, found.to_text()
    assert not same or f"of 2x3x{height}x4" in found.claim


def test_one_pooling_written_in_two_ways_is_not_refuted():
    first, second = ending(lambda y: F.adaptive_avg_pool2d(y, 1)), ending(lambda y: F.avg_pool2d(y, y.shape[2:]))
    for each in (second, conv2attn.convert(second)):
        found = certify(first, each, input_size=SIZE)
        assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), found.to_text()


FLOW = {
    "cond": lambda y: torch.cond(y.sum() > 0, lambda z: z + 1, lambda z: z - 1, (y,)),
    "while_loop": lambda y: torch.while_loop(
        lambda n, z: n < 3, lambda n, z: (n + 1, z * 2), (torch.tensor(0), y.clone())
    )[1],
}


@pytest.mark.parametrize("way", FLOW)
@pytest.mark.filterwarnings("ignore")
def test_control_flow_ends_in_a_verdict_and_runs_afterwards(way):
    original, image = ending(FLOW[way]).eval(), torch.rand(1, *SIZE)
    converted = conv2attn.convert(original)
    with torch.no_grad():
        before = original(image), converted(image)
    found = certify(original, converted, images=image)
    other = certify(original, ending(lambda y: y * 3), images=image)
    with torch.no_grad():
        after = original(image), converted(image)
    assert all(map(torch.equal, before, after))
    assert found.verdict in (Verdict.HOLDS, Verdict.UNDECIDED), found.to_text()
    assert other.verdict is not Verdict.HOLDS


def test_a_weight_that_depends_on_the_gradient_mode_is_proved_of_itself_alone():
    plain, original = ending(lambda y: y), ending(lambda y: y)
    parametrize.register_parametrization(
        original.conv, "weight", Net(lambda _, weight: weight * 2 if torch.is_grad_enabled() else weight), unsafe=True
    )
    for second in (original, conv2attn.convert(original)):
        found = certify(plain, second, input_size=SIZE)
        assert found.verdict is not Verdict.HOLDS or found.strength is Strength.IDENTIFIED, found.to_text()


@pytest.mark.parametrize("training", [False, True])
def test_a_weight_that_is_drawn_is_not_refuted_against_itself(training):
    original = ending(lambda y: y)
    parametrize.register_parametrization(
        original.conv, "weight", Net(lambda net, weight: F.dropout(weight, 0.5, net.training)), unsafe=True
    )
    original.train(training)
    for second in (original, conv2attn.convert(original)):
        found = certify(original, second, input_size=SIZE)
        assert found.verdict is not Verdict.REFUTED, found.to_text()
        assert not training or found.strength is not Strength.PROVED or found.verdict is not Verdict.HOLDS


@pytest.mark.parametrize("after", [lambda y: y.sum().softmax(0), lambda y: y.sum().softmax(-1) * y])
def test_a_softmax_of_a_lone_number_ends_in_a_verdict(after):
    original = ending(after)
    for second in (conv2attn.convert(original), ending(lambda y: after(y) * 1)):
        assert certify(original, second, input_size=SIZE).verdict in (Verdict.HOLDS, Verdict.UNDECIDED)


def vectors(scale):
    """A network of vectors, which a convolution reads as images."""
    torch.manual_seed(0)
    return Net(lambda net, vector: net.conv(vector[None, None]) * net.scale, conv=nn.Conv1d(1, 2, 3), scale=scale)


def test_images_with_one_axis_end_in_a_verdict():
    original, image = vectors(1.0), torch.rand(5)
    assert certify(original, conv2attn.convert(original), images=image).verdict is Verdict.HOLDS
    assert certify(original, vectors(1.5), images=image).verdict is Verdict.REFUTED
