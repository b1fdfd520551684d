"""The arithmetic really used decides what is said: TF32, Winograd, flushing, and inputs that are no numbers."""

import pytest
import torch
from equivalence.planted import network, taps, ulp
from torch import nn

import conv2attn
from conv2attn.attention.probes import indirect_convolution, spread_of_spike
from conv2attn.bounds import RoundingBound, convolution_bound, difference_bound
from conv2attn.equivalence import certify
from conv2attn.equivalence.computed.arithmetic import Arithmetic
from conv2attn.equivalence.computed.faithful import departure
from conv2attn.equivalence.computed.measure import Measured
from conv2attn.equivalence.computed.rounding import coefficients, difference_bounds, what_differs
from conv2attn.equivalence.layer import judge_measured
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict

SETTINGS = [
    (Arithmetic("none", "ieee"), "float32", "float32"),
    (Arithmetic("ieee", "none"), "float32", "float32"),
    (Arithmetic("tf32", "ieee"), "float32", "tf32"),
    (Arithmetic("none", "tf32"), "float32", "tf32"),
    (Arithmetic("tf32", "bf16"), "float32", "bf32"),
    (Arithmetic("bf16", "tf32"), "float32", "bf32"),
    (Arithmetic("bf16", "tf32"), "float64", "float64"),
    (Arithmetic("tf32", "tf32"), "bfloat16", "bfloat16"),
]


@pytest.fixture
def nnpack():
    """Convolutions by NNPACK, which chooses Winograd for batches of 16 or more."""
    assert torch.backends.nnpack.is_available()
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before)


def layer(**kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Conv2d(16, 16, 3, padding=1, **kwargs)


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("settings", "stored", "used"), SETTINGS)
def test_recorded_settings_decide_the_format(settings, stored, used):
    assert settings.format(stored) == used


@pytest.mark.parametrize(("stored", "casts"), [("bfloat16", 202), ("float16", 2), ("float32", 2)])
def test_sums_that_may_be_stored_are_counted_twice_each(stored, casts):
    assert Arithmetic("none", "none", frozenset({"bfloat16"})).casts(stored, 100) == casts


@pytest.mark.parametrize("alpha", [3, 46, 92, 94])
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_no_bound_is_given_where_stored_sums_mix_what_is_not_one_hot(monkeypatch, alpha, stored):
    original, converted = (reading_of(each.bfloat16()) for each in (layer(), conv2attn.convert(layer(), alpha=alpha)))
    settings = Arithmetic("none", "none", frozenset({stored}))
    monkeypatch.setattr(Arithmetic, "of", staticmethod(lambda device: settings))
    known = alpha == 94 or stored == "float16"
    assert (difference_bounds(original, converted, 1.0, (9, 9)) is not None) is known
    assert (difference_bounds(converted, original, 1.0, (9, 9)) is not None) is known


def test_sums_stored_in_half_precision_make_the_bound_larger(monkeypatch):
    original, converted = (reading_of(each.bfloat16()) for each in (layer(), conv2attn.convert(layer())))
    plain = difference_bounds(original, converted, 1.0, (9, 9))
    settings = Arithmetic("none", "none", frozenset({"bfloat16"}))
    monkeypatch.setattr(Arithmetic, "of", staticmethod(lambda device: settings))
    assert all(50 * a < b for a, b in zip(plain, difference_bounds(original, converted, 1.0, (9, 9)), strict=True))


@pytest.mark.parametrize(
    "flags", [(True, True, True), (False, False, False), (False, True, False), (True, False, True)]
)
def test_what_a_gpu_may_store_is_read_from_its_settings(flags):
    names = ("bf16_reduced_precision_reduction", "fp16_reduced_precision_reduction", "fp16_accumulation")
    cublas = torch.backends.cuda.matmul
    before = [getattr(cublas, f"allow_{name}") for name in names]
    try:
        for name, value in zip(names, flags, strict=True):
            setattr(cublas, f"allow_{name}", value)
        stored = {"bfloat16"} if flags[0] else set()
        assert Arithmetic.of("cuda").stored_sums == stored | ({"float16"} if flags[1] or flags[2] else set())
        assert Arithmetic.of("cpu").stored_sums == set()
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(cublas, f"allow_{name}", value)


def test_a_subnormal_weight_that_may_be_cut_to_nothing_is_counted(monkeypatch):
    original = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(original.weight, 2.0**-140)
    pair = reading_of(original), reading_of(conv2attn.convert(original))
    assert max(difference_bounds(*pair, 1.0, (9, 9))) < 2.0**-140
    monkeypatch.setattr(Arithmetic, "of", staticmethod(lambda device: Arithmetic("bf16", "none")))
    assert min(difference_bounds(*pair, 1.0, (9, 9))) > 2.0**-126


