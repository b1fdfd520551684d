"""The bound of a row, in the arithmetic of this machine: never exceeded, close, and larger with all that rounds."""

import statistics
from dataclasses import replace

import pytest
import torch
from equivalence import planted
from equivalence.pairs import rows_of
from equivalence.planted import taps, ulp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from benchmarks.tightness import CASES, SHORT, measure, shuffled, table
from conv2attn.attention.probes import indirect_convolution, spread_of_spike
from conv2attn.bounds import convolution_bound, gamma, leaked_mass
from conv2attn.equivalence import certify
from conv2attn.equivalence.arithmetic import Arithmetic
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict

FORMATS = {
    dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}


def layer(channels=(16, 16), kernel=3, dtype=torch.float32, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Conv2d(*channels, kernel, **{"padding": 1, **options}).to(dtype)


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def bound(original, converted, reach=1.0, sides=(9, 8)):
    """The bound of the row for all inputs up to `reach`."""
    image = torch.full((1, original.in_channels, *sides), reach, dtype=original.weight.dtype)
    return certify(original, converted, images=image).rows[0].bound


def cancelling(layer):
    """Head 0 in three that add up to it exactly, two of them large."""
    planted.heads(layer, [0, 0, *range(layer.heads)])
    whole = taps(layer)[0].clone()
    coarse = (whole * 2**5).round() / 2**5
    for head, part in enumerate((coarse + 2**4, whole - coarse, torch.full_like(whole, -(2**4)))):
        taps(layer)[head] = part


def factored(layer, width=5):
    """Both factors random, whose products are formed when the layer runs."""
    generator = torch.Generator().manual_seed(2)
    shapes = (width * layer.groups, layer.d_in // layer.groups), (layer.d_out, width)
    layer.d_head = width * layer.groups
    for name, shape in zip(("value", "output"), shapes, strict=True):
        numbers = torch.randn(*shape, layer.heads, generator=generator).to(layer.bias.dtype)
        setattr(layer, name, nn.Parameter(numbers))


CHANGES = {
    "nothing": lambda layer: None,
    "weights": lambda layer: taps(layer)[-1].add_(0.25),
    "biases": lambda layer: layer.bias.data.mul_(-3),
    "cancelling heads": cancelling,
    "random factors": factored,
    "rewritten factors": planted.rewritten,
    "a centre between pixels": lambda layer: layer.encoding.center.data[0].sub_(0.25),
    "one soft head": lambda layer: layer.encoding.alpha.data[-1:].fill_(1.5),
}


@st.composite
def pairs(draw):
    """A convolution, its conversion with a change, and images that favour a difference."""
    seed, dtype = draw(st.integers(0, 10**6)), draw(st.sampled_from([*FORMATS]))
    groups, change = draw(st.sampled_from([1, 2])), draw(st.sampled_from([*CHANGES]))
    generator = torch.Generator().manual_seed(seed)
    original = layer((4, 6), draw(st.sampled_from([1, 2, 3])), dtype, groups=groups)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
        original.weight.mul_(2.0 ** torch.randint(-6, 7, (6, 1, 1, 1), generator=generator))
    converted = conv2attn.convert(original, alpha=draw(st.sampled_from(["auto", 60.0, 30.0, 4.0, 0.7])))
    CHANGES[change](converted)
    reach = draw(st.sampled_from([1e-4, 1.0, 50.0]))
    image = ((torch.rand(2, 4, 5, 6, generator=generator) * 2 - 1) * reach).to(dtype)
    image = torch.where(torch.rand(image.shape, generator=generator) < 0.5, image.sign() * reach, image).to(dtype)
    return original, converted, image


@settings(max_examples=5)
@given(st.lists(pairs(), min_size=8, max_size=8))
def test_no_input_exceeds_the_bound(drawn):
    """Whatever differs, in every format, engine and order of the heads."""
    generator = torch.Generator().manual_seed(0)
    for number, row in rows_of(dict(enumerate(drawn))).items():
        original, converted, image = drawn[number]
        assert row.part("geometry").verdict is Verdict.HOLDS
        assert row.max_error <= row.bound
        for engine in ("dense", "sdpa"):
            other = conv2attn.set_engine(shuffled(converted, generator), engine)
            if engine == "sdpa" and other.why_engine(image)["sdpa"] != "exact":
                continue
            with torch.no_grad():
                difference = (original(image).double() - other(image).double()).abs().max().item()
            assert difference <= row.bound, engine


@pytest.mark.slow
def test_the_median_ratio_is_under_100_up_to_500_terms():
    short = [(channels, size) for channels, size in CASES if channels * size**2 <= SHORT]
    found = [measure(channels, size, 128.0, 10) for channels, size in short]
    assert all(0 < each.worst <= each.bound for each in found)
    assert statistics.median(each.ratio for each in found) < 100, table(found)


def test_the_ratio_of_a_leaking_layer_is_small():
    found = measure(8, 3, 3.0, 4)
    assert found.worst <= found.bound < 10 * found.worst


def sums(original):
    """The largest sum of an output's |weights|."""
    return original.weight.detach().double().abs().sum((1, 2, 3)).max().item()


def one_of(dtype=torch.float32, change=lambda layer: None, alpha="auto", **options):
    original = layer((4, 6), dtype=dtype, **options)
    converted = conv2attn.convert(original, alpha=alpha)
    change(converted)
    return original, converted


def leaking():
    original, converted = one_of(alpha=5)
    return original, converted, 2 * leaked_mass(5.0, 2) * sums(original)


def rounding(dtype):
    original, converted = one_of(dtype)
    return original, converted, 2 * sums(original) * convolution_bound(36, FORMATS[dtype], casts=2).factor


def with_other_weights():
    original, converted = one_of(change=lambda layer: taps(layer)[1].add_(0.25))
    return original, converted, 4 * 0.25


def with_other_biases():
    original, converted = one_of(change=lambda layer: layer.bias.data[2].add_(7.0))
    return original, converted, 7.0


def with_a_bias_alone():
    original, converted = one_of(bias=False)
    converted.bias = nn.Parameter(torch.full((6,), -7.0))
    return original, converted, 7.0


def with_factors():
    original, converted = one_of(change=factored)
    size = torch.einsum("ich,och->", converted.value.detach().abs().transpose(0, 1), converted.output.detach().abs())
    original.weight.data = converted.weights.taps().detach().unflatten(0, (3, 3)).permute(2, 3, 0, 1).contiguous()
    return original, converted, 2 * gamma(7, 2.0**-24) * size.item() / 6


def stored_partial_sums():
    """A transposed convolution adds its taps in the format that they are stored in."""
    original = nn.ConvTranspose2d(4, 6, 3).bfloat16()
    weight = original.weight.detach().double().abs().sum((0, 2, 3)).max().item()
    return original, conv2attn.convert(original), weight * convolution_bound(36, "bfloat16", casts=11).factor


PARTS = {
    "the leak": leaking,
    "other weights": with_other_weights,
    "other biases": with_other_biases,
    "a bias on one side": with_a_bias_alone,
    "products that are formed": with_factors,
    "partial sums that are stored": stored_partial_sums,
    **{f"rounding in {name}": lambda dtype=dtype: rounding(dtype) for dtype, name in FORMATS.items()},
}


REACHES = (1.0, 0.25, 37.0)


def up_to(reach, original, converted, *_):
    """A pair, and an image of numbers of this size."""
    return original, converted, torch.full((1, 4, 9, 8), reach, dtype=original.weight.dtype)


@pytest.fixture(scope="module")
def bounds():
    """For each part and range the bound, what it has to count, and the bound of a right conversion."""
    made = {(part, reach): PARTS[part]() for part in PARTS for reach in REACHES}
    rows = rows_of({case: up_to(case[1], *pair) for case, pair in made.items()})
    plain = rows_of({case: up_to(case[1], *one_of(pair[0].weight.dtype)) for case, pair in made.items()})
    return {case: (rows[case].bound, pair[2], plain[case].bound) for case, pair in made.items()}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("reach", REACHES)
def test_the_bound_counts_each_part_and_grows_with_the_range(bounds, part, reach):
    found, least, plain = bounds[part, reach]
    scaled = least if "bias" in part else least * reach
    assert scaled <= found <= 10 * scaled + 30 * plain


def test_where_sums_are_too_long_no_bound_is_known():
    """Of a soft head's mean over 2^24 keys; a hard head's is one number."""
    original = layer((1, 1), 1, padding=0)
    image = torch.ones(1, 1, 2**11, 2**12)
    assert certify(original, conv2attn.convert(original), images=image).rows[0].bound > 0


# What this machine is set to.


@pytest.fixture
def precisions():
    """The precision settings of this processor, reset afterwards."""
    places = torch.backends.mkldnn.conv, torch.backends.mkldnn.matmul
    before = [place.fp32_precision for place in places]
    yield places
    for place, value in zip(places, before, strict=True):
        place.fp32_precision = value


PRECISIONS = {
    ("ieee", "ieee"): 1,
    ("tf32", "ieee"): 20,
    ("ieee", "tf32"): 20,
    ("bf16", "tf32"): 100,
    ("tf32", "bf16"): 100,
}


@pytest.mark.parametrize("chosen", PRECISIONS)
def test_products_that_may_be_cut_are_counted_by_the_coarsest_setting(precisions, chosen):
    original, converted = one_of()
    plain, double = bound(original, converted), bound(*one_of(torch.float64))
    for place, value in zip(precisions, chosen, strict=True):
        place.fp32_precision = value
    assert bound(original, converted) >= PRECISIONS[chosen] * plain
    assert bound(*one_of(torch.float64)) == double


def test_half_precision_sums_on_a_gpu_may_truncate():
    for dtype in ("bfloat16", "float16"):
        there, here = Arithmetic.of("cuda"), Arithmetic.of("cpu")
        assert there.rounding(dtype, 36).factor > replace(there, truncated_sums=frozenset()).rounding(dtype, 36).factor
        assert here.rounding(dtype, 36) == convolution_bound(36, dtype, casts=2)
        assert here.bounds_means(dtype)
        assert not replace(there, stored_sums=frozenset()).bounds_means(dtype)


def test_parts_of_a_sum_that_are_stored_each_lose_what_underflows():
    apart = Arithmetic.of("cpu").rounding("float16", 36, added=9)
    assert apart == convolution_bound(36, "float16", casts=11, stored=20)
    assert apart.absolute > convolution_bound(36, "float16", casts=11).absolute


def test_a_subnormal_weight_that_may_be_cut_to_nothing_is_counted(precisions):
    original = layer((1, 1), 1, padding=0, bias=False)
    nn.init.constant_(original.weight, 2.0**-140)
    assert bound(original, conv2attn.convert(original)) < 2.0**-140
    precisions[0].fp32_precision = "bf16"
    assert bound(original, conv2attn.convert(original)) > 2.0**-126


@pytest.fixture
def flushing():
    yield torch.set_flush_denormal
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_that_a_thread_flushes_are_counted(flushing, dtype):
    smallest = torch.finfo(dtype).smallest_normal
    original = layer((4, 2), bias=False, dtype=dtype)
    original.weight.data.fill_(1.0)
    converted = conv2attn.convert(original)
    gradual = bound(original, converted, smallest)
    flushing(True)
    lost = 2 * 36 * smallest  # each input of each tap becomes 0 on one side, and on the other it does not
    flushed = bound(original, converted, 2 * smallest)
    flushing(False)
    assert gradual < lost < flushed < 200 * lost


@pytest.mark.parametrize("alpha", [128, 100, 60, 40])
@pytest.mark.parametrize("flush", [False, True])
def test_the_bound_holds_with_and_without_flushing(flushing, alpha, flush):
    original = layer()
    converted = conv2attn.convert(original, alpha=alpha)
    flushing(flush)
    row = certify(original, converted, images=images(2, 16, 9, 8) * torch.logspace(-30, 3, 8)).rows[0]
    flushing(False)
    assert row.verdict is Verdict.HOLDS
    assert row.max_error <= row.bound


@pytest.fixture(params=[True, False], ids=["oneDNN", "native"])
def library(request):
    """Convolutions by oneDNN, and by torch's own code, where NNPACK chooses Winograd for batches of 16 or more."""
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(request.param)
    yield request.param
    torch._C._set_mkldnn_enabled(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 4}], ids=str)
