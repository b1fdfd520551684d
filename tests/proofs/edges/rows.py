"""The bound of rows: the proved program and its twin in Python agree, and no bound of a certificate is below it."""

import dataclasses
import math
import shutil
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from licences.domains import DOMAINS, cases, edges
from licences.softmaxes import BEYOND, WRONG_BEYOND, bounds_a_soft_mean, plain_head, soft_head
from softmax_rounding import softmax_error

from conv2attn.theory.bounds import (
    FORMATS,
    WITHOUT_THEOREM,
    Arithmetic,
    ArithmeticPremises,
    Head,
    HeadPremises,
    RoundingBound,
    Setting,
    SoftHeads,
    accumulator_of,
    convolution_bound,
    difference_bound,
    heads_of_row,
    leaked_mass,
    soft_mixing_bound,
    soft_reading,
)
from conv2attn.theory.bounds.row import ONE, geom, prod
from proofs.domain import FLAG
from proofs.formal import extraction
from proofs.ROW import OutputChannel, reads

ALPHAS = (0.03, 0.5, 3.0, 5.0, 20.0, 46.0, 200.0)
HOSTILE = (-(2**400) * ONE, -1, 2**1281, 2**2048 + 1, 2**14_000)
"""Numbers that double their digits 64 times, or are as long themselves, unless they are refused first."""
formats = st.sampled_from(sorted(FORMATS))
sizes = st.floats(0, 2.0**20, allow_subnormal=False)
sums = st.fixed_dictionaries(
    {"terms": st.integers(1, 10**5), "casts": st.integers(0, 3), "bias": st.booleans()}
    | {name: st.booleans() for name in ("truncating", "flush_to_zero")}
)


def heads_of(alpha, axes, side, kind, apart=False):
    return heads_of_row(Head(alpha, (0.0,) * axes), (side,) * axes, Arithmetic(kind, by_axis=apart), 0.0)


@st.composite
def heads(draw):
    axes, apart = draw(st.integers(1, 3)), draw(st.booleans())
    found = heads_of(draw(st.sampled_from(ALPHAS)), axes, draw(st.integers(1, 100)), draw(formats), apart)
    return found or heads_of(3.0, axes, 10, "float32", apart)


@st.composite
def rows(draw):
    """Rows as certificates have them, some of their numbers changed to any others."""
    kind, soft = draw(formats), draw(st.none() | heads())
    row = OutputChannel.of(
        draw(sizes), draw(sizes), draw(sizes), *(Setting.of(**draw(sums), format_name=kind) for _ in "12"), soft
    )
    if draw(st.booleans()):
        name = draw(st.sampled_from([each.name for each in dataclasses.fields(Setting)]))
        row = dataclasses.replace(row, second=changed(draw, row.second, name))
    if soft and draw(st.booleans()):
        name = draw(st.sampled_from(["axes", "alpha", "reach", "keys", "score", "score_lost", "ulps", "exp_lost"]))
        row = dataclasses.replace(row, soft=changed(draw, soft, name))
    return row


def changed(draw, record, name):
    counts = name in ("axes", "reach", "keys", "products", "terms", "casts", "stored")
    likely = st.integers(-1, 40) if counts else st.integers(-1, 2 * ONE)
    return dataclasses.replace(record, **{name: draw(likely | st.sampled_from(HOSTILE))})


