"""Functional convolutions: each kind of call has its row, and an error in one is shown by an image."""

import pytest
import torch
from changes import changing
from equality import planted
from equality.pairs import layer
from equality.planted import image, right
from equality.reports import PROVED, at_most_rounded, outcome, rows
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Verdict

HOLDS, REFUTED, UNDECIDED, UNSUPPORTED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED, Verdict.UNSUPPORTED


class Odd(nn.Conv2d):
    """A convolution with a forward of its own, which attends in its place."""

    def forward(self, given):
        return F.conv2d(F.pad(given, (1, 1, 1, 1)), self.weight, self.bias)


class Tied(nn.Module):
    """A convolution whose weight is read once more."""

    def __init__(self):
        super().__init__()
        self.a, self.b = layer(), nn.Conv2d(4, 4, 1)

    def forward(self, given):
        return F.conv2d(self.a(given), self.a.weight, self.a.bias, padding=1) + self.b(given)


class Calls(nn.Module):
    """Functional convolutions of two geometries beside a layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.layer = nn.Parameter(torch.randn(5, 4, 3, 3)), nn.Conv2d(5, 3, 3)
        self.norm = nn.BatchNorm2d(5).eval()

    def forward(self, images):
        near = self.layer(torch.relu(self.norm(F.conv2d(images, self.weight, padding=1))))
        return {"near": near, "far": F.conv2d(images, self.weight, stride=2).sum((2, 3))}


class Unbatched(nn.Module):
    """Image after image, each without a batch."""

    def __init__(self):
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.randn(5, 4, 3, 2)), nn.Conv2d(4, 5, (3, 2))

    def forward(self, images):
        return torch.stack([F.conv2d(each, self.weight, stride=2).sum() + self.layer(each) for each in images])


class Kinds(nn.Module):
    """Two functions in one module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4, 3, 3))

    def forward(self, given):
        return F.conv2d(given, self.weight) + F.conv_transpose2d(given, self.weight)[:, :, 2:-2, 2:-2]


class Complex(nn.Module):
    """Two functional convolutions, of which one is of a dtype without a softmax."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 4, 3, 3))

    def forward(self, given):
        other, weight = given.to(torch.complex64), self.weight.to(torch.complex64)
        return F.conv2d(given, self.weight) + F.conv2d(other, weight=weight).real


FUNCTIONS = {
    "two geometries": (Calls, {}, ["layer", "(root):conv2d", "(root):conv2d#2"]),
    "a class of its own": (lambda: nn.Sequential(Odd(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)), {}, ["2", "0:conv2d"]),
    "a weight read twice": (Tied, {}, ["a", "b", "(root):conv2d"]),
    "no batch": (Unbatched, {}, ["layer", "(root):conv2d"]),
    "two functions": (Kinds, {}, ["(root):conv2d", "(root):conv_transpose2d"]),
    "one of two left": (Kinds, {"skip": "*transpose2d"}, ["(root):conv2d"]),
    "one that is none of ours": (Complex, {}, ["(root):conv2d"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional_convolutions_have_rows(name):
    make, options, expected = FUNCTIONS[name]
    torch.manual_seed(0)
    original = make()
    report = certify(original, conv2attn.convert(original, example_input=image(), **options), images=image())
    counted = [row.name for row in report.rows if not row.skipped and row.verdict is not UNSUPPORTED]
    assert counted == expected, report.to_text()
    assert all(row.max_error <= row.bound and row.memory_saved for row in report.rows if row.name in expected)
    assert outcome(report) == PROVED or name == "one that is none of ours", report.to_text()


def test_a_layer_of_the_geometry_of_a_functional_convolution_is_not_measured_in_its_row():
    original = Tied().requires_grad_(False)
    original.a.weight.mul_(1e-3), original.a.bias.mul_(1e-3)
    report = certify(original, conv2attn.convert(original, example_input=image()), images=image())
    met = original.a(image()).abs().max().item()
    assert {row.name: row.input_range for row in report.rows}["(root):conv2d"] == pytest.approx(met, rel=1e-6)


class Branching(nn.Module):
    """A convolution by a layer, and on wide images one by a function."""

    def __init__(self):
        super().__init__()
        self.narrow, self.weight = layer(2, 3), nn.Parameter(torch.rand(2, 2, 3, 3))

    def forward(self, given):
        passed = self.narrow(given)
        return F.conv2d(passed[:, :2], self.weight) if given.shape[-1] > 8 else passed


def test_attention_that_no_input_met_is_compared_for_any_weight_and_not_measured():
    original, wide = Branching(), torch.rand(1, 2, 9, 9)
    converted = conv2attn.convert(original, example_input=wide)
    for images, measured in ((wide, [True, True]), (wide[..., :8], [True, False])):
        report = certify(original, converted, images=images)
        assert report.verdict is HOLDS
        assert [row.max_error is not None for row in report.rows] == measured


def calls(plant=right):
    """Such a network, and its conversion with something planted."""
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    plant(converted)
    return original, converted


def moved(net):
    with changing(net.attending_calls.layers[0], "center") as numbers:
        numbers[0, 0] += 1


def softened(net, alpha=3):
    net.attending_calls.layers[1].encoding.assign(alpha=alpha)


def narrowed(net):
    vars(net.attending_calls.layers[0])["forward"] = lambda given, weights=None: given[:, :1]


CALLS = {
    "a head moved": (moved, "(root):conv2d"),
    "a soft head": (softened, "(root):conv2d#2"),
    "another shape": (narrowed, None),
    "a layer between by one ulp": (lambda net: planted.ulp(net.norm.weight.data, (2,)), ""),
    "its weight by one ulp": (lambda net: planted.ulp(net.weight.data, (2, 1, 1, 1)), ""),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_in_a_functional_convolution_is_refuted_and_shown_by_an_input(name):
    plant, layer = CALLS[name]
    original, converted = calls(plant)
    report = certify(original, converted, images=image())
    assert report.verdict is REFUTED or (not layer and at_most_rounded(report)), report.to_text()
    if layer:
        assert rows(report, REFUTED) == [layer]
        (shown,) = report.counterexamples
        assert shown.exceeds
        assert certify(original, converted, images=shown.image[None]).verdict is REFUTED
        assert certify(*calls(), images=shown.image[None]).verdict is HOLDS


class Twice(nn.Module):
    """The same functional convolution of two images."""

    def __init__(self, scales):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.scales = nn.Parameter(torch.randn(5, 4, 3, 3)), scales

    def forward(self, images):
        return sum(F.conv2d(images * scale, self.weight).sum((2, 3)) for scale in self.scales)


@pytest.mark.parametrize("scales", [(1.0, 3.0), (3.0, 1.0)])
def test_calls_of_one_function_are_one_row_with_the_largest_error_of_all(scales):
    original = Twice(scales)
    converted = conv2attn.convert(original, example_input=image())
    moved(converted)
    report = certify(original, converted, images=image())
    (row,) = report.rows
    assert (row.verdict, row.input_range) == (REFUTED, (3 * image()).abs().max().item())
    assert len(report.counterexamples) == 1


def test_a_function_that_was_not_converted_is_named():
    original = nn.Sequential(layer(), Odd(4, 4, 3))
    report = certify(original, conv2attn.convert(original), images=image())
    assert (rows(report), rows(report, HOLDS)) == (["0", "1"], ["0"])
    assert report.verdict is UNSUPPORTED