@pytest.mark.parametrize(("precision", "factor"), [("tf32", 20), ("bf16", 100)])
def test_cut_products_make_the_bound_larger_by_their_roundoff(monkeypatch, precision, factor):
    original = reading_of(layer())
    converted = reading_of(conv2attn.convert(layer()))
    plain = difference_bounds(original, converted, 1.0, (9, 9))
    monkeypatch.setattr(Arithmetic, "of", staticmethod(lambda device: Arithmetic(precision, precision)))
    reduced = difference_bounds(original, converted, 1.0, (9, 9))
    assert all(factor * a < b for a, b in zip(plain, reduced, strict=True))


@pytest.fixture
def settings():
    """The four settings, reset afterwards: torch refuses to tell those of its older kind while they contradict."""
    gpu, cpu = (torch.backends.cudnn.conv, torch.backends.cuda.matmul), torch.backends.mkldnn
    places = (*gpu, cpu.conv, cpu.matmul)
    before = [place.fp32_precision for place in places]
    yield places
    for place, value in zip(places, before, strict=True):
        place.fp32_precision = value


def test_the_settings_of_this_machine_are_read(settings):
    for chosen in (("tf32", "ieee", "bf16", "tf32"), ("ieee", "tf32", "ieee", "bf16")):
        for place, value in zip(settings, chosen, strict=True):
            place.fp32_precision = value
        now = Arithmetic.of("cuda")
        assert (now.convolution, now.product) == chosen[:2]
        assert Arithmetic.of("cpu") == Arithmetic(*chosen[2:])


def test_a_certificate_counts_products_that_may_be_formed_in_bfloat16(settings):
    def bound():
        return conv2attn.certify(layer(), conv2attn.convert(layer()), input_size=(16, 9, 9)).rows[0].bound

    plain = bound()
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    assert bound() > 100 * plain


def test_a_direct_convolution_leaves_no_trace():
    assert indirect_convolution(torch.zeros(1, 3, 4, 4)) is None
    original = layer()
    inside = (slice(4, 7), slice(4, 7))
    assert spread_of_spike(original, torch.Size((16, 16, 10, 10)), torch.float32, "cpu", inside) == 0
    narrow = (slice(5, 6), slice(4, 7))
    assert spread_of_spike(original, torch.Size((16, 16, 10, 10)), torch.float32, "cpu", narrow) > 1e3


def test_winograd_is_measured_and_named(nnpack):
    assert "no direct sum" in indirect_convolution(torch.zeros(1, 3, 4, 4))
    assert indirect_convolution(torch.zeros(1, 3, 4, 4, dtype=torch.float64)) is None
    original = layer()
    report = certify(original, conv2attn.convert(original), images=images(16, 16, 24, 24))
    row = report.rows[0]
    assert (report.verdict, report.strength, row.bound) == (Verdict.HOLDS, Strength.PROVED, None)
    assert "no direct sum" in report.to_text()
    assert "NNPACK" in report.to_text() or "no direct sum" in dict(report.circumstances)["kernels"]
    strict = certify(original, conv2attn.convert(original), images=images(16, 16, 24, 24), tolerance=100.0)
    assert strict.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("alpha", [128, 100, 60, 40])