@settings(max_examples=200, deadline=None)
@given(kind=formats, ours=sums, theirs=sums, weights=sizes, bias=sizes, radius=sizes)
def test_no_bound_with_exact_heads_is_below_the_proved_one(kind, ours, theirs, weights, bias, radius):
    proved = OutputChannel.of(
        weights, bias, radius, Setting.of(**ours, format_name=kind), Setting.of(**theirs, format_name=kind)
    )
    printed = difference_bound(
        weights, bias, radius, *(convolution_bound(**each, format_name=kind) for each in (ours, theirs))
    )
    places = Fraction(40 + 2 * ours["terms"] + 2 * theirs["terms"]) * (weights + 1) * (radius + 1) * (bias + 1)
    assert proved.proved <= Fraction(printed) + places / ONE  # each step of the proved one rounds up to a place
    assert float(proved.proved) >= 0.999 * printed - 1e-70


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("alpha", [3.0, 5.0, 20.0])
def test_the_error_of_soft_weights_does_not_grow_with_the_grid(kind, alpha):
    small, large = (heads_of(alpha, 2, side, kind).off(2) / ONE for side in (12, 1000))
    u = accumulator_of(kind).unit_roundoff
    assert small <= large <= 1.01 * small
    assert small <= softmax_error(144, kind, 4 * u * alpha * 2 * 24**2)
    assert small <= softmax_error(144, kind) * 20
    leak = heads_of(alpha, 2, 12, kind).leak(2) / ONE
    assert 0.99 * leaked_mass(alpha, 2) <= leak <= 1.01 * leaked_mass(alpha, 2)


def printed_and_proved(function, case, weights, radius):
    """The bound of a row with soft heads on their keys as certificates print it, and as the row itself is bounded."""
    head, keys, arithmetic, score_error = case
    leak, mixing = function(head, keys, arithmetic, score_error)
    terms = 9 * 64
    setting = Setting.of(terms, arithmetic.format)
    row = OutputChannel.of(weights, 0.25, radius, setting, setting, heads_of_row(head, keys, arithmetic, score_error))
    sums = convolution_bound(terms, arithmetic.format)
    return row, difference_bound(weights, 0.25, radius, sums, sums, leak=leak, mixing=mixing)


def on_a_key(case):
    head, keys, arithmetic, score_error = case
    plain = dataclasses.replace(arithmetic, stores_means=False)
    return dataclasses.replace(head, shifts=(0.0,) * len(head.shifts)), keys, plain, score_error


soft_heads = cases(BEYOND).map(lambda case: soft_head(*case))
cases_on_keys = soft_heads.map(on_a_key).filter(lambda case: heads_of_row(*case) is not None)


LICENSED = DOMAINS["ROW", "conv2attn.theory.bounds.soft_mixing_bound"]
FLAGS = [name for name, part in LICENSED.parts.items() if part == FLAG]


@settings(max_examples=100, deadline=None)
@given(case=cases(LICENSED))
def test_a_licensed_bound_rests_on_the_claim_alone(case):
    bound = soft_mixing_bound(*plain_head(*case))
    assert bound.factor == math.inf or bound.claims == {"ROW", "SOFT"}


ON_A_KEY = Head(3.0, (0.0, 0.0))
BROKEN = {
    "maximum known before the sum": (ON_A_KEY, {"fused": True}),
    "sums kept in the accumulator": (ON_A_KEY, {"stores_means": True}),
    "subnormal numbers kept": (ON_A_KEY, {"flushes": True}),
    "every target is a key": (Head(3.0, (0.0, 0.0), 4.0, True), {}),
    "keys are those of a box": (Head(3.0, (0.0,), box=False), {}),
}
"""For each premise of ROW a head and the flags of an arithmetic that break it, and no other premise."""


def test_the_bound_names_its_theorem_where_every_premise_holds():
    arithmetic = Arithmetic("float32")
    for each in (arithmetic, dataclasses.replace(arithmetic, truncates=True), Arithmetic("tf32"), Arithmetic("bf32")):
        assert soft_mixing_bound(ON_A_KEY, (9, 9), each, 0.0).claims == {"ROW", "SOFT"}


def test_the_bound_names_left_where_keys_may_be_left_out():
    arithmetic = Arithmetic("float32", by_axis=True)
    kept, left = (soft_mixing_bound(ON_A_KEY, (9, 9), each, 0.0) for each in (arithmetic, leaving(arithmetic)))
    assert (kept.claims, left.claims) == ({"ROW", "SOFT"}, {"LEFT", "SOFT"})
    assert (kept.factor, kept.absolute) == (left.factor, left.absolute)
    flushing = dataclasses.replace(leaving(arithmetic), flushes=True)
    broken = soft_mixing_bound(ON_A_KEY, (9, 9), flushing, 0.0)
    assert broken.claims == {"LEFT: subnormal numbers kept", WITHOUT_THEOREM}
    assert heads_of_row(ON_A_KEY, (9, 9), leaving(arithmetic), 0.0).exp_lost > 0


