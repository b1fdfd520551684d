"""Tolerances, and the bound that is carried to the outputs: never below what is found, and it alone decides."""

import copy

import pytest
import torch
from equality.pairs import once
from equality.planted import image, original, ulp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.bounds import gamma
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED
SIZE = {"input_size": (3, 9, 8)}


def pair(alpha=3, **options):
    """A convolution, and its conversion, which leaks."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        original = nn.Conv2d(3, 4, 3, **{"padding": 1, **options})
    return original, conv2attn.convert(original, alpha=alpha)


def test_of_a_layer_the_bound_decides_or_an_input_and_between_them_nothing():
    original, converted = pair()
    report = certify(original, converted, **SIZE)
    worst, bound = report.counterexamples[0].difference, report.rows[0].bound
    assert worst < bound
    expected = {1.5 * bound: HOLDS, (worst + bound) / 2: UNDECIDED, 0.5 * worst: REFUTED, 0.0: REFUTED}
    for tolerance, verdict in expected.items():
        found = certify(original, converted, tolerance=tolerance, **SIZE)
        assert found.verdict is verdict, found.to_text()
        assert [each.part for each in found.rows[0].findings] == ["geometry", "measured"]
        assert verdict is not HOLDS or (found.strength, found.counterexamples) == (Strength.BOUNDED, ())
        last = found.between[-1]
        assert (last.part, last.verdict, last.code) == ("tolerance", verdict, "" if verdict is HOLDS else "C2A409")


def test_a_tolerance_is_refuted_by_an_input_of_the_size_that_it_is_claimed_for():
    original, converted = pair(alpha=8)
    on_small, on_large = (certify(original, converted, input_size=(3, side, side)) for side in (2, 9))
    worst = on_large.counterexamples[0].difference
    found = certify(original, converted, input_size=(3, 2, 2), tolerance=worst * 0.9)
    assert found.verdict is not REFUTED, found.to_text()
    assert found.counterexamples == ()
    assert on_small.verdict is REFUTED


LAYERS = {
    "the range counts": (lambda: pair(padding=0), {"tolerance": 2.0, "input_range": 50.0}, REFUTED),
    "one ulp": (lambda: changed(lambda layer: layer.bias.data.add_(1e-6)), {"tolerance": 1e-3}, HOLDS),
    **{
        f"a wrong offset within {tolerance}": (
            lambda: changed(lambda layer: layer.encoding.center.data[0].sub_(2)),
            {"tolerance": tolerance},
            verdict,
        )
        for tolerance, verdict in ((9.0, UNDECIDED), (1e-3, REFUTED))
    },
    "an overflow of the original": (lambda: pair(128), {"tolerance": 1.0, "input_range": 3e38}, UNDECIDED),
    "a layer that cannot be read": (
        lambda: changed(lambda a: a.encoding.center.data.fill_(torch.nan)),
        {"tolerance": 9.0},
        None,
    ),
    "two soft layers": (lambda: (pair()[1], pair(2)[1]), {"tolerance": 50.0}, HOLDS),
}


def changed(change):
    original, converted = pair(128)
    change(converted)
    return original, converted


@pytest.mark.parametrize("name", LAYERS)
def test_a_tolerance_of_a_layer(name):
    make, asked, verdict = LAYERS[name]
    report = certify(*make(), **SIZE, **asked)
    assert report.verdict is verdict or (verdict is None and not report), report.to_text()
    assert name != "an overflow of the original" or not report.counterexamples


def test_of_a_network_the_propagated_bound_decides_or_an_image():
    converted = once(conv2attn.convert(original()))
    asked = {"images": image(), "input_range": 4.0}
    bound = certify(original(), converted, **asked).outputs.bound
    report = certify(original(), converted, tolerance=bound, **asked)
    assert (report.verdict, report.strength) == (HOLDS, Strength.BOUNDED)
    assert certify(original(), converted, tolerance=bound / 2, **asked).verdict is UNDECIDED
    report = certify(original(), conv2attn.convert(original(), alpha=2), images=image(), tolerance=1e-3)
    assert report.verdict is REFUTED
    assert [each.code for each in report.between if each.verdict is REFUTED] == ["C2A409"]


def test_the_bound_at_the_outputs_is_for_the_larger_of_both_ranges():
    converted = once(conv2attn.convert(original()))
    bounds = [
        certify(original(), converted, images=image().clamp(-1, 1) * scale, input_range=reach).outputs.bound
        for scale, reach in ((1.0, 0.1), (1.0, 7.0), (20.0, 7.0), (20.0, 1.0))
    ]
    assert bounds[0] < bounds[1] < bounds[2] == bounds[3]


@st.composite
def networks(draw):
    """Small networks of the layers that a bound is carried through."""
    torch.manual_seed(draw(st.integers(0, 10**6)))
    channels, parts = 3, []
    for _ in range(draw(st.integers(1, 3))):
        wider = draw(st.integers(1, 5))
        parts.append(nn.Conv2d(channels, wider, draw(st.sampled_from([1, 2, 3])), padding=draw(st.integers(0, 1))))
        channels = wider
        others = [nn.BatchNorm2d(channels), nn.ReLU(), nn.AvgPool2d(2, 1), nn.MaxPool2d(2, 1)]
        parts.append(draw(st.sampled_from(others)))
    parts += [nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(2 * channels, 3)]
    return nn.Sequential(*parts).eval()


@settings(max_examples=6)
@given(networks(), st.sampled_from(["auto", 60, 20, 3, 0.5]), st.sampled_from([1e-3, 1.0, 100.0]))
def test_the_propagated_bound_is_never_exceeded(original, alpha, reach):
    converted = conv2attn.convert(original, alpha=alpha)
    images = (torch.randint(0, 2, (4, 3, 12, 13)) * 2.0 - 1) * reach
    outputs = certify(original, converted, images=images, input_range=reach).outputs
    assert outputs.bound is not None
    assert outputs.max_difference <= outputs.bound


def test_the_bound_of_a_leaking_network_is_of_the_size_of_the_difference():
    """So one that forgot the leak, or the layer's own error, would fall below it."""
    original = nn.Sequential(pair()[0], nn.ReLU())
    outputs = certify(original, conv2attn.convert(original, alpha=3), input_size=(3, 12, 13)).outputs
    assert outputs.bound / 100 < outputs.max_difference <= outputs.bound


