"""Every engine against torch's convolution: bit for bit on whole numbers, within the derived bound on all others."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import convolve, rounding_allowed, soft_allowed

from conv2attn.attention import ENGINES, MultiHeadSelfAttention, QuadraticEncoding, set_engine
from conv2attn.attention.engines.channels import project, rows_per_slab
from conv2attn.errors import EngineError, GeometryError, UsageError
from conv2attn.testing import (
    LAYER_LAWS,
    assert_same,
    convolutions,
    grids,
    images_for,
    integer_tensors,
    paddings,
    sites_on,
    smallest_sides,
    wide_tensors,
)
from conv2attn.testing.strategies import DTYPES
from conv2attn.theorem import attention_for, read

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

EXAMPLES = max(200, settings.default.max_examples // 5)
SOFT_ENGINES = ("auto", "separable", "sdpa", "dense")
HARD_ENGINES = ("conv", "gather")
FEATURES = {
    *(f"padding {mode}" for mode in ("zeros", "reflect", "replicate", "circular", "same", "valid", "integers")),
    *(f"groups {kind}" for kind in ("none", "grouped", "depthwise", "multiplier")),
    *("stride", "dilation", "even kernel", "kernel of 1", "rectangular kernel", "unequal sides"),
    *("same with an even kernel", "transposed", "output_padding", "bias", "no bias"),
    *("unbatched", "channels-last", "1 axes", "2 axes", "3 axes"),
    *("encoding quadratic", "encoding enumerated", "stride by queries", "stride by pooling", "trainable", "wide heads"),
}


def features_of(conv, image, options):
    """What of `FEATURES` an example has."""
    axes, kernel_size = len(conv.kernel_size), conv.kernel_size
    grouping = {1: "none"}.get(conv.groups, "grouped")
    if 1 < conv.groups == conv.in_channels:
        grouping = "depthwise" if conv.out_channels == conv.groups else "multiplier"
    padding = conv.padding if isinstance(conv.padding, str) else "integers"
    padded = padding == "same" or (padding == "integers" and any(conv.padding))
    even = any(k % 2 == 0 for k in kernel_size)
    facts = {
        f"padding {conv.padding_mode}": padded,
        f"padding {padding}": True,
        f"groups {grouping}": True,
        "stride": max(conv.stride) > 1,
        "dilation": any(d > 1 and k > 1 for d, k in zip(conv.dilation, kernel_size, strict=True)),
        "even kernel": even,
        "kernel of 1": max(kernel_size) == 1,
        "rectangular kernel": len(set(kernel_size)) > 1,
        "unequal sides": len(set(image.shape[-axes:])) > 1,
        "same with an even kernel": padding == "same" and even,
        "transposed": conv.transposed,
        "output_padding": any(conv.output_padding),
        "bias" if conv.bias is not None else "no bias": True,
        "unbatched": image.ndim == axes + 1,
        "channels-last": image.ndim == 4 and axes == 2 and not image.is_contiguous(),
        f"{axes} axes": True,
        f"encoding {options['encoding']}": True,
        f"stride by {options['stride_by']}": True,
        "trainable": options["trainable"],
        "wide heads": options["d_head"] is not None,
    }
    return {name for name, holds in facts.items() if holds}


@st.composite
def conversions_of(draw, conv, engine):
    """Options of a conversion that `engine` can evaluate."""
    encodings = ["quadratic"] if engine in ("separable", "sdpa") else ["quadratic", "enumerated"]
    narrowest = min(conv.in_channels, conv.out_channels)
    widths = [None, None, narrowest + conv.groups, max(conv.in_channels, conv.out_channels) + 2 * conv.groups]
    return {
        "encoding": draw(st.sampled_from(encodings)),
        "stride_by": draw(st.sampled_from(["queries", "pooling"])),
        "trainable": draw(st.booleans()),
        "d_head": draw(st.sampled_from(widths)),
    }


def dtypes_of(engine, device):
    """The dtypes in which `engine` runs on `device`: no fused attention of CUDA takes float64."""
    return [dtype for dtype in DTYPES if (engine, device.type, dtype) != ("sdpa", "cuda", torch.float64)]


@pytest.mark.parametrize("engine", ENGINES)
def test_hard_attention_is_the_convolution_bit_for_bit(engine, device):
    """On whole numbers within the dtype's budget no sum is rounded, so there is no tolerance to argue about.

    Fails, too, if a kind of convolution, image or dtype was never drawn.
    """
    drawn = set()

    @settings(max_examples=EXAMPLES)
    @given(st.data(), convolutions(dtypes=dtypes_of(engine, device)))
    def check(data, conv):
        image = data.draw(images_for(conv)).to(device)
        options = data.draw(conversions_of(conv, engine))
        layer = set_engine(attention_for(read(conv), **options).to(device), engine)
        assert_same(layer(image).detach(), convolve(conv, image, image.dtype))
        drawn.update({image.dtype}, features_of(conv, image, options))

    check()
    expected = FEATURES | set(dtypes_of(engine, device))
    assert expected - drawn <= ({"encoding enumerated"} if engine in ("separable", "sdpa") else set())


def test_what_was_never_drawn_is_missed():
    """Planted: a strategy that knows no stride leaves it out of what is drawn."""
    conv = torch.nn.Conv2d(2, 2, 3)
    options = {"encoding": "quadratic", "stride_by": "queries", "trainable": False, "d_head": None}
    drawn = features_of(conv, torch.ones(1, 2, 4, 5), options)
    assert FEATURES - drawn >= {"stride", "dilation", "even kernel", "groups depthwise", "padding reflect"}
    assert drawn <= FEATURES | {"padding zeros"}


@pytest.mark.parametrize("engine", ENGINES)
def test_hard_attention_is_the_convolution_within_its_rounding(engine, device):
    """On numbers of very different sizes: `|y1 - y2| <= (gamma_n1 + gamma_n2) (|W| * |X| + |b|)` (NUMERICS.md)."""

    @given(st.data(), convolutions(dtypes=dtypes_of(engine, device), wide=True))
    def check(data, conv):
        image = data.draw(images_for(conv, wide=True)).to(device)
        layer = set_engine(attention_for(read(conv)).to(device), engine)
        result = layer(image).detach().cpu().double()
        assert_same(result, convolve(conv, image), rounding_allowed(conv, image))

    check()


def test_the_rounding_bound_rejects_one_wrong_weight():
    """Planted: one weight, an ulp of bfloat16 off in float32, and far smaller than the others."""
    conv = torch.nn.Conv2d(3, 2, 3, dtype=torch.float32).requires_grad_(False)
    image = torch.randn(1, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    layer = attention_for(read(conv))
    conv.weight[0, 0, 0, 0] += 2**-9
    with pytest.raises(AssertionError, match="differs in"):
        assert_same(layer(image).detach().double(), convolve(conv, image), rounding_allowed(conv, image))


@pytest.mark.parametrize("engine", ENGINES)
def test_channels_last_in_bfloat16_is_computed_in_spite_of_onednn(engine):
    """torch 2.13 itself gives noise for this convolution on a CPU, and crashes for others like it."""
    conv = torch.nn.Conv2d(3, 9, (2, 4), stride=(1, 2), dilation=(3, 1), groups=3, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    image = torch.randint(-2, 3, (3, 3, 5, 4)).bfloat16().contiguous(memory_format=torch.channels_last)
    layer = set_engine(attention_for(read(conv)), engine)
    assert_same(layer(image).detach(), convolve(conv, image, torch.bfloat16))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_whole_affine_map_is_the_convolution_s(engine, device):
    """All one-hot images, the bias removed: each output is one weight, so any numbers are compared bit for bit.

    Where padding repeats a pixel an output is a sum of weights, which are then whole.
    """

    @settings(max_examples=max(20, settings.default.max_examples // 2))
    @given(convolutions(dimensions=[1, 2], dtypes=dtypes_of(engine, device), wide=True))
    def check(conv):
        if conv.padding_mode != "zeros":
            conv.weight.clamp_(-3, 3).round_()
        layer = set_engine(attention_for(read(conv)).to(device), engine)
        if conv.bias is not None:
            assert_same(layer.bias.detach(), conv.bias.to(device))
            conv.bias = layer.bias = None
        sides = smallest_sides(conv)
        size = conv.in_channels * math.prod(sides)
        images = torch.eye(size).reshape(size, conv.in_channels, *sides).to(device, conv.weight.dtype)
        assert_same(layer(images).detach(), convolve(conv, images, images.dtype))

    check()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("law", LAYER_LAWS, ids=lambda law: law.__name__)
def test_converted_layers_obey_the_laws(law, engine):
    @settings(max_examples=max(20, settings.default.max_examples // 4))
    @given(st.data(), convolutions(dimensions=[1, 2]))
    def check(data, conv):
        image = data.draw(images_for(conv, batches=[2]))
        law(set_engine(attention_for(read(conv), trainable=True).requires_grad_(False), engine), image)

    check()


@st.composite
def soft_layers(draw, axes, dtype=torch.float64):
    """Position-only layers with real centres, any sharpness, padding and strides, and the sides of an image."""
    sides = draw(grids(axes, {1: 30, 2: 7, 3: 4}[axes]))
    padding = draw(paddings(sides))
    sites = draw(sites_on(padding.sides(sides)))
    heads = draw(st.integers(1, 3))
    centers = draw(wide_tensors((heads, axes), torch.float64).map(lambda c: c.clamp(-6, 6)))
    alphas = draw(st.lists(st.sampled_from([-0.25, 0.0, 0.01, 0.5, 2.0, 46.0, 1e4]), min_size=heads, max_size=heads))
    encoding = QuadraticEncoding(centers, torch.tensor(alphas, dtype=torch.float64))
    torch.manual_seed(draw(st.integers(0, 99)))
    groups = draw(st.integers(1, 2))
    layer = MultiHeadSelfAttention(2, 2, encoding, groups=groups, padding=padding, sites=sites, dtype=dtype)
    return layer.requires_grad_(False), sides


@pytest.mark.parametrize("engine", ["auto", "separable", "sdpa"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_soft_attention_is_the_dense_softmax(engine, axes):
    """For all real centres and every alpha, borders included."""
    compared = []

    @given(st.data(), soft_layers(axes))
    def check(data, drawn):
        layer, sides = drawn
        image = data.draw(wide_tensors((2, 2, *sides), torch.float64))
        image[0, 0].flatten()[0] = 1.0
        if engine == "sdpa" and layer.why_engine(image)["sdpa"] != "exact":
            return
        compared.append(layer)
        expected = set_engine(layer, "dense")(image)
        slack = 2 * 2.0**-10 * layer.weights.taps().abs().sum() * image.abs().max() if engine == "sdpa" else 0
        assert_same(set_engine(layer, engine)(image), expected, float(soft_allowed(layer, image) + slack))

    check()
    assert compared


def test_the_soft_bound_rejects_a_centre_that_is_slightly_off():
    """Planted: a centre moved by 1e-9 pixels."""
    encoding = QuadraticEncoding(torch.tensor([[0.3, -0.2]], dtype=torch.float64), 0.5)
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64).requires_grad_(False)
    image = torch.randn(1, 1, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = layer(image)
    encoding.center.data += 1e-9
    with pytest.raises(AssertionError, match="differs in"):
        assert_same(layer(image), expected, soft_allowed(layer, image))


@pytest.mark.parametrize("alpha", [2.0, 60.0, 800.0])
@pytest.mark.parametrize("side", [200, 201])
def test_the_banded_separable_engine_is_the_dense_softmax(alpha, side):
    """On an axis so long that only a band of displacements is computed; centres beyond both borders too."""
    centers = torch.tensor([[0.4], [-3.0], [150.5], [-190.25], [300.0], [-1e4]], dtype=torch.float64)
    layer = MultiHeadSelfAttention(2, 3, QuadraticEncoding(centers, alpha), dtype=torch.float64).requires_grad_(False)
    image = torch.randn(2, 2, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = set_engine(layer, "dense")(image)
    assert_same(set_engine(layer, "separable")(image), expected, soft_allowed(layer, image))


@pytest.mark.parametrize("engine", SOFT_ENGINES)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gradients_are_those_of_the_dense_softmax(engine, axes):
    """With respect to centres, alpha, values, outputs, bias and image; `gradcheck` against differences as well."""
    torch.manual_seed(axes)
    encoding = QuadraticEncoding(torch.randn(3, axes, dtype=torch.float64), torch.rand(3, dtype=torch.float64) + 0.1)
    layer = MultiHeadSelfAttention(2, 3, encoding, d_head=4, dtype=torch.float64)
    image = torch.randn(1, 2, *(4, 3, 2)[:axes], dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    set_engine(layer, engine)
    assert torch.autograd.gradcheck(run, (image, *layer.parameters()))
    inputs = [image, *layer.parameters()]
    got = torch.autograd.grad(layer(image).square().sum(), inputs)
    wanted = torch.autograd.grad(set_engine(layer, "dense")(image).square().sum(), inputs)
    assert all(g.abs().max() > 0 for g in wanted)
    for g, w in zip(got, wanted, strict=True):
        assert_same(g, w, 1e-12 * w.abs().max().item())


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_of_a_hard_layer_are_the_convolution_s(engine, device):
    """On whole numbers, bit for bit: for the image, the weight and the bias."""
    conv = torch.nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=1, groups=2, device=device)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    layer = set_engine(attention_for(read(conv)), engine)
    image = torch.randint(-4, 5, (2, 2, 5, 6), device=device).float().requires_grad_()
    expected = torch.autograd.grad(conv(image).square().sum(), [image, conv.weight, conv.bias])
    got = torch.autograd.grad(layer(image).square().sum(), [image, layer.output, layer.bias])
    assert_same(got[0], expected[0])
    assert_same(got[1], expected[1].flatten(2))
    assert_same(got[2], expected[2])


def soften(layer):
    layer.encoding.alpha.data.fill_(1)


def move(layer):
    layer.encoding.center.data[1, 0] += 0.5


def step(layer):
    layer.encoding.requires_grad_()
    optimiser = torch.optim.SGD(layer.encoding.parameters(), lr=1.0)
    for parameter in layer.encoding.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimiser.step()


def widen(layer):
    layer.double()


def load(layer):
    state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    state["encoding.alpha"].fill_(3.0)
    layer.load_state_dict(state)


def spoil(layer):
    layer.encoding.alpha.data[0] = math.nan


def overflow(layer):
    layer.encoding.alpha.data[0] = math.inf


CHANGES = [soften, move, step, widen, load, spoil, overflow]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("used_before", [False, True], ids=["first call", "later call"])
def test_hard_engines_refuse_and_auto_falls_back_after_a_change(change, used_before, device):
    """Hardness is decided from the present parameters at each call, never from a flag."""
    conv = torch.nn.Conv2d(2, 3, 3, padding=1)
    layer = attention_for(read(conv)).to(device)
    image = torch.randn(1, 2, 4, 5, device=device)
    if used_before:
        assert layer.which_engine(image) == ("conv" if device.type == "cpu" else "gather")
        layer(image)
    change(layer)
    image = image.to(layer.bias.dtype)
    for engine in HARD_ENGINES:
        with pytest.raises(EngineError, match=f"C2A201 attention: engine '{engine}' is not exact here: "):
            set_engine(layer, engine)(image)
    assert set_engine(layer, "auto").which_engine(image) not in HARD_ENGINES
    if change not in (spoil, overflow):
        layer.double()
        expected = set_engine(layer, "dense")(image.double()).detach()
        assert_same(set_engine(layer, "auto")(image.double()).detach(), expected, soft_allowed(layer, image.double()))


def test_lowering_the_dtype_keeps_heads_hard():
    layer = attention_for(read(torch.nn.Conv1d(2, 3, 3)))
    for cast in (layer.half, layer.bfloat16):
        cast()
        assert layer.encoding.center.dtype == layer.encoding.alpha.dtype == torch.float32
        assert layer.which_engine(torch.ones(1, 2, 9, dtype=layer.bias.dtype)) == "conv"


@pytest.mark.parametrize("engine", ENGINES)
def test_changing_the_engine_never_changes_the_parameters(engine):
    layer = attention_for(read(torch.nn.Conv2d(2, 3, 3)))
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    set_engine(torch.nn.Sequential(layer), engine)(torch.ones(1, 2, 4, 4))
    assert layer.engine == engine
    assert layer.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_engines_and_limits_that_do_not_exist_are_refused():
    layer = attention_for(read(torch.nn.Conv2d(2, 3, 3)))
    with pytest.raises(UsageError, match="C2A001 engine 'fast' is not one of auto, conv, gather, separable, sdpa, den"):
        set_engine(layer, "fast")
    with pytest.raises(UsageError, match="C2A001 memory_limit=0 is not a positive number of bytes"):
        set_engine(layer, "auto", memory_limit=0)
    with pytest.raises(UsageError, match="C2A001 Linear has no attention layer"):
        set_engine(torch.nn.Linear(1, 1), "auto")


def test_heads_that_share_an_offset_or_leave_the_grid_are_not_a_convolution():
    twice = MultiHeadSelfAttention(1, 1, QuadraticEncoding([[0.0], [0.0]], 128.0))
    holes = MultiHeadSelfAttention(1, 1, QuadraticEncoding([[0.0], [1.0], [3.0]], 128.0))
    away = MultiHeadSelfAttention(1, 1, QuadraticEncoding([[0.0], [1.0]], 128.0))
    image = torch.tensor([[[1.0, 2.0, 4.0]]])
    for layer in (twice, holes):
        assert layer.why_engine(image)["conv"] == "its offsets do not form a lattice, each point once"
    assert away.why_engine(image)["conv"] == "head 1 leaves the grid at offset (1,)"
    for layer in (twice, holes, away):
        layer.requires_grad_(False)
        expected = set_engine(layer, "dense")(image)
        for engine in ("auto", "gather", "separable", "sdpa"):
            assert_same(set_engine(layer, engine)(image), expected, rounding_of(layer, image))


def rounding_of(layer, image):
    """Float32 rounding of the channel product of a layer whose heads are one-hot."""
    taps = layer.weights.taps().abs().sum().item() * image.abs().max().item()
    return 2 * (layer.heads + 1) * 2.0**-24 / (1 - 2.0**-20) * (taps + layer.bias.abs().max().item())


def test_permuted_heads_are_compiled_to_the_same_convolution():
    conv = torch.nn.Conv2d(2, 3, (2, 3), dilation=2).requires_grad_(False)
    layer = attention_for(read(conv))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    layer.encoding.center.data = layer.encoding.center[order]
    layer.output.data = layer.output[..., order]
    image = torch.randn(1, 2, 8, 7)
    assert layer.which_engine(image) == "conv"
    assert_same(layer(image).detach(), conv(image))


@pytest.mark.parametrize(("engine", "limit"), [("dense", 40_000), ("gather", 4_000), ("separable", 4_000)])
def test_the_memory_limit_cuts_the_queries_into_chunks_that_change_nothing(engine, limit, monkeypatch):
    conv = torch.nn.Conv2d(3, 2, 3, padding=1)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    layer, image = set_engine(attention_for(read(conv)), engine), torch.randint(-4, 5, (2, 3, 9, 7)).float()
    sizes = []

    def recording(mixed, weights, direct):
        sizes.append(mixed.numel() * mixed.element_size())
        return project(mixed, weights, direct)

    monkeypatch.setattr(f"conv2attn.attention.engines.{engine}.project", recording)
    set_engine(layer, engine, memory_limit=limit)
    assert_same(layer(image).detach(), convolve(conv, image, torch.float32))
    assert len(sizes) > 1
    assert max(sizes) <= limit


def test_every_tensor_of_dense_attention_stays_under_the_memory_limit():
    """Counts what is allocated on the way, by the sizes of all results of torch functions."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple) else (result,):
                if isinstance(tensor, torch.Tensor):
                    self.size = max(self.size, tensor.untyped_storage().nbytes())
            return result

    layer = set_engine(attention_for(read(torch.nn.Conv2d(2, 2, 3, padding=1))), "dense", memory_limit=2**20)
    image = torch.randn(1, 2, 40, 30)
    queries, keys = layer.question(layer.basis(), image).grid.shape
    with torch.no_grad(), Largest() as limited:
        layer(image)
    with torch.no_grad(), Largest() as unlimited:
        set_engine(layer, "dense", memory_limit=2**33)(image)
    assert limited.size <= 2**20
    assert unlimited.size >= layer.heads * queries * keys * 4 > 2**20