def leaving(arithmetic):
    return dataclasses.replace(arithmetic, leaves_out=True)


@pytest.mark.parametrize("premise", BROKEN)
def test_a_broken_premise_takes_the_name_of_the_theorem_away_and_is_told(premise):
    head, flags = BROKEN[premise]
    arithmetic = Arithmetic("float32", **flags)
    bound = soft_mixing_bound(head, (9, 9), arithmetic, 2.0**-20 if arithmetic.fused else 0.0)
    assert bound.claims == {f"ROW: {premise}", WITHOUT_THEOREM}
    leak, _ = soft_reading(head, (9, 9), arithmetic, 2.0**-20 if arithmetic.fused else 0.0)
    assert "ROW" not in leak.claims
    exact = RoundingBound(0.0, 0.0)
    assert WITHOUT_THEOREM in difference_bound(1.0, 0.0, 1.0, exact, exact, leak, bound).claims


def test_every_premise_of_a_head_and_an_arithmetic_is_broken_once():
    fields = [*dataclasses.fields(ArithmeticPremises), *dataclasses.fields(HeadPremises)]
    names = {field.name.replace("_", " ") for field in fields}
    # A head halfway between two pixels has no row at all, so nothing to name a theorem for.
    assert names - BROKEN.keys() == {"scores fall on both sides"}
    assert heads_of_row(Head(3.0, (0.5, 0.0), 0.25), (9, 9), Arithmetic("float32"), 0.0) is None


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_of_the_domain_occurs_in_the_record(flag):
    """A record says whether a flag is set: two cases that differ in it alone have different rows."""
    place = list(LICENSED.parts).index(flag)
    different = 0
    for case in edges(LICENSED):
        both = [heads_of_row(*plain_head(*case[:place], value, *case[place + 1 :])) for value in (False, True)]
        different += None not in both and both[0] != both[1]
    assert different


@settings(max_examples=30, deadline=None)
@given(case=cases(BEYOND))
def test_the_formula_is_the_same_beyond_the_claim(case):
    assert bounds_a_soft_mean(soft_mixing_bound, soft_head(*case))


@pytest.mark.parametrize("wrong", WRONG_BEYOND)
def test_a_wrong_bound_beyond_the_claim_is_noticed(wrong):
    tried = (soft_head(*case) for case in edges(BEYOND))
    assert any(not bounds_a_soft_mean(WRONG_BEYOND[wrong], case) for case in tried)


def is_below(function, case, weights, radius):
    """Whether the printed bound is below the proved one, by more than the places to which that is rounded up.

    Not where a bound for any scores is printed, which rests on no theorem and may be less.
    """
    if "ROW" not in function(*case)[1].claims:
        return False
    row, printed = printed_and_proved(function, case, weights, radius)
    return Fraction(printed) + Fraction(2**20) * (1 + Fraction(weights)) * (1 + Fraction(radius)) / ONE < row.proved


@settings(max_examples=40, deadline=None)
@given(case=cases_on_keys, weights=st.floats(2.0**-10, 2.0**10), radius=st.floats(2.0**-10, 2.0**10))
def test_no_bound_with_soft_heads_is_below_the_proved_one(case, weights, radius):
    assert not is_below(soft_reading, case, weights, radius)


def with_less(part):
    def function(*case):
        leak, mixing = soft_reading(*case)
        if part == "leak":
            return leak * (1 - 2.0**-20), mixing
        return leak, dataclasses.replace(mixing, **{part: getattr(mixing, part) * (1 - 2.0**-10)})

    return function


