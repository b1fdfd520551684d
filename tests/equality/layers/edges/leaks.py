"""What heads leak that are soft, or centred between pixels: against exact arithmetic, on either side of the pair."""

import math
from dataclasses import replace

import mpmath
import pytest
import torch
from changes import changing
from equality.pairs import Rows, row_of, rows_of
from equality.planted import heads
from equality.soft import LINE, SOFT, line
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.equality.layers import leaks
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.theory.basis import FAMILIES
from conv2attn.verdicts import Strength, Verdict
from tests.equality.reports import decisive

PROVED, BOUNDED = (Verdict.HOLDS, Strength.PROVED), (Verdict.HOLDS, Strength.BOUNDED)
REFUTED, UNDECIDED = (Verdict.REFUTED, Strength.PROVED), (Verdict.UNDECIDED, Strength.PROVED)
ROUNDOFF = 2.0**-24

HARD = [name for name, family in FAMILIES.items() if family.sharpens]


def moved(alpha, shift, axis=1, encoding="quadratic", dtype=torch.float32):
    """A convolution, and its conversion in which head 2 is centred `shift` pixels away from its tap."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        original = nn.Conv2d(3, 4, 3, padding=1).to(dtype)
    converted = conv2attn.convert(original, alpha=alpha, encoding=encoding)
    with changing(converted, "center") as numbers:
        numbers[2, axis] += shift
    return original, converted


CENTRES = {
    (128, 0.0): PROVED,
    (128, 1e-3): PROVED,
    (128, 0.09): PROVED,
    (128, 0.1): BOUNDED,
    (128, 0.35): BOUNDED,
    (128, 0.44): REFUTED,
    (128, 0.45): REFUTED,
    (128, 0.5): REFUTED,
    (104, 0.0): PROVED,
    (103, 0.0): BOUNDED,
    (46, 1e-3): BOUNDED,
    (46, -0.2): BOUNDED,
    (46, 0.32): REFUTED,
    (20, 1e-3): BOUNDED,
    (16, 1e-3): REFUTED,
    (0.5, 0.0): REFUTED,
    (42.45, 0.3): UNDECIDED,  # one neighbour weighs 4.2e-8, under the roundoff of 6.0e-8; the bound counts two
    (0.0, 0.0): REFUTED,
    (-1.0, 0.0): REFUTED,
    (math.inf, 0.0): REFUTED,
    (math.nan, 0.0): REFUTED,
}


def at_centre(alpha, shift):
    original, converted = moved(128, shift)
    converted.encoding.assign(alpha=alpha)
    return original, converted


@pytest.fixture(scope="module")
def rows():
    """The rows of all tables here."""
    pairs = {("centres", *case): at_centre(*case) for case in CENTRES}
    pairs |= {("others", name): moved(alpha, shift, **options) for name, (options, alpha, shift, _) in OTHERS.items()}
    pairs |= {("sides", *alphas): tuple(map(line, alphas)) for alphas in SIDES}
    pairs |= {("soft", name, turned): soft_pair(name, turned) for name in SOFT for turned in (False, True)}
    return Rows(pairs)


@pytest.mark.rotated
@pytest.mark.parametrize(("alpha", "shift"), CENTRES)
def test_a_sharpness_and_a_centre_are_decided(rows, alpha, shift):
    row = rows["centres", alpha, shift]
    found = row.part("leak")
    assert (found.verdict, found.strength) == CENTRES[alpha, shift], found
    holds = found.verdict is Verdict.HOLDS
    assert found.code == ("" if holds and alpha >= 46 else "C2A131" if holds else "C2A403")
    assert row.max_error <= row.bound if holds else row.verdict is found.verdict


def test_only_the_heads_that_leak_are_counted_and_the_worst_is_named():
    original, converted = moved(128, 0.0)
    with changing(converted, "alpha") as numbers:
        numbers[[3, 5, 8]] = torch.tensor([3.0, 2.5, 3.0])
    told = row_of(original, converted).part("leak").sentence
    assert told.startswith("head 5 leaks at least ")
    assert told.endswith("(3 of 9 heads)")


OTHERS = {
    "an enumeration on the pixels": ({"encoding": "enumerated"}, 128, 0.0, PROVED),
    "an enumeration off the pixels": ({"encoding": "enumerated", "axis": 0}, 128, 1e-3, UNDECIDED),
    "float64, far off": ({"dtype": torch.float64}, 128, 0.4, REFUTED),
    "float64, off": ({"dtype": torch.float64}, 128, 0.2, BOUNDED),
    "float64, as sharp as it needs": ({"dtype": torch.float64}, 1024, 0.1, PROVED),
    "float64, soft": ({"dtype": torch.float64}, 30, 0.0, REFUTED),
    "bfloat16": ({"dtype": torch.bfloat16}, 46, 0.0, BOUNDED),
    "float16": ({"dtype": torch.float16}, 18, 0.0, PROVED),
}


@pytest.mark.rotated
@pytest.mark.parametrize("name", OTHERS)
def test_formats_and_enumerations_ask_for_more_or_less(rows, name):
    found = rows["others", name].part("leak")
    assert (found.verdict, found.strength) == OTHERS[name][-1], found


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.09])
def test_what_is_proved_is_one_hot_to_the_bit(shift):
    attention = moved(128, shift)[1].attention(sides=(9, 8))
    assert set(attention.unique().tolist()) == {0.0, 1.0}


def test_what_is_proved_depends_on_exponentials_that_vanish_here(monkeypatch):
    """Where this machine's softmax keeps what should be 0, nothing is proved."""
    from conv2attn.layers.attention import probes

    whole = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda *args, **kwargs: whole(*args, **kwargs).clamp(min=1e-45))
    probes.exponential_underflows.cache_clear()
    try:
        found = row_of(*moved(128, 0.0)).part("leak")
    finally:
        probes.exponential_underflows.cache_clear()
    assert (found.verdict, found.strength) == BOUNDED