def test_a_memory_limit_below_one_query_is_refused():
    layer = set_engine(attention_for(read(torch.nn.Conv2d(2, 2, 3))), "dense", memory_limit=1000)
    with pytest.raises(EngineError, match=r"C2A202 attention: one query takes [0-9,]+ bytes of the memory li"):
        layer(torch.ones(1, 2, 9, 9))


def test_slabs_are_at_least_one_row():
    layer = set_engine(attention_for(read(torch.nn.Conv2d(2, 2, 3))), "gather", memory_limit=1)
    assert rows_per_slab(layer.basis(), (1, 2, 9, 9), 4, 10, 1) == 1
    assert layer(torch.ones(1, 2, 9, 9)).shape == (1, 2, 7, 7)


def test_sdpa_never_materialises_all_pairs():
    """Only the fused kernel is allowed, which never holds all scores at once."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for channels in (1, 2, 9):
        layer = set_engine(attention_for(read(torch.nn.Conv1d(channels, 2, 3, padding=1))), "sdpa")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            assert layer(torch.randn(2, channels, 1000)).shape == (2, 2, 1000)


def test_sdpa_refuses_grids_beyond_its_float_limits():
    layer = attention_for(read(torch.nn.Conv1d(1, 1, 3, padding=1)))
    assert layer.why_engine(torch.empty(1, 1, 1000))["sdpa"] == "exact"
    assert "float32 features would be wrong by up to" in layer.why_engine(torch.empty(1, 1, 100_000))["sdpa"]
    with pytest.raises(EngineError, match="C2A201 attention: engine 'sdpa' is not exact here: float32 features"):
        set_engine(layer, "sdpa")(torch.empty(1, 1, 100_000))


@pytest.mark.parametrize("sides", [(4700,), (67, 71), (17, 19, 16)])
def test_sdpa_is_exact_on_the_largest_grids_that_it_takes(sides):
    """Close to where 3 n L^2 leaves the significand of float32 the target is still hit exactly."""
    axes = len(sides)
    conv = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[axes - 1](1, 1, (2, 1, 1)[:axes])
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([3.0, -2.0]).reshape(conv.weight.shape))
        conv.bias.fill_(5.0)
        image = torch.randint(-9, 10, (1, 1, *sides)).float()
        layer = set_engine(attention_for(read(conv)), "sdpa")
        assert_same(layer(image), convolve(conv, image, torch.float32))


@pytest.mark.parametrize("alpha", [50.0, 128.0])
def test_separable_attention_is_linear_in_the_tokens(alpha):
    """100,000 tokens: all pairs would take 40 GB a head."""
    conv = torch.nn.Conv1d(1, 1, 3, padding=1).requires_grad_(False)
    layer = set_engine(attention_for(read(conv), alpha=alpha), "separable")
    image = torch.randn(1, 1, 100_000, generator=torch.Generator().manual_seed(0))
    layer.memory_limit = 2**26
    assert_same(layer(image).detach().double(), convolve(conv, image), rounding_allowed(conv, image))


@given(st.data())
def test_stride_by_queries_is_stride_by_pooling(data):
    """The paper's appended pooling layer and asking only at the strided sites are the same map, bit for bit."""
    conv = data.draw(convolutions(transposed=[False]))
    image = data.draw(images_for(conv))
    engine = data.draw(st.sampled_from(ENGINES))
    queries, pooling = (
        set_engine(attention_for(read(conv), stride_by=how), engine)(image) for how in ("queries", "pooling")
    )
    assert_same(queries.detach(), pooling.detach())