@pytest.mark.parametrize("part", ["leak", "factor"])
def test_a_bound_that_is_a_little_smaller_is_below_the_proved_one(part):
    head, arithmetic = Head(0.5, (0.0, 0.0)), Arithmetic("float32", 1.61, by_axis=True)
    assert is_below(with_less(part), (head, (40, 40), arithmetic, 0.0), 3.0, 1.0)


@pytest.mark.parametrize(("coarse", "u"), [("tf32", 2.0**-11), ("bf32", 2.0**-8)])
def test_means_of_numbers_that_are_cut_cost_what_is_cut(coarse, u):
    fine, cut = (reads(heads_of(20.0, 2, 12, kind), ONE) / ONE for kind in ("float32", coarse))
    assert 4 * u <= cut - fine <= 5 * u


def test_softmax_of_many_keys_as_torch_computes_it_is_within_the_bound():
    import torch

    for side, alpha in ((40, 5.0), (40, 0.5), (200, 3.0)):
        distance = torch.arange(-side, side + 1, dtype=torch.float64) ** 2
        scores = -alpha * (distance[:, None] + distance).flatten()
        exact, computed = scores.softmax(0), scores.float().softmax(0).double()
        error = (exact - computed).abs().sum().item()
        assert 0 < error <= heads_of(alpha, 2, 2 * side + 1, "float32").off(2) / ONE


def test_numbers_of_no_sum_and_of_no_heads_have_no_bound():
    setting = Setting.of(100, "float32")
    assert OutputChannel.of(1.0, 0.0, 1.0, setting, setting).proved > 0
    assert OutputChannel.of(1.0, 0.0, 1.0, setting, Setting.of(1 << 24, "float32")).proved is None
    soft = heads_of(5.0, 2, 10, "float32")
    assert OutputChannel.of(1.0, 0.0, 1.0, setting, setting, soft).proved > 0
    numbers = {each.name: -1 for each in dataclasses.fields(soft) if each.type is int and each.name != "moves"}
    least = {"alpha": 0, "axes": 0}
    most = {"axes": 17, "reach": 2**20 + 1, "score": ONE, "score_lost": ONE}
    for name, number in [*numbers.items(), *least.items(), *most.items()]:
        changed = dataclasses.replace(soft, **{name: number})
        assert OutputChannel.of(1.0, 0.0, 1.0, setting, setting, changed).proved is None
    for name in [each.name for each in dataclasses.fields(setting)]:
        changed = dataclasses.replace(setting, **{name: -1})
        assert OutputChannel.of(1.0, 0.0, 1.0, setting, changed).proved is None
    assert heads_of(1e-9, 2, 10, "float32") is None
    assert OutputChannel.of(-1.0, 0.0, 1.0, setting, setting).proved is None


def row_of(numbers):
    """The row that a line of integers is."""
    first, second, (soft, *rest) = Setting(*numbers[4:14]), Setting(*numbers[14:24]), numbers[24:]
    scalars, softmax, mean = rest[:10], rest[10:20], rest[20:]
    of = dataclasses.fields(SoftHeads)
    kept = [bool(x) if field.name == "apart" else x for field, x in zip(of, scalars, strict=False)]
    heads = SoftHeads(*kept, Setting(*softmax), Setting(*mean), 2) if soft else None
    return OutputChannel(*numbers[1:4], first, second, heads)


def hostile_rows(apart):
    """A row with each of its numbers in turn as large, or as negative, as no float is."""
    setting = Setting.of(100, "float32")
    row = OutputChannel.of(1.0, 0.5, 1.0, setting, setting, heads_of(5.0, 2, 10, "float32", apart))
    numbers = list(map(int, row.written().split()))
    assert row_of(numbers) == row
    places = [n for n in range(1, len(numbers)) if n not in (24, 26)]
    return [[*numbers[:n], each, *numbers[n + 1 :]] for n in places for each in HOSTILE]