@torch.no_grad()
def test_sums_of_one_sign_in_a_transposed_convolution_stay_within_the_bound(library, dtype, options):
    original = nn.ConvTranspose3d(16, 16, 3, **options).to(dtype)
    for parameter in original.parameters():
        parameter.abs_()
    given = torch.rand(2, 16, 7, 6, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    row = certify(original, conv2attn.convert(original), images=given).rows[0]
    assert row.verdict is Verdict.HOLDS
    assert row.max_error <= row.bound
    exact = torch.nn.functional.conv_transpose3d(
        *(t.double() for t in (given, original.weight, original.bias)), **options
    )
    relative = ((original(given).double() - exact).abs() / exact).max()
    terms = 16 // original.groups * 27
    assert relative <= convolution_bound(terms, FORMATS[dtype], casts=2 + 27).factor
    if not library:
        assert not relative <= convolution_bound(terms, FORMATS[dtype], casts=2).factor


def test_a_convolution_that_is_no_direct_sum_has_no_bound_and_the_report_says_so(library):
    original = layer()
    report = certify(original, conv2attn.convert(original), images=images(16, 16, 24, 24))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED)
    assert (report.rows[0].bound is None) is not library
    assert ("no direct sum" in report.to_text()) is not library
    if not library:
        assert "no direct sum" in indirect_convolution(torch.zeros(1, 3, 4, 4))
        asked = certify(original, conv2attn.convert(original), images=images(16, 16, 24, 24), tolerance=100.0)
        assert asked.verdict is Verdict.UNDECIDED