def test_an_unknown_way_to_stride_is_refused():
    with pytest.raises(UsageError, match="C2A001 stride_by='subsampling' is neither 'queries' nor 'pooling'"):
        attention_for(read(torch.nn.Conv1d(1, 1, 1)), stride_by="subsampling")


@pytest.mark.parametrize("engine", ENGINES)
def test_images_smaller_than_the_kernel_are_refused(engine):
    layer = set_engine(attention_for(read(torch.nn.Conv2d(1, 1, 3))), engine)
    with pytest.raises(GeometryError, match=r"C2A121 the padded grid \(2, 5\) is smaller than the dilated kernel"):
        layer(torch.ones(1, 1, 2, 5))


@given(st.data(), integer_tensors((2, 3), torch.float64, 3))
def test_engines_say_why_they_are_not_exact(data, centers):
    """`which_engine` is an engine that `why_engine` calls exact, and a hard one where one is."""
    layer = MultiHeadSelfAttention(1, 1, QuadraticEncoding(centers / 2, data.draw(st.sampled_from([1.0, 2000.0]))))
    image = torch.ones(1, 1, 3, 2, 2, dtype=torch.float64)
    reasons = layer.why_engine(image)
    assert list(reasons) == list(ENGINES[1:])
    chosen, hard = layer.which_engine(image), [name for name in HARD_ENGINES if reasons[name] == "exact"]
    assert reasons[chosen] == "exact"
    assert chosen == hard[0] if hard else chosen in ("separable", "dense")
    assert reasons["dense"] == reasons["separable"] == "exact"