def test_bounds_hold_with_and_without_flushing(alpha):
    original = layer()
    converted = conv2attn.convert(original, alpha=alpha)
    given = images(2, 16, 9, 8) * torch.logspace(-30, 3, 8)
    for flush in (True, False):
        torch.set_flush_denormal(flush)
        try:
            row = certify(original, converted, images=given).rows[0]
        finally:
            torch.set_flush_denormal(False)
        assert row.verdict is Verdict.HOLDS
        assert 0 <= row.max_error <= row.bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bounds_count_what_flushing_takes_from_numbers_that_are_barely_normal(dtype):
    smallest = torch.finfo(dtype).smallest_normal
    original = nn.Conv2d(4, 2, 3, padding=1, bias=False, dtype=dtype)
    original.weight.data.fill_(1.0)
    converted, soft = (conv2attn.convert(original, alpha=alpha) for alpha in ("auto", 60))
    readings = [reading_of(each) for each in (original, converted)]
    gradual = difference_bounds(*readings, smallest, (9, 8))
    torch.set_flush_denormal(True)
    try:
        flushing = difference_bounds(*readings, smallest, (9, 8))
        still = (torch.full((1,), smallest, dtype=dtype) / 2).float().item() if dtype != torch.float64 else 0.0
        report = certify(original, converted, images=images(1, 4, 9, 8).to(dtype))
        leaking = certify(original, soft, images=images(1, 4, 9, 8).to(dtype))
    finally:
        torch.set_flush_denormal(False)
    assert still == 0.0
    assert report.verdict is leaking.verdict is Verdict.HOLDS
    lost = 2 * 36 * smallest  # each input of each tap becomes 0 on one side, and on the other it does not
    for more, less in zip(flushing, gradual, strict=True):
        assert less < lost < more < 100 * lost


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_certified(dtype):
    original = layer().to(dtype)
    report = certify(original, conv2attn.convert(original), images=images(2, 16, 9, 8).to(dtype))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
    row = report.rows[0]
    assert 0 <= row.max_error <= row.bound


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("engine", ["conv", "gather", "separable", "sdpa", "dense"])
@pytest.mark.parametrize("sides", [(9, 8), (4, 5)], ids=["wide", "narrow"])
@torch.no_grad()
def test_what_is_not_finite_spreads_as_far_as_the_engine_looks(engine, number, sides):
    original = layer()
    converted = conv2attn.set_engine(conv2attn.convert(original), engine)
    image = images(1, 16, *sides)
    image[0, 3, 2, 3] = number
    spoiled = ~converted(image).isfinite()
    expected = ~original(image).isfinite()
    assert expected.sum() == 9 * 16
    if engine in ("conv", "gather") or (engine == "separable" and sides == (9, 8)):
        assert torch.equal(spoiled, expected)
    else:
        assert spoiled.all()


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_network_that_meets_what_is_not_finite_is_undecided(number):
    original = layer()
    image = images(1, 16, 9, 8)
    image[0, 3, 4, 5] = number
    assert certify(original, conv2attn.convert(original), images=image).exit_code == 3