class Twice(nn.Module):
    """One layer called on an image and on a corner of it."""

    def __init__(self, made, corner, last):
        super().__init__()
        self.conv, self.corner, self.last = made, corner, last

    def forward(self, image):
        small = image[(Ellipsis, *map(slice, self.corner))]
        first, second = (image, small) if self.last else (small, image)
        return self.conv(first).mean((2, 3)) + self.conv(second).mean((2, 3))


CIRCULAR = {"padding": 3, "padding_mode": "circular"}
SPIKES = {
    "alone": (3, {}, (5, 7), None),
    "stride": (3, {"padding": 0, "stride": 2}, (5, 7), None),
    "wide padding": (3, {"padding": 9}, (5, 7), None),
    "dilation and stride": (3, {"padding": 0, "dilation": (2, 3), "stride": (1, 3)}, (5, 7), None),
    "padding that may copy the middle": (3, {"padding_mode": "replicate"}, (2, 7), None),
    "two sizes": (3, {}, (16, 16), (4, 5)),
    "two sizes and a stride": (3, {"stride": 2, "padding": 0}, (9, 12), (9, 3)),
    "two sizes, circular": (7, CIRCULAR, (16, 16), (4, 4)),
    "two sizes, circular and long": (7, CIRCULAR, (16, 5), (5, 16)),
    "two sizes, reflected": (5, {"padding": 2, "padding_mode": "reflect"}, (12, 9), (3, 7)),
}


