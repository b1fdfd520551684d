"""Heads centred between pixels: what they leak, against exact arithmetic, and what the certificate says of them."""

import hashlib
import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.attention import QuadraticEncoding
from conv2attn.basis import Sites
from conv2attn.bounds import (
    computed_leak,
    leak_reached,
    leaked_mass_covariance,
    leaked_mass_diagonal,
    sharpness_on_a_pixel,
)
from conv2attn.cli import main
from conv2attn.equivalence import certify
from conv2attn.equivalence.computed import leak
from conv2attn.equivalence.readings.positions import Positions, enumerated, shift_of_enumeration
from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.models.zoo.resnet import ResNetPlan, build
from conv2attn.verdicts import Strength, Verdict

PROVED, BOUNDED = (Verdict.HOLDS, Strength.PROVED), (Verdict.HOLDS, Strength.BOUNDED)
REFUTED = (Verdict.REFUTED, Strength.PROVED)
ROUNDOFF = 2.0**-24


def layer(**kwargs):
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, 3, padding=1, **kwargs)


def moved(alpha, shift, axis=1, encoding="quadratic", dtype=torch.float32):
    """A convolution, and its conversion in which one head is centred `shift` pixels away from its tap."""
    original = layer().to(dtype)
    converted = conv2attn.convert(original, alpha=alpha, encoding=encoding)
    converted.encoding.center.data[2, axis] += shift
    return original, converted


def leak_found(alpha, shift, **kwargs):
    report = certify(*moved(alpha, shift, **kwargs), input_size=(3, 9, 8))
    found = report.rows[0].part("leak")
    return (found.verdict, found.strength), report


def exact_leak(alpha, shifts, reach=4):
    """The mass off the pixel nearest to the centre, on a grid of 2 reach + 1 pixels a side, in 300 digits."""
    with mpmath.workdps(300):
        shares = [
            1 / sum(mpmath.exp(-mpmath.mpf(alpha) * (n * n - 2 * n * mpmath.mpf(f))) for n in range(-reach, reach + 1))
            for f in shifts
        ]
        return 1 - mpmath.fprod(shares)


@pytest.mark.parametrize(
    ("alpha", "shift", "expected"),
    [
        (128, 1e-3, PROVED),
        (128, 0.09, PROVED),
        (128, 0.1, BOUNDED),
        (128, 0.35, BOUNDED),
        (128, 0.44, REFUTED),
        (128, 0.48, REFUTED),
        (128, 0.5, REFUTED),
        (46, 1e-3, BOUNDED),
        (46, -0.2, BOUNDED),
        (46, 0.32, REFUTED),
        (20, 1e-3, BOUNDED),
        (16, 1e-3, REFUTED),
        (9, 1e-3, REFUTED),
    ],
)
def test_a_centre_between_pixels_is_decided(alpha, shift, expected):
    outcome, report = leak_found(alpha, shift)
    assert outcome == expected, report.to_text()
    assert report.verdict is expected[0]
    if expected == REFUTED and shift > 1e-2:
        assert f"head 2 is centred {abs(shift):.3g} from the nearest pixel and leaks at least" in report.to_text()
    if report.verdict is Verdict.HOLDS:
        assert report.rows[0].max_error <= report.rows[0].bound
    elif alpha * (1 - 2 * abs(shift)) < 10:
        assert report.witnesses


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.05, 0.09])
def test_what_is_proved_is_one_hot_to_the_bit(shift):
    _, converted = moved(128, shift)
    attention = converted.attention(sides=(9, 8))
    assert set(attention.unique().tolist()) == {0.0, 1.0}
    _, softer = moved(128, 0.25)
    assert len(softer.attention(sides=(9, 8)).unique()) > 2


@given(st.floats(17, 200), st.floats(-0.5, 0.5, width=32))
def test_no_verdict_contradicts_the_exact_leak(alpha, shift):
    """The exact leak of a head in the middle of a large grid: at most the roundoff where it holds, more if refuted."""
    alpha = float(torch.tensor(alpha))
    _, converted = moved(alpha, shift)
    center = converted.encoding.center[2, 1].item()
    found, most = leak.check_leak(conv2attn.equivalence.readings.reading.reading_of(converted))
    exact = exact_leak(alpha, [0.0, center - round(center)])
    assert exact <= most or most == 0
    if found.verdict is Verdict.HOLDS:
        assert exact <= ROUNDOFF
    elif found.verdict is Verdict.REFUTED:
        assert exact > ROUNDOFF
    else:
        assert exact * 8 > ROUNDOFF