def exact_leak(alpha, shifts, reach=4):
    """The mass off the pixel nearest to the centre, on a grid of 2 reach + 1 pixels a side, in 300 digits."""
    with mpmath.workdps(300):
        shares = [
            1 / sum(mpmath.exp(-mpmath.mpf(alpha) * (n * n - 2 * n * mpmath.mpf(f))) for n in range(-reach, reach + 1))
            for f in shifts
        ]
        return 1 - mpmath.fprod(shares)


@settings(max_examples=2)
@given(st.lists(st.tuples(st.floats(15, 200, width=32), st.floats(-0.5, 0.5, width=32)), min_size=6, max_size=6))
def test_no_verdict_contradicts_the_exact_leak(drawn):
    """The leak of a head in the middle of a large grid: at most the roundoff where it holds, and more if refuted."""
    pairs = {number: moved(*case) for number, case in enumerate(drawn)}
    for number, row in rows_of(pairs).items():
        center, found = pairs[number][1].encoding.center[2, 1].item(), row.part("leak")
        exact = exact_leak(drawn[number][0], [0.0, center - round(center)])
        assert exact <= row.leak or row.leak == 0
        least, most = {Verdict.HOLDS: (0, 1), Verdict.REFUTED: (1, math.inf)}.get(found.verdict, (1 / 8, math.inf))
        assert least * ROUNDOFF <= exact <= most * ROUNDOFF, found


# Either side may be soft.

SIDES = {
    **{(soft, hard): Verdict.REFUTED for soft in (0.1, 3) for hard in (None, 46, 128)},
    (46, 128): "bounded",
    (46, None): "bounded",
    (128, 46): "bounded",
    (None, 46): "bounded",
    (46, 46): "proved",
    (3, 3): "proved",
    (128, 128): "proved",
    (128, None): "proved",
    (None, 128): "proved",
    (200, 128): "proved",
    (3, 4): Verdict.REFUTED,
    (None, 3): Verdict.REFUTED,
}