@pytest.mark.parametrize(("name", "last"), [(n, last) for n in SPIKES for last in (False, True)[: 1 + ("two" in n)]])
def test_a_direct_sum_is_one_on_every_size_that_it_met(name, last):
    kernel, options, size, corner = SPIKES[name]
    made = layer((2, 2), kernel, **options)
    original = Twice(made, corner or (), last)
    row = certify(original, conv2attn.convert(original), images=torch.rand(1, 2, *size)).rows[0]
    assert row.bound is not None
    assert row.max_error <= row.bound


def test_a_spike_is_seen_where_a_kernel_does_not_look():
    original, shape = layer(), torch.Size((16, 16, 10, 10))
    assert spread_of_spike(original, shape, torch.float32, "cpu", (slice(4, 7), slice(4, 7))) == 0
    assert spread_of_spike(original, shape, torch.float32, "cpu", (slice(5, 6), slice(4, 7))) > 1e3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_formats_are_proved(dtype):
    original = layer(dtype=dtype)
    report = certify(original, conv2attn.convert(original), images=images(2, 16, 9, 8).to(dtype))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
    assert report.rows[0].max_error <= report.rows[0].bound < 1


# Overflow, and a faulty backend.


@pytest.mark.parametrize("number", [1e38, 3e38])
def test_where_the_original_overflows_nothing_is_refuted(number):
    original = planted.network()
    asked = {"input_size": (4, 14, 11), "input_range": number}
    report = certify(original, conv2attn.convert(original), **asked)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert report.rows[0].bound is None
    assert all(row.verdict is not Verdict.REFUTED for row in report.rows)
    converted = conv2attn.convert(original)
    ulp(taps(converted.square), (3, 2, 1))
    report = certify(original, converted, **asked)
    assert [row.name for row in report.rows if row.verdict is Verdict.REFUTED] == ["square"]