@given(st.floats(0.01, 300), st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=3))
def test_the_leak_that_is_reached_is_reached(alpha, shifts):
    exact = exact_leak(alpha, shifts, reach=30)
    assert leak_reached(alpha, shifts) <= exact <= leaked_mass_diagonal([alpha] * len(shifts), shifts)
    if alpha > 3:
        assert leak_reached(alpha, shifts) > 0.9 * exact_leak(alpha, shifts)


def computed_gaps(alpha, centers, dtype):
    """For keys of a grid of seven a side, how far their score as computed is from the largest, and |n|^2 of each."""
    encoding = QuadraticEncoding(torch.tensor([centers], dtype=torch.float64), [alpha])
    total = None
    for axis in range(len(centers)):
        scores = encoding.operators().axis_scores(torch.arange(-3, 4)[None], axis, dtype)[0, 0].detach()
        total = scores if total is None else (total[:, None] + scores[None, :]).flatten()
    nearest = [min(range(-3, 4), key=lambda n, c=c: abs(n - c)) for c in centers]
    squares = [
        sum((n - k) ** 2 for n, k in zip(key, nearest, strict=True)) for key in product(*[range(-3, 4)] * len(centers))
    ]
    gaps = (total[squares.index(0)] - total).tolist()
    return [(Fraction(gap), square) for gap, square in zip(gaps, squares, strict=True) if square]


@given(st.floats(0.125, 1e4, width=32), st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=2), st.booleans())
def test_computed_scores_are_apart_as_those_of_the_sharpness_on_a_pixel(alpha, centers, double):
    dtype, name = (torch.float64, "float64") if double else (torch.float32, "float32")
    shifts = [abs(c - round(c)) for c in centers]
    distance = sum(
        (abs(c) - min(3, round(abs(c))) if abs(c) > 3 else f) ** 2 for c, f in zip(centers, shifts, strict=True)
    )
    sharpness = sharpness_on_a_pixel(alpha, shifts, distance * (1 + 1e-12), name)
    assert 0 <= sharpness <= alpha
    if sharpness == alpha:  # on a pixel, where `computed_leak` itself counts three roundings
        sharpness *= 1 - 3 * (2.0**-53 if double else 2.0**-24)
    assert all(gap >= Fraction(sharpness) * square for gap, square in computed_gaps(alpha, centers, dtype))


def test_a_sharpness_without_the_rounding_of_scores_would_be_seen():
    """Rounding takes from the gap of one head in ten and more, in a digit that the claim holds in."""
    alpha, center = 3.3, 3.3
    exact, wrong = sharpness_on_a_pixel(alpha, [center - 3], (center - 3) ** 2, "float32"), alpha * (1 - 2 * 0.3)
    assert exact < wrong < exact * (1 + 1e-5)
    generator = torch.Generator().manual_seed(0)
    found = 0
    for _ in range(300):
        alpha, center = (torch.rand(2, generator=generator) * torch.tensor([9.0, 0.5])).tolist()
        wrong = Fraction(alpha) * (1 - 2 * Fraction(center))
        found += any(gap < wrong * square for gap, square in computed_gaps(alpha, [center], torch.float32))
    assert found > 30


def test_every_rounding_of_a_score_is_counted():
    """The difference, twice in its square, the square, alpha cast, alpha multiplied, and a sum: six along one axis."""
    u = Fraction(1, 2**24)
    relative = 6 * u / (1 - 6 * u)
    expected = (1 - u) * (Fraction(1, 2) * (1 - relative) - 2 * relative / 16)
    assert 0 <= expected - Fraction(sharpness_on_a_pixel(1.0, [0.25], 0.0625, "float32")) < Fraction(1, 2**52)


def test_a_head_on_a_pixel_keeps_its_sharpness_and_one_between_two_has_none():
    assert sharpness_on_a_pixel(46.0, [0.0, 0.0], 0.0, "float32") == 46.0
    assert sharpness_on_a_pixel(46.0, [0.5], 0.25, "float32") == 0.0
    assert sharpness_on_a_pixel(46.0, [0.0], 1e12, "float32") == 0.0
    assert 0 < sharpness_on_a_pixel(46.0, [0.0], 1e12, "float64") < 46.0
    with pytest.raises(AlphaError, match="alpha=-1"):
        sharpness_on_a_pixel(-1.0, [0.1], 0.1, "float32")
    with pytest.raises(UsageError, match="shifts"):
        sharpness_on_a_pixel(1.0, [0.6], 0.4, "float32")