@pytest.mark.parametrize("apart", [False, True])
def test_hostile_numbers_are_refused_before_anything_is_computed(apart):
    start = time.process_time()
    rows = [row_of(numbers) for numbers in hostile_rows(apart)]
    refused = [row.bound is None for row, numbers in zip(rows, hostile_rows(apart), strict=True)]
    too_long = [not all(0 <= x <= 1 << 2048 for x in numbers) for numbers in hostile_rows(apart)]
    assert all(refused[n] for n, hostile in enumerate(too_long) if hostile)
    assert not all(refused)  # a weight of 2^1281 is a number of a float format
    assert time.process_time() - start < 20


def test_many_casts_have_a_bound_unless_they_multiply_beyond_all_numbers():
    setting = Setting.of(100, "bfloat16", casts=1 << 15)
    assert setting.fits
    assert not dataclasses.replace(setting, cast=ONE // 4).fits
    assert not dataclasses.replace(setting, casts=(1 << 16) + 1).fits


def test_heads_of_too_many_keys_or_exponentials_in_doubt_have_no_bound():
    soft = heads_of(1.0, 2, 100, "float32")
    summands = soft.count(2)
    limits = [  # of either number the largest that has a bound
        (lambda keys: dataclasses.replace(soft, keys=keys), (1 << 24) - 1),
        (lambda axes: dataclasses.replace(soft, axes=axes, apart=True), 16),
        (lambda less: dataclasses.replace(soft, mean=dataclasses.replace(soft.mean, terms=summands - less)), 0),
    ]
    for with_number, largest in limits:
        assert with_number(largest).fits
        assert not with_number(largest + 1).fits

    def lossy(lost, *, apart):
        return dataclasses.replace(soft, keys=1, exp_lost=lost, apart=apart)

    half = ONE // (2 * soft.count(1))  # what the exponentials along one axis may lose together: a half
    assert lossy(half, apart=True).fits
    assert not lossy(2 * half, apart=True).fits
    assert not lossy(half, apart=False).fits


@pytest.mark.parametrize("x", [0, 1, ONE // 3, ONE - 1, ONE + 7, 5 * ONE])
def test_every_step_rounds_up(x):
    assert Fraction(prod(x, x), ONE) >= Fraction(x, ONE) ** 2
    assert x >= ONE or Fraction(geom(x), ONE) >= 1 / (1 - Fraction(x, ONE))


if shutil.which("coqc") and shutil.which("ocamlfind"):

    @pytest.fixture(scope="module")
    def program(programs):
        return programs[1]

    @pytest.mark.slow
    @settings(max_examples=30, deadline=None)
    @given(each=st.lists(rows(), min_size=10, max_size=20))
    def test_the_proved_program_and_its_twin_agree(program, each):
        assert extraction.bounds_of_rows(program, "\n".join(row.written() for row in each)) == [r.bound for r in each]

    @pytest.mark.parametrize("apart", [False, True])
    def test_the_proved_program_refuses_hostile_numbers_too(program, apart):
        hostile = hostile_rows(apart)
        text = "\n".join(" ".join(map(str, numbers)) for numbers in hostile)
        assert extraction.bounds_of_rows(program, text) == [row_of(numbers).bound for numbers in hostile]

    @pytest.mark.slow
    @settings(max_examples=20, deadline=None)
    @given(case=cases_on_keys, weights=st.floats(2.0**-10, 2.0**10), radius=st.floats(2.0**-10, 2.0**10))
    def test_certificates_with_soft_heads_are_those_of_the_proved_program(program, case, weights, radius):
        row, _ = printed_and_proved(soft_reading, case, weights, radius)
        (bound,) = extraction.bounds_of_rows(program, row.written())
        assert bound == row.bound
        assert not is_below(soft_reading, case, weights, radius)

    @pytest.mark.slow
    def test_the_proved_program_refuses_what_is_no_row(program):
        row = OutputChannel.of(
            1.0, 0.0, 1.0, *[Setting.of(100, "float32")] * 2, heads_of(5.0, 2, 10, "float32")
        ).written()
        assert len(extraction.bounds_of_rows(program, row)) == 1
        for text in (row + " 0", row.rpartition(" ")[0], row.replace(" ", "\t"), "2" + row[1:], row + "."):
            assert extraction.bounds_of_rows(program, text) == []