def test_just_below_the_overflow_the_bound_holds_and_what_is_not_finite_is_refuted():
    original = layer((1, 1), 1, padding=0, bias=False)
    original.weight.data.fill_(2.0)
    converted = conv2attn.convert(original)
    given = torch.full((1, 1, 2, 3), 1.6e38)
    assert certify(original, converted, images=given).rows[0].max_error == 0
    assert certify(original, converted, images=given * 1.1).rows[0].verdict is Verdict.UNDECIDED
    converted.register_forward_hook(lambda module, args, output: output * torch.inf)
    assert certify(original, converted, images=given).verdict is Verdict.REFUTED
    assert certify(original, converted, images=given * 2.1).between[-1].verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_images_that_are_not_finite_leave_it_undecided(number):
    image = images(1, 16, 9, 8)
    image[0, 3, 4, 5] = number
    assert certify(layer(), conv2attn.convert(layer()), images=image).exit_code == 3


@pytest.mark.parametrize("number", [1e39, 1e308])
def test_a_range_beyond_the_dtype_is_a_usage_error(number):
    with pytest.raises(UsageError, match="is beyond torch"):
        certify(layer(), conv2attn.convert(layer()), input_size=(16, 9, 8), input_range=number)


def test_a_backend_fault_of_the_second_is_refuted_as_measured(monkeypatch):
    original = layer()
    converted = conv2attn.convert(original, alpha=60)
    whole = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda *args, **kwargs: whole(*args, **kwargs) * 1.25)
    row = certify(original, converted, images=images(1, 16, 9, 8)).rows[0]
    assert (row.verdict, row.decisive.part, row.decisive.code) == (Verdict.REFUTED, "measured", "C2A404")
    assert row.max_error > row.bound


class Faulty(nn.Module):
    """A convolution called as a function, whose kernel gives noise with channels innermost in torch 2.13."""

    def __init__(self, made):
        super().__init__()
        self.weight, self.bias = made.weight, made.bias

    def forward(self, image):
        return nn.functional.conv2d(image, self.weight, self.bias, (1, 2), 0, (3, 1), 3).isfinite()


def test_a_backend_fault_of_the_original_refutes_nothing():
    original = nn.Conv2d(3, 9, (2, 4), stride=(1, 2), dilation=(3, 1), groups=3, dtype=torch.bfloat16)
    given = images(3, 3, 5, 4).bfloat16()
    innermost = given.contiguous(memory_format=torch.channels_last)
    assert certify(original, conv2attn.convert(original), images=innermost).verdict is not Verdict.REFUTED
    called = Faulty(original)
    converted = conv2attn.convert(called, example_input=given)
    assert certify(called, converted, images=innermost).verdict is not Verdict.REFUTED


def test_what_is_measured_in_half_precision_on_a_cpu_refutes_nothing(monkeypatch):
    whole = nn.Conv2d._conv_forward
    wrong = lambda self, image, weight, bias: whole(self, image, weight, bias) + 7  # noqa: E731
    original = layer(dtype=torch.bfloat16)
    converted = conv2attn.convert(original)
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", wrong)
    found = certify(original, converted, images=images(1, 16, 9, 8).bfloat16()).rows[0].part("measured")
    assert found.verdict is Verdict.UNDECIDED, found
    assert "not always within" in found.sentence


def test_a_network_too_large_for_the_memory_is_not_refuted(monkeypatch):
    original = layer()
    converted = conv2attn.convert(original)

    def full(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("conv2attn.attention.layer.MultiHeadSelfAttention.evaluate", full)
    with pytest.raises(UsageError, match="memory"):
        certify(original, converted, images=images(1, 16, 9, 8))


@pytest.mark.parametrize(("alpha", "engine", "runs"), [(128, "conv", True), (46, "conv", False), (46, "dense", True)])
def test_a_layer_whose_engine_refuses_is_refuted(alpha, engine, runs):
    converted = conv2attn.set_engine(conv2attn.convert(layer((2, 2)), alpha=alpha), engine)
    found = certify(layer((2, 2)), converted, input_size=(2, 5, 6)).rows[0].part("measured")
    assert (found.verdict is Verdict.HOLDS) is runs
    assert runs or f"the second refuses by its engine {engine}" in found.sentence