@pytest.fixture(params=[True, False], ids=["oneDNN", "native"])
def library(request):
    """Convolutions by oneDNN where it has them, and by torch's own code."""
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(request.param)
    yield
    torch._C._set_mkldnn_enabled(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("settings", [{}, {"stride": 2}, {"groups": 4}])
@torch.no_grad()
def test_a_transposed_convolution_adds_its_taps_in_the_format_it_is_stored_in(library, dtype, settings):
    """Terms of one sign, so that partial sums grow: a convolution's bound is exceeded, a transposed one's is not."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        original = nn.ConvTranspose3d(16, 16, 3, **settings).to(dtype)
    for parameter in original.parameters():
        parameter.abs_()
    given = torch.rand(2, 16, 9, 8, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    row = certify(original, conv2attn.convert(original), images=given).rows[0]
    assert row.verdict is Verdict.HOLDS
    assert 0 <= row.max_error <= row.bound
    exact = torch.nn.functional.conv_transpose3d(
        *(tensor.double() for tensor in (given, original.weight, original.bias)), **settings
    )
    terms = 16 // original.groups * 27
    error = (original(given).double() - exact).abs() / exact
    first = reading_of(original)
    assert first.partial_sums == 27
    assert error.max() <= convolution_bound(terms, row_format(dtype), casts=2 + first.partial_sums).factor
    if not torch.backends.mkldnn.enabled:
        assert not error.max() <= convolution_bound(terms, row_format(dtype), casts=2).factor


def row_format(dtype):
    return str(dtype).removeprefix("torch.")


def test_bounds_in_float16_count_no_underflow_where_nothing_is_multiplied():
    original = layer().half()
    row = certify(original, conv2attn.convert(original), images=images(2, 16, 9, 8).half()).rows[0]
    assert row.bound < 0.2


@pytest.mark.parametrize("number", [1e38, 3e38])
def test_where_the_original_overflows_nothing_is_refuted(number):
    original = network()
    report = certify(original, conv2attn.convert(original), input_size=(4, 14, 11), input_range=number)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert report.rows[0].bound is None
    assert "the original can overflow at this range" in report.rows[0].decisive.sentence
    assert all(row.verdict is not Verdict.REFUTED for row in report.rows)


def test_a_genuine_difference_is_refuted_where_the_original_overflows_too():
    original = network()
    converted = conv2attn.convert(original)
    ulp(taps(converted.square), (3, 2, 1))
    report = certify(original, converted, input_size=(4, 14, 11), input_range=1e38)
    assert [row.name for row in report.rows if row.verdict is Verdict.REFUTED] == ["square"]


def test_just_below_the_overflow_the_bound_holds_and_what_is_not_finite_is_refuted():
    original = nn.Conv2d(1, 1, 1, bias=False)
    original.weight.data.fill_(2.0)
    converted = conv2attn.convert(original)
    given = torch.full((1, 1, 2, 3), 1.6e38)
    row = certify(original, converted, images=given).rows[0]
    assert (row.verdict, row.max_error) == (Verdict.HOLDS, 0)
    assert certify(original, converted, images=given * 1.1).rows[0].verdict is Verdict.UNDECIDED
    converted.register_forward_hook(lambda module, args, output: output * torch.inf)
    assert certify(original, converted, images=given).verdict is Verdict.REFUTED


def test_a_tolerance_is_not_exceeded_where_only_the_original_is_infinite():
    original = layer()
    report = certify(original, conv2attn.convert(original), input_size=(16, 9, 8), input_range=3e38, tolerance=1.0)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert not report.witnesses


@pytest.mark.parametrize("number", [1e39, 1e308])
def test_a_range_beyond_the_dtype_is_a_usage_error(number):
    with pytest.raises(UsageError, match="is beyond torch"):
        certify(layer(), conv2attn.convert(layer()), input_size=(16, 9, 8), input_range=number)


def test_a_faulty_kernel_of_the_original_is_blamed_and_refutes_nothing():
    """torch 2.13 gives noise for this convolution where oneDNN computes it with channels innermost."""
    original = nn.Conv2d(3, 9, (2, 4), stride=(1, 2), dilation=(3, 1), groups=3, dtype=torch.bfloat16)
    seen = Measured(max_error=1e19, input_range=1.0, calls=1, departure=1e19)
    finding = judge_measured(seen, 0.5, same=True)
    assert finding.verdict is Verdict.UNDECIDED
    assert "the original itself is off by 1e+19" in finding.sentence
    seen.departure = 0.01
    assert judge_measured(seen, 0.5, same=True).verdict is Verdict.REFUTED
    given = images(3, 3, 5, 4).bfloat16()
    right = original(given)
    assert departure(original, given, right) < 0.1
    assert departure(original, given, right + 7) > 6
    assert departure(original, given[0], right[0]) < 0.1
    assert departure(nn.ReLU(), given, right + 7) == 0
    assert departure(original, given.float(), right.float() + 7) == 0
    innermost = given.contiguous(memory_format=torch.channels_last)
    assert certify(original, conv2attn.convert(original), images=innermost).verdict is not Verdict.REFUTED
    called = Called(original)
    converted = conv2attn.convert(called, example_input=given)
    assert certify(called, converted, images=innermost).verdict is not Verdict.REFUTED


class Called(nn.Module):
    """The same convolution called as a function."""

    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, given):
        result = nn.functional.conv2d(given, self.weight, self.bias, (1, 2), 0, (3, 1), 3)
        return result.isfinite()


def test_a_network_too_large_for_the_memory_is_not_refuted(monkeypatch):
    original = layer()
    converted = conv2attn.convert(original)

    def full(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("conv2attn.attention.layer.MultiHeadSelfAttention.evaluate", full)
    with pytest.raises(UsageError, match="memory"):
        certify(original, converted, images=images(1, 16, 9, 8))


def test_a_size_beyond_the_limit_is_a_usage_error():
    with pytest.raises(UsageError, match="has more than 2\\^26 numbers"):
        certify(layer(), conv2attn.convert(layer()), input_size=(16, 2**12, 2**10 + 1))
    for size in ((16, 0, 5), (16, -3, 5), (16, 7.5, 5)):
        with pytest.raises(UsageError, match="not positive whole numbers"):
            certify(layer(), conv2attn.convert(layer()), input_size=size)


@pytest.mark.parametrize("leak", [0.0, 1e-9, 0.3])
@pytest.mark.parametrize("reach", [0.0, 1e-3, 7.0, 1e30])
def test_the_bound_of_a_channel_is_affine_in_its_weights_and_its_bias(leak, reach):
    given = (reach, convolution_bound(147, "float32"), convolution_bound(49, "float16", casts=2))
    mixing = RoundingBound(1e-6, 1e-38)
    per_weight, per_bias, constant = coefficients(*given, leak, mixing)
    for weights, bias in ((0.0, 0.0), (3.7, 0.0), (0.0, 1e4), (12.5, 0.03), (1e-20, 1e-20)):
        whole = difference_bound(weights, bias, *given, leak=leak, mixing=mixing)
        assert whole <= (weights * per_weight + bias * per_bias + constant) * (1 + 2.0**-30) <= whole * (1 + 2.0**-28)


def test_weights_that_plainly_are_equal_differ_by_nothing_and_others_by_what_they_do():
    original = layer()
    readings = reading_of(original), reading_of(conv2attn.convert(original))
    assert not what_differs(*readings)[0].any()
    converted = conv2attn.convert(original)
    ulp(taps(converted), (4, 7, 3))
    taken, _ = what_differs(readings[0], reading_of(converted))
    assert taken.nonzero().tolist() == [[7]]
    converted = conv2attn.convert(original)
    converted.encoding.center.data[[0, 1]] = converted.encoding.center.data[[1, 0]]
    assert (what_differs(readings[0], reading_of(converted))[0] > 1e-3).all()
