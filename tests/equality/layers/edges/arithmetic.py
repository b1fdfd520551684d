"""What this machine is set to: cut products, flushed numbers and convolutions that are no direct sums, counted."""

import pytest
import torch
from equality.layers.edges.rounding import FORMATS, bound, images, layer, one_of
from equality.pairs import Net, row_of
from torch import nn

import conv2attn
from conv2attn.equality import Measured, certify, judge_measured
from conv2attn.layers.attention import arithmetics, indirect_convolution, spread_of_spike
from conv2attn.theory.bounds import Arithmetic, convolution_bound
from conv2attn.verdicts import Strength, Verdict
from tests.equality.reports import decisive


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


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_half_precision_sums_on_a_gpu_may_truncate(name):
    assert Arithmetic(name, truncates=True).rounding(36).factor > Arithmetic(name).rounding(36).factor


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_subnormal_products_that_a_convolution_flushes_are_counted(dtype):
    exponent = {torch.bfloat16: -65, torch.float16: -11, torch.float32: -70}[dtype]
    original = layer((16, 16), bias=False, dtype=dtype)
    original.weight.data.fill_(2.0**exponent)
    given = torch.full((1, 16, 7, 9), 2.0**exponent, dtype=dtype)
    exact = torch.nn.functional.conv2d(given.double(), original.weight.double(), padding=1)
    error = (original(given).double() - exact).abs().max().item()
    assert error <= bound(original, conv2attn.convert(original), 2.0**exponent)


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


def ones(dtype):
    original = layer((4, 2), bias=False, dtype=dtype)
    original.weight.data.fill_(1.0)
    return original


def test_what_float64_flushes_is_below_the_steps_of_the_proved_bound(flushing):
    original, smallest = ones(torch.float64), torch.finfo(torch.float64).smallest_normal
    flushing(True)
    flushed = bound(original, conv2attn.convert(original), 2 * smallest)
    flushing(False)
    assert 2 * 36 * smallest < flushed < 200 * 2.0**-256


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_that_a_thread_flushes_are_counted(flushing, dtype):
    smallest, original = torch.finfo(dtype).smallest_normal, ones(dtype)
    converted = conv2attn.convert(original)
    device = arithmetics("auto", dtype, "cpu")[0]
    gradual = bound(original, converted, smallest)
    flushing(True)
    lost = 2 * 36 * smallest  # each input of each tap becomes 0 on one side, and on the other it does not
    flushed = bound(original, converted, 2 * smallest)
    flushing(False)
    assert (gradual < lost) is not device.flushes
    assert lost < flushed < 200 * lost


@pytest.mark.parametrize("alpha", [128, 100, 60, 40])
@pytest.mark.parametrize("flush", [False, True])
def test_the_bound_holds_with_and_without_flushing(flushing, alpha, flush):
    original = layer()
    converted = conv2attn.convert(original, alpha=alpha)
    flushing(flush)
    row = row_of(original, converted, images(2, 16, 9, 8) * torch.logspace(-30, 3, 8))
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
    row = row_of(original, conv2attn.convert(original), given)
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
    assert ("not a direct sum" in report.to_text()) is not library
    if not library:
        assert "not a direct sum" in indirect_convolution(torch.zeros(1, 3, 4, 4))


@pytest.mark.parametrize("spread", [0.0, 2.0**-20, 0.5, 8.0])
def test_a_bound_is_stated_exactly_where_a_pixel_changes_no_output_that_does_not_see_it(monkeypatch, spread):
    monkeypatch.setattr("conv2attn.equality.layers.rows.spread_of_spike", lambda *_: spread)
    original = layer()
    report = certify(original, conv2attn.convert(original), images=images(1, 16, 9, 8))
    assert report.verdict is Verdict.HOLDS
    assert (report.rows[0].bound is None) is ("not a direct sum" in report.to_text()) is (spread > 0)


@pytest.mark.parametrize("spread", [0.0, 0.5])
@pytest.mark.parametrize("bound", [None, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("error", [0.0, 1.0, 2.0, torch.inf, torch.nan])
def test_no_measurement_above_its_bound_holds(error, bound, spread):
    found = judge_measured(Measured(max_error=error, spread=spread), bound, same=True)
    assert (found.verdict is Verdict.HOLDS) is (bound is not None and error <= bound)


def test_a_backend_fault_of_the_second_is_refuted_as_measured_unless_the_original_is_no_direct_sum(
    monkeypatch, library
):
    original = layer()
    converted = conv2attn.convert(original, alpha=60)
    whole = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda *args, **kwargs: whole(*args, **kwargs) * 1.25)
    row = row_of(original, converted, images(1, 16, 9, 8))
    verdict = Verdict.REFUTED if library else Verdict.UNDECIDED
    assert (row.verdict, decisive(row).part, decisive(row).code) == (verdict, "measured", "C2A404")
    assert row.max_error > row.bound
    assert ("which does not hold here: a pixel of" in decisive(row).sentence) is not library


def twice(made, corner, last):
    """One layer called on an image and on a corner of it."""

    def code(net, image):
        small = image[(Ellipsis, *map(slice, corner))]
        first, second = (image, small) if last else (small, image)
        return net.conv(first).mean((2, 3)) + net.conv(second).mean((2, 3))

    return Net(code, conv=made)


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
    original = twice(made, corner or (), last)
    row = row_of(original, conv2attn.convert(original), torch.rand(1, 2, *size))
    assert row.bound is not None
    assert row.max_error <= row.bound


def test_a_spike_is_seen_where_a_kernel_does_not_look():
    original, shape = layer(), torch.Size((16, 16, 10, 10))
    assert spread_of_spike(original, shape, torch.float32, "cpu", (slice(4, 7), slice(4, 7))) == 0
    assert spread_of_spike(original, shape, torch.float32, "cpu", (slice(5, 6), slice(4, 7))) > 1e3
