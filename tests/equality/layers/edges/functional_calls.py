"""Functional convolutions: each kind of call has its row, and an error in one is shown by an image."""

import pytest
import torch
from changes import changing
from equality import planted
from equality.pairs import Net, layer
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


def tied():
    """A convolution whose weight is read once more."""
    code = lambda net, x: F.conv2d(net.a(x), net.a.weight, net.a.bias, padding=1) + net.b(x)  # noqa: E731
    return Net(code, a=layer(), b=nn.Conv2d(4, 4, 1))


def of_two_geometries():
    """Functional convolutions of two geometries beside a layer."""

    def code(net, images):
        near = net.layer(torch.relu(net.norm(F.conv2d(images, net.weight, padding=1))))
        return {"near": near, "far": F.conv2d(images, net.weight, stride=2).sum((2, 3))}

    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(5, 4, 3, 3))
    return Net(code, weight=weight, layer=nn.Conv2d(5, 3, 3), norm=nn.BatchNorm2d(5).eval())


def unbatched():
    """Image after image, each without a batch."""

    def code(net, images):
        return torch.stack([F.conv2d(each, net.weight, stride=2).sum() + net.layer(each) for each in images])

    return Net(code, weight=nn.Parameter(torch.randn(5, 4, 3, 2)), layer=nn.Conv2d(4, 5, (3, 2)))


def of_two_functions():
    def code(net, x):
        return F.conv2d(x, net.weight) + F.conv_transpose2d(x, net.weight)[:, :, 2:-2, 2:-2]

    return Net(code, weight=nn.Parameter(torch.ones(4, 4, 3, 3)))


def of_complex_numbers():
    """Two functional convolutions, of which one is of a dtype without a softmax."""

    def code(net, x):
        other, weight = x.to(torch.complex64), net.weight.to(torch.complex64)
        return F.conv2d(x, net.weight) + F.conv2d(other, weight=weight).real

    return Net(code, weight=nn.Parameter(torch.ones(2, 4, 3, 3)))


FUNCTIONS = {
    "two geometries": (of_two_geometries, {}, ["layer", "(root):conv2d", "(root):conv2d#2"]),
    "a class of its own": (lambda: nn.Sequential(Odd(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)), {}, ["2", "0:conv2d"]),
    "a weight read twice": (tied, {}, ["a", "b", "(root):conv2d"]),
    "no batch": (unbatched, {}, ["layer", "(root):conv2d"]),
    "two functions": (of_two_functions, {}, ["(root):conv2d", "(root):conv_transpose2d"]),
    "one of two left": (of_two_functions, {"skip": "*transpose2d"}, ["(root):conv2d"]),
    "one that is none of ours": (of_complex_numbers, {}, ["(root):conv2d"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional_convolutions_have_rows(name):
    make, options, expected = FUNCTIONS[name]
    torch.manual_seed(0)
    original = make()
    report = certify(original, conv2attn.convert(original, example_input=image(), **options), images=image())
    counted = [row.name for row in report.rows if not row.skipped and row.verdict is not UNSUPPORTED]
    assert counted == expected, report.to_text()
    assert all(row.max_error <= row.bound for row in report.rows if row.name in expected)
    assert outcome(report) == PROVED or name == "one that is none of ours", report.to_text()


def test_a_layer_of_the_geometry_of_a_functional_convolution_is_not_measured_in_its_row():
    original = tied().requires_grad_(False)
    original.a.weight.mul_(1e-3), original.a.bias.mul_(1e-3)
    report = certify(original, conv2attn.convert(original, example_input=image()), images=image())
    met = original.a(image()).abs().max().item()
    assert {row.name: row.input_range for row in report.rows}["(root):conv2d"] == pytest.approx(met, rel=1e-6)


def branching(net, given):
    """A convolution by a layer, and on wide images one by a function."""
    passed = net.narrow(given)
    return F.conv2d(passed[:, :2], net.weight) if given.shape[-1] > 8 else passed


def test_attention_that_no_input_met_is_compared_for_any_weight_and_not_measured():
    wide, weight = torch.rand(1, 2, 9, 9), nn.Parameter(torch.rand(2, 2, 3, 3))
    original = Net(branching, narrow=layer(2, 3), weight=weight)
    converted = conv2attn.convert(original, example_input=wide)
    for images, measured in ((wide, [True, True]), (wide[..., :8], [True, False])):
        report = certify(original, converted, images=images)
        assert report.verdict is HOLDS
        assert [row.max_error is not None for row in report.rows] == measured


def calls(plant=right):
    """Such a network, and its conversion with something planted."""
    original = of_two_geometries()
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
        assert shown.gap.difference > shown.allowed
        assert certify(original, converted, images=shown.image[None]).verdict is REFUTED
        assert certify(*calls(), images=shown.image[None]).verdict is HOLDS


@pytest.mark.parametrize("scales", [(1.0, 3.0), (3.0, 1.0)])
def test_calls_of_one_function_are_one_row_with_the_largest_error_of_all(scales):
    def code(net, images):
        return sum(F.conv2d(images * scale, net.weight).sum((2, 3)) for scale in net.scales)

    original = Net(code, weight=nn.Parameter(layer(4, 5).weight.detach()), scales=scales)
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