@pytest.mark.rotated
@pytest.mark.parametrize(("original", "converted"), SIDES)
def test_the_softer_side_decides(rows, original, converted):
    expected, row = SIDES[original, converted], rows["sides", original, converted]
    if expected is Verdict.REFUTED:
        assert (row.verdict, row.part("leak").verdict) == (expected, expected)
        assert row.part("leak").sentence.startswith("in the first network, ") is ((original or 99) < (converted or 99))
    else:
        assert (row.verdict, row.strength) == (Verdict.HOLDS, Strength(expected))
    assert (row.leak > 0) is (min(original or 128, converted or 128) < 128)


def soft_pair(name, turned):
    """Two soft layers, of which one has a change."""
    pair = [line(3), line(3)]
    SOFT[name][0](pair[0 if turned else 1])
    return tuple(pair)


@pytest.mark.rotated
@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("turned", [False, True])
def test_soft_layers_that_attend_alike_are_proved_and_no_others(rows, name, turned):
    row, same = rows["soft", name, turned], SOFT[name][1]
    assert (row.verdict is Verdict.HOLDS) is same, row.findings
    assert row.strength is Strength.PROVED or not same


IDLE = {"soft": (3.0, 0.0), "halfway between pixels": (128.0, 0.5), "soft and off the grid": (3.0, 9.0)}


@pytest.mark.parametrize("which", ["value", "output"])
@pytest.mark.parametrize("name", IDLE)
def test_a_head_with_a_factor_of_zeros_leaks_nothing(name, which):
    alpha, shift = IDLE[name]
    converted = line(128)
    heads(converted, [0, 1, 2, 0])
    other = "output" if converted.value is not None else "value"
    width = 3 if other == "output" else 2
    setattr(converted, other, nn.Parameter(torch.eye(width)[..., None].repeat(1, 1, 4)))
    with changing(converted, "alpha") as numbers:
        numbers[3] = alpha
    with changing(converted, "center") as numbers:
        numbers[3] += shift
    assert not certify(LINE, converted, input_size=(2, 7))
    getattr(converted, which).data[..., 3] = 0.0
    report = certify(LINE, converted, input_size=(2, 7))
    assert (report.verdict, report.strength) == PROVED, report.to_text()


def encoded(family, *values):
    """The layer with heads of another family."""

    def change(layer):
        layer.encoding = Encoding.of(family, *values)
        return layer

    return change


def off(number):
    """The layer with a centre that is not finite."""

    def change(layer):
        with changing(layer, "center") as numbers:
            numbers[1] = number
        return layer

    return change


UNREAD = {
    "generalised": (encoded("generalised", [[-1.0], [0.0], [1.0]]), "C2A101"),
    "learned": (encoded("learned", 3, (7,), 4), "C2A101"),
    "sinusoidal": (encoded("sinusoidal", 3, 1, 4), "C2A101"),
    "content": (lambda layer: MultiHeadSelfAttention(2, 3, layer.encoding, terms="qk+vr"), "C2A101"),
    "a centre that is no number": (off(math.nan), "C2A408"),
    "a centre at infinity": (off(math.inf), "C2A408"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_heads_that_are_not_known_to_be_hard_are_unsupported(kind):
    change, code = UNREAD[kind]
    row = row_of(LINE, change(line(128)))
    assert (row.verdict, decisive(row).code) == (Verdict.UNSUPPORTED, code)
    assert {*FAMILIES} <= {*UNREAD, *HARD}


def test_the_leak_counts_the_exponential_that_was_measured(monkeypatch):
    pair = moved(64.0, 0.0)
    before = row_of(*pair).leak
    measured = leaks.arithmetics
    coarser = {"exp_ulps": 2.0**20}
    monkeypatch.setattr(leaks, "arithmetics", lambda *args: [replace(each, **coarser) for each in measured(*args)])
    assert row_of(*pair).leak > 1.1 * before