class After(nn.Module):
    """A convolution, and a function of its output and of the image."""

    def __init__(self, after):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.after = nn.Conv2d(3, 4, 3, padding=1), after

    def forward(self, image):
        return self.after(self.conv(image), image)


def scaled_unseen(tensor):
    with torch._C.DisableTorchFunction():
        return tensor.add_(tensor, alpha=999.0)


def swapped(tensor):
    other = torch.zeros_like(tensor)
    other.set_(tensor)
    return other


def counted(tensor):
    count = torch.zeros(4, 1, 1)
    count[1:].add_(2.0)
    count += 1
    return F.batch_norm(tensor, torch.zeros(4), torch.ones(4), count.flatten())


STOPPED = {
    "a sum along an axis": lambda y, x: torch.cumsum(y, 1),
    "a quotient by the image": lambda y, x: y / x[:, :1],
    "a matrix of the image": lambda y, x: F.linear(y.flatten(2), x.flatten(2)[0]),
    "statistics of the image": lambda y, x: F.batch_norm(y, torch.zeros(4), x[0, 0, 0, :4].abs()),
    "slopes of the image": lambda y, x: F.prelu(y, x[0, 0, 0, :4]),
    "a constant multiplied in place": lambda y, x: torch.full_like(y, 1e4).mul_(y),
    "another's memory": lambda y, x: swapped(y),
    "celu that explodes": lambda y, x: F.celu(y, alpha=-1.0),
    "float16 that overflows": lambda y, x: (y * 1e5).half(),
    "float32 that overflows": lambda y, x: y * 1e30 * 1e30 * 1e-30 * 1e-30,
    "a product": lambda y, x: y * 2.0,
    "a cast": lambda y, x: y.double(),
    "a sum over an axis": lambda y, x: y.sum(1),
    "the largest": lambda y, x: y.amax(1),
    "itself as out": lambda y, x: torch.mul(y, 1000.0, out=y),
}
CARRIED = {
    "nothing": lambda y, x: y,
    "code without torch functions": lambda y, x: scaled_unseen(y),
    "code without torch functions, not returned": lambda y, x: (scaled_unseen(y), y)[1],
    "a scaled summand": lambda y, x: torch.sub(y, y, alpha=1000),
    "a sum in place": lambda y, x: y.add_(y, alpha=1000.0).add_(1),
    "constants changed in place": lambda y, x: counted(y),
}


@torch.no_grad()
def carried(after):
    """The certificate of a network with weights off by 0.01, and the largest difference on images aligned with them."""
    original = After(after).eval()
    converted = conv2attn.convert(original)
    off = torch.randn(converted.conv.weight.shape).sign() * 0.01
    converted.conv.weight.add_(off)
    off = off.flatten(2)
    image = torch.rand(1, 3, 8, 9) * 2 - 1
    with torch.enable_grad():
        report = certify(original, converted, images=image, tolerance=1e9)
    worst, centers = 0.0, converted.conv.encoding.center.int().tolist()
    for channel in range(4):
        aligned = torch.zeros(1, 3, 8, 9)
        for head, (row, column) in enumerate(centers):
            aligned[0, :, 4 + row, 4 + column] = off[channel, :, head].sign()
        first, second = (copy.deepcopy(net)(aligned).double() for net in (original, converted))
        worst = max(worst, (first - second).abs().max().item())
    return report, worst