@pytest.mark.parametrize(("axis", "expected"), [(1, PROVED), (0, REFUTED)])
def test_an_enumeration_multiplies_shifts_along_all_axes_but_the_last(axis, expected):
    outcome, report = leak_found(128, 1e-3, axis=axis, encoding="enumerated")
    assert outcome == expected, report.to_text()


def test_an_enumerated_head_that_is_refuted_attends_to_another_pixel_on_a_wide_grid():
    _, converted = moved(128, 1e-2, axis=0, encoding="enumerated")
    assert (converted.attention(sides=(3, 9)) > 0.99).sum(-1).unique().tolist() == [1]
    wide = converted.attention(sides=(3, 70))[0, 2].argmax(-1)
    right = converted.attention(sides=(3, 70))[0, 1].argmax(-1) + 1
    assert not torch.equal(wide[71:100], right[71:100])


def test_a_forgotten_shift_would_be_seen(monkeypatch):
    """With the sharpness of a head on a pixel for one that is not, a leak of 2e-6 would hold."""
    monkeypatch.setattr("conv2attn.equivalence.readings.positions.sharpness_on_a_pixel", lambda alpha, *others: alpha)
    with pytest.raises(AssertionError):
        test_what_holds_is_right()


def test_what_holds_is_right():
    outcome, _ = leak_found(128, 0.45)
    assert outcome == REFUTED


def test_double_precision_asks_for_more():
    assert leak_found(128, 0.2, dtype=torch.float64)[0] == BOUNDED
    assert leak_found(1024, 0.1, dtype=torch.float64)[0] == PROVED
    assert leak_found(128, 0.4, dtype=torch.float64)[0] == REFUTED
    assert leak_found(128, 0.4)[0] == BOUNDED


def exact_covariance_leak(precision, shift, reach=5):
    """The mass off the pixel that is `shift` away from the centre, in 60 digits."""
    with mpmath.workdps(60):
        matrix, away = mpmath.matrix(precision), mpmath.matrix(shift)
        scores = [
            -((mpmath.matrix(key) - away).T * matrix * (mpmath.matrix(key) - away))[0]
            for key in product(*[range(-reach, reach + 1)] * len(shift))
        ]
        own = mpmath.exp(-(away.T * matrix * away)[0])
        return 1 - own / sum(map(mpmath.exp, scores))