@pytest.mark.parametrize("name", STOPPED)
def test_where_no_bound_passes_the_certificate_says_so(name):
    report, _ = carried(STOPPED[name])
    assert report.verdict is not HOLDS
    assert report.outputs is None or report.outputs.bound is None
    assert report.verdict is REFUTED or "no bound passes" in report.to_text() or "cannot be" in report.to_text()


@pytest.mark.parametrize("name", CARRIED)
def test_the_bound_passes_and_is_nearly_attained(name):
    report, worst = carried(CARRIED[name])
    assert report.verdict is HOLDS, report.to_text()
    assert worst <= report.outputs.bound <= 1.2 * worst


VECTOR = torch.full((2,), 1e4)
ROUNDED = {
    "a sum": (lambda y, x: y + 1e4, 2, 1e4),
    "a clamp that moves nothing": (lambda y, x: y.clamp(-1e4, 1e4), 0, 1e4),
    "a normalisation": (lambda y, x: F.batch_norm(y, torch.full((4,), -1e4), torch.ones(4), eps=0.0), 10, 1e4),
    "a mean of 72 numbers": (lambda y, x: (y + 1e4).mean((2, 3)), 2 + 74, 1e4),
    "a pool of 72 numbers": (lambda y, x: F.adaptive_avg_pool2d(y + 1e4, 1), 2 + 74, 1e4),
    "a layer of zeros and its bias": (lambda y, x: F.linear(y.mean(3), torch.zeros(2, 8), VECTOR), 9, 1e4),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_each_network_rounds_by_itself(name):
    """So the bound grows by twice the roundings of one number of this size."""
    after, operations, size = ROUNDED[name]
    nets = [After(each).eval() for each in (lambda y, x: y, after)]
    bounds = [certify(net, conv2attn.convert(net), input_size=(3, 8, 9)).outputs.bound for net in nets]
    expected = 2 * gamma(operations, 2.0**-24) * size if operations else 0.0
    assert bounds[1] - bounds[0] == pytest.approx(expected, rel=0.02, abs=1e-4)


@pytest.mark.parametrize(("kind", "sides"), [(nn.Conv1d, (7,)), (nn.Conv3d, (5, 6, 7))])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_bound_is_carried_on_grids_of_one_axis_or_three_and_in_groups(kind, sides, groups):
    torch.manual_seed(0)
    first, second = kind(2, 4, 1), kind(4, 4, 1, groups=groups)
    original = nn.Sequential(first, second)
    converted = conv2attn.convert(original)
    converted[0].bias.data += 0.5
    report = certify(original, converted, input_size=(2, *sides), tolerance=9.0)
    expected = 0.5 * second.weight.detach().abs().flatten(1).sum(1).max().item()
    assert (report.verdict, report.outputs.bound) == (HOLDS, pytest.approx(expected, rel=1e-3, abs=0))


@pytest.mark.parametrize("single", [True, False])
def test_an_undecided_certificate_names_a_tolerance_that_holds(single):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3)
    original = once(layer if single else nn.Sequential(layer, nn.ReLU()))
    converted = once(conv2attn.convert(original, alpha=30.0))
    report = certify(original, converted, input_size=(3, 8, 9), tolerance=1.0)
    assert (report.verdict, report.holding_tolerance) == (HOLDS, None)
    report = certify(original, converted, input_size=(3, 8, 9), tolerance=report.outputs.bound / 2)
    assert (report.verdict, report.holding_tolerance) == (UNDECIDED, report.outputs.bound)
    named = report.to_text().partition("--tolerance ")[2].partition("\n")[0]
    assert report.outputs.bound <= float(named) <= 1.01 * report.outputs.bound
    assert certify(original, converted, input_size=(3, 8, 9), tolerance=float(named)).verdict is HOLDS


@pytest.mark.parametrize(("tolerance", "verdict"), [(1.0, UNDECIDED), (1e-9, REFUTED)])
@pytest.mark.parametrize(
    "change", [lambda norm: ulp(norm.weight.data, (0,)), lambda norm: setattr(norm, "eps", 1.1e-5)]
)
def test_another_context_refutes_no_tolerance_that_no_image_exceeds(change, tolerance, verdict):
    original = nn.Sequential(pair()[0], nn.BatchNorm2d(4)).eval()
    converted = conv2attn.convert(original)
    change(converted[1])
    assert certify(original, converted, tolerance=tolerance, **SIZE).verdict is verdict