@given(st.floats(0.5, 9), st.floats(0.5, 9), st.floats(-0.9, 0.9), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_a_covariance_between_pixels(first, second, correlation, row, column):
    mixed = correlation * (first * second) ** 0.5
    precision, shift = [[first, mixed + 0.25], [mixed - 0.25, second]], [row, column]
    bound = leaked_mass_covariance(precision, shift)
    assert exact_covariance_leak(precision, shift) <= bound <= 1
    assert leaked_mass_covariance(precision, [0.0, 0.0]) == leaked_mass_covariance(precision) <= bound


def test_a_covariance_between_pixels_is_close_and_its_shift_counts():
    precision, shift = [[20.0, 0.5], [0.5, 20.0]], [0.1, 0.0]
    exact = exact_covariance_leak(precision, shift)
    assert leaked_mass_covariance(precision) < exact <= leaked_mass_covariance(precision, shift) < 20 * exact
    assert leaked_mass_covariance(precision, [0.5, 0.0]) == 1
    with pytest.raises(UsageError, match="shift"):
        leaked_mass_covariance(precision, [0.1])


@pytest.mark.parametrize(("shift", "expected"), [(0.05, 0), (0.2, 1)])
def test_a_stored_certificate_of_centres_between_pixels_is_checked_again(shift, expected, tmp_path, monkeypatch):
    """Proved at 0.05; at 0.2 only bounded, so that a second look at a certificate that says proved refutes it."""
    monkeypatch.chdir(tmp_path)
    network = build(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5, stem="cifar")).eval()
    conv2attn.save(network, "net.pt")
    converted = conv2attn.convert(network)
    converted.conv1.encoding.center.data[0, 1] += 0.05
    conv2attn.save(converted, "net.attn.pt")
    arguments = ["verify", "net.pt", "net.attn.pt", "--input-size", "3x12x10", "--report", "c.json"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    converted.conv1.encoding.center.data[0, 1] += shift - 0.05
    Path("net.attn.pt").unlink()
    conv2attn.save(converted, "net.attn.pt")
    told = json.loads(Path("c.json").read_text())
    told["circumstances"]["converted sha256"] = hashlib.sha256(Path("net.attn.pt").read_bytes()).hexdigest()
    Path("c.json").write_text(json.dumps(told))
    result = CliRunner().invoke(main, ["recheck", "c.json"])
    assert result.exit_code == expected, result.stdout


def test_between_what_is_bounded_and_what_is_certain_nothing_is_said():
    """One neighbour weighs exp(-0.4 alpha) = 4.2e-8, below the roundoff 6.0e-8; as computed it is bounded by two."""
    assert exact_leak(42.45, [0.0, 0.3]) < ROUNDOFF
    assert leak_found(42.45, 0.3)[0][0] is Verdict.UNDECIDED


def test_what_is_beyond_the_grid_takes_from_the_sharpness():
    encoding = QuadraticEncoding([[-2.25, 1.0], [0.0, 0.0]], 64.0)
    found = Positions.of(encoding, Sites((1, 1), (1, 0), (0, 1)), torch.float32, "layer")
    assert found.strays == (0,)
    assert 1.25**2 <= found.distances[0] < 1.25**2 * (1 + 1e-9)
    assert found.distances[1] == 0
    assert found.sharpness(0, "float32") == sharpness_on_a_pixel(64.0, [0.25, 0.0], found.distances[0], "float32")
    assert found.sharpness(1, "float32") == 64


EVERYWHERE = Sites.everywhere(2)


def heads(alphas, *shifts, distances=None):
    """Heads at the same offset with these alphas and shifts."""
    count = len(alphas)
    return Positions(((0, 0),) * count, alphas, shifts, distances or (0.0,) * count, (), False, ())


def test_centres_are_read_in_the_format_of_the_scores():
    encoding = QuadraticEncoding(torch.tensor([[0.1, 2.0]], dtype=torch.float64), 64.0)
    single = torch.tensor(0.1).item()
    assert Positions.of(encoding, EVERYWHERE, torch.float64, "layer").shifts == ((0.1, 0.0),)
    assert Positions.of(encoding, EVERYWHERE, torch.float32, "layer").shifts == ((single, 0.0),)
    assert Positions.of(encoding, EVERYWHERE, torch.bfloat16, "layer").shifts == ((single, 0.0),)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_one_centre_that_is_not_finite_is_too_many(wrong):
    encoding = QuadraticEncoding(torch.tensor([[0.0, 1.0], [0.0, wrong]]), 64.0)
    with pytest.raises(UnsupportedError, match="C2A408 layer: a centre is not finite"):
        Positions.of(encoding, EVERYWHERE, torch.float32, "layer")


def test_squares_of_distances_are_rounded_up():
    encoding = QuadraticEncoding([[-2.25, 1.0]], 64.0)
    found = Positions.of(encoding, Sites((1, 1), (1, 0), (0, 1)), torch.float32, "layer")
    assert found.distances == (1.25**2 * (1 + 2.0**-40),)
    assert found.axes == 2
    assert heads(()).axes == 0


def test_heads_that_leak_alike_are_looked_at_once():
    shifts, distances = [(0.0, 0.0)] * 2 + [(0.25, 0.0)] * 3, (0.0, 0.0, 0.0, 1.0, 1.0)
    found = heads((64.0, 32.0, 32.0, 32.0, 32.0), *shifts, distances=distances)
    assert found.distinct(range(5)) == [0, 1, 2, 3]
    assert found.distinct([4, 3, 0]) == [4, 0]


def test_beyond_half_a_pixel_nothing_is_claimed():
    far = heads((128.0, 128.0), (0.75, 0.0), (0.25, 0.0))
    assert (far.sharpness(0, "float32"), far.leak(0), far.computed_leak(0, "float32")) == (0.0, 1.0, 1.0)
    assert far.leak(1) == leaked_mass_diagonal([128.0, 128.0], (0.25, 0.0)) > leaked_mass_diagonal([128.0, 128.0])
    half = heads((128.0,), (0.5, 0.0))
    assert half.leak(0) == leaked_mass_diagonal([128.0, 128.0], (0.5, 0.0)) < 0.51
    assert heads((0.9,), (0.0, 0.0)).computed_leak(0, "float32") == computed_leak(0.9, 2, "float32") > 1


def test_what_t_is_off_by_counts_that_it_is_rounded():
    """A quarter of 2^25 and half a pixel; of the centre itself 2^-50, a unit in the last place of float64 and more."""
    assert shift_of_enumeration([0.25, 3.5]) == 2.0**23 + 0.5 + 2.0**-27
    assert shift_of_enumeration([-3.0, 7.0]) == 0.0
    assert enumerated([1, 2, 3]) == 2.0**50 + 2.0**26 + 3
