"""Every engine against torch's convolution: bit for bit on whole numbers, within the derived bound on all others."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from imitated_device import has_float64
from layers.attention.cases import soft_layer
from oracles import convolve, rounding_allowed
from suite import LAYER_LAWS, convolutions, images_for, smallest_sides
from suite.convolution_strategies import DRAWN_DTYPES

from conv2attn import convert
from conv2attn.layers.attention import ENGINES, set_engine
from conv2attn.layers.attention.engines import Rounding
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import AttentionGrid

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

EXAMPLES = max(60, settings.default.max_examples // 5)
SO_MANY_THAT_ALL_ARE_DRAWN = max(600, EXAMPLES)  # 200 missed a padding: draws follow the constants of all modules
ALL_PAIRS = ("sdpa", "dense")
FEATURES = {
    *(f"padding {mode}" for mode in ("zeros", "reflect", "replicate", "circular", "same", "valid", "integers")),
    *(f"groups {kind}" for kind in ("none", "grouped", "depthwise", "multiplier")),
    *("stride", "dilation", "even kernel", "kernel of 1", "rectangular kernel", "unequal sides"),
    *("same with an even kernel", "transposed", "output_padding", "bias", "no bias"),
    *("unbatched", "channels-last", "1 axes", "2 axes", "3 axes"),
    *("encoding quadratic", "encoding enumerated", "stride by queries", "stride by pooling", "trainable", "wide heads"),
}


def features_of(conv, image, options):
    """The names of `FEATURES` that an example has."""
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
def conversions_of(draw, conv, engine, device):
    """Options of a conversion that `engine` can evaluate on `device`.

    Trained positions cannot be read there without waiting.
    """
    encodings = ["quadratic"] if engine in ("separable", "sdpa") else ["quadratic", "enumerated"]
    narrowest = min(conv.in_channels, conv.out_channels)
    widths = [None, None, narrowest + conv.groups, max(conv.in_channels, conv.out_channels) + 2 * conv.groups]
    return {
        "encoding": draw(st.sampled_from(encodings)),
        "stride_by": draw(st.sampled_from(["queries", "pooling"])),
        "trainable": draw(st.booleans()) if device.type == "cpu" or engine not in ("conv", "gather", "sdpa") else False,
        "d_head": draw(st.sampled_from(widths)),
    }


def dtypes_of(engine, device):
    """The dtypes in which `engine` runs on `device`: no fused attention of an accelerator takes float64."""
    without = not has_float64(device) or (engine == "sdpa" and device.type != "cpu")
    return [dtype for dtype in DRAWN_DTYPES if not (without and dtype == torch.float64)]


def examples_on(device, most=EXAMPLES):
    """An imitated device computes what the CPU does, which drew all: it runs a tenth of the examples."""
    return max(10, most // 10) if device.type == "imitated" else most


def few_pairs(layer, image):
    """Whether all pairs of a query and a key are soon compared."""
    grid = AttentionGrid(layer.image_padding.sides(tuple(image.shape[-layer.dimensions :])), layer.sites)
    return layer.heads * math.prod(grid.shape) < 2**19


@pytest.mark.parametrize("engine", ENGINES)
def test_hard_attention_is_the_convolution_bit_for_bit(engine, device):
    """On whole numbers within the dtype's budget no sum is rounded, so there is no tolerance to argue about.

    Fails, too, if a kind of convolution, image or dtype was never drawn for "auto"; the others draw from the same.
    """
    drawn, all_kinds = set(), engine == "auto" and device.type == "cpu"

    @settings(max_examples=SO_MANY_THAT_ALL_ARE_DRAWN if all_kinds else examples_on(device))
    @given(st.data(), convolutions(dtypes=dtypes_of(engine, device)))
    def check(data, conv):
        image = data.draw(images_for(conv)).to(device)
        options = data.draw(conversions_of(conv, engine, device))
        layer = set_engine(attention_for(read_convolution(conv), **options).to(device), engine)
        assume(engine not in ALL_PAIRS or few_pairs(layer, image))
        assert_same_output(layer(image).detach(), convolve(conv, image, image.dtype))
        drawn.update({image.dtype}, features_of(conv, image, options))

    check()
    assert drawn >= FEATURES | set(DRAWN_DTYPES) or not all_kinds


def test_what_was_never_drawn_is_missed():
    """Planted: a strategy that knows no stride leaves it out of what is drawn."""
    conv = torch.nn.Conv2d(2, 2, 3)
    options = {"encoding": "quadratic", "stride_by": "queries", "trainable": False, "d_head": None}
    drawn = features_of(conv, torch.ones(1, 2, 4, 5), options)
    assert FEATURES - drawn >= {"stride", "dilation", "even kernel", "groups depthwise", "padding reflect"}
    assert drawn <= FEATURES | {"padding zeros"}


def test_auto_is_the_same_call_and_the_same_numbers(device):
    """Bit for bit on any numbers, however the device sums. Two cases are no one call of torch's, or none that runs:
    paddings that differ at both ends, and bfloat16 with channels last on a CPU."""

    @given(st.data(), convolutions(dtypes=dtypes_of("auto", device), wide=True))
    def check(data, conv):
        assume(conv.padding != "same" and not any(conv.output_padding))
        image, conv = data.draw(images_for(conv, wide=True)).to(device), conv.to(device)
        image = image.contiguous() if image.dtype == torch.bfloat16 else image
        assert torch.equal(convert(conv)(image), conv(image))

    check()


@pytest.mark.rotated
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "auto"])
def test_hard_attention_is_the_convolution_within_its_rounding(engine, device):
    """On numbers of very different sizes: `|y1 - y2| <= (gamma_n1 + gamma_n2) (|W| * |X| + |b|)` (NUMERICS.md)."""

    @settings(max_examples=examples_on(device, settings.default.max_examples))
    @given(st.data(), convolutions(dtypes=dtypes_of(engine, device), wide=True))
    def check(data, conv):
        image = data.draw(images_for(conv, wide=True)).to(device)
        layer = set_engine(attention_for(read_convolution(conv)).to(device), engine)
        assume(engine not in ALL_PAIRS or few_pairs(layer, image))
        result = layer(image).detach().cpu().double()
        stores = engine == "conv" and conv.transposed  # torch adds up the taps of an output in its format
        casts = 1 + math.prod(conv.kernel_size) if stores else 2
        assert_same_output(result, convolve(conv, image), rounding_allowed(conv, image, casts))

    check()


def test_the_rounding_bound_rejects_one_wrong_weight():
    """Planted: one weight, an ulp of bfloat16 off in float32, and far smaller than the others."""
    conv = torch.nn.Conv2d(3, 2, 3, dtype=torch.float32).requires_grad_(False)
    image = torch.randn(1, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    layer = attention_for(read_convolution(conv))
    conv.weight[0, 0, 0, 0] += 2**-9
    with pytest.raises(AssertionError, match="differs in"):
        assert_same_output(layer(image).detach().double(), convolve(conv, image), rounding_allowed(conv, image))


@pytest.mark.parametrize("engine", ENGINES)
def test_channels_last_in_bfloat16_is_computed_in_spite_of_onednn(engine):
    """torch 2.13 itself gives noise for this convolution on a CPU, and crashes for others like it."""
    conv = torch.nn.Conv2d(3, 9, (2, 4), stride=(1, 2), dilation=(3, 1), groups=3, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    image = torch.randint(-2, 3, (3, 3, 5, 4)).bfloat16().contiguous(memory_format=torch.channels_last)
    layer = set_engine(attention_for(read_convolution(conv)), engine)
    assert_same_output(layer(image).detach(), convolve(conv, image, torch.bfloat16))


LAST = {3: None, 4: torch.channels_last, 5: torch.channels_last_3d}


def assert_stored_alike(layer, conv, image):
    """Strides and memory are those that the convolution returns, so that code which counts on them runs."""
    with torch.no_grad():
        ours, expected = layer(image), conv(image)
    assert ours.shape == expected.shape
    strides = [
        [step for step, side in zip(each.stride(), each.shape, strict=True) if side > 1] for each in (ours, expected)
    ]
    assert strides[0] == strides[1], "the stride of an axis of one leads to no number"
    assert ours._is_view() == expected._is_view()
    if not expected._is_view():
        ours *= torch.ones(1, dtype=ours.dtype, device=ours.device, requires_grad=True)


@pytest.mark.rotated
@pytest.mark.parametrize("engine", ENGINES)
def test_the_output_is_stored_as_the_convolution_s(engine, device):
    """Channels last if the image or the weight is, also without gradients, where a view could not be written to."""
    drawn = set()

    @settings(max_examples=examples_on(device, max(200, EXAMPLES)))
    @given(st.data(), convolutions(dtypes=dtypes_of(engine, device)))
    def check(data, conv):
        image, conv = data.draw(images_for(conv)).to(device), conv.to(device)
        if conv.weight.itemsize < 4 and conv.weight.device.type != "cuda":
            # On a processor, halves are stored as its kernels like, and oneDNN of torch 2.13 crashes on some of them.
            conv, image = conv.float(), image.float()
        last = LAST[conv.weight.ndim] if image.ndim == conv.weight.ndim else None
        last = None if conv.weight.ndim == 5 and engine not in ("auto", "conv") else last
        if last and data.draw(st.booleans()):
            conv = conv.to(memory_format=last)
        if last and data.draw(st.booleans()):
            image = image.contiguous(memory_format=last)
        layer = set_engine(convert(conv), engine)
        assume(engine not in ALL_PAIRS or few_pairs(layer, image))
        assert_stored_alike(layer, conv, image)
        drawn.add((image.ndim, conv(image).is_contiguous()))

    check()
    assert {(4, True), (4, False), (5, True)} <= drawn or device.type == "imitated"


@pytest.mark.rotated
@pytest.mark.parametrize("engine", ENGINES)
def test_the_whole_affine_map_is_the_convolution_s(engine, device):
    """All one-hot images, the bias removed: each output is one weight, so any numbers are compared bit for bit.

    Where padding repeats a pixel an output is a sum of weights, which are then whole.
    """

    @settings(max_examples=examples_on(device, max(20, settings.default.max_examples // 2)))
    @given(convolutions(dimensions=[1, 2], dtypes=dtypes_of(engine, device), wide=True))
    def check(conv):
        if conv.padding_mode != "zeros":
            conv.weight.clamp_(-3, 3).round_()
        layer = set_engine(attention_for(read_convolution(conv)).to(device), engine)
        if conv.bias is not None:
            assert_same_output(layer.bias.detach(), conv.bias.to(device))
            conv.bias = layer.bias = None
        sides = smallest_sides(conv)
        size = conv.in_channels * math.prod(sides)
        images = torch.eye(size).reshape(size, conv.in_channels, *sides).to(device, conv.weight.dtype)
        assert_same_output(layer(images).detach(), convolve(conv, images, images.dtype))

    check()


@pytest.mark.rotated
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("law", LAYER_LAWS, ids=lambda law: law.__name__)
def test_converted_layers_obey_the_laws(law, engine):
    @settings(max_examples=max(20, settings.default.max_examples // 4))
    @given(st.data(), convolutions(dimensions=[1, 2]))
    def check(data, conv):
        image = data.draw(images_for(conv, batches=[2]))
        law(set_engine(attention_for(read_convolution(conv), trainable=True).requires_grad_(False), engine), image)

    check()


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_of_a_hard_layer_are_the_convolution_s(engine, device):
    """On whole numbers, bit for bit: for the image, the weight and the bias."""
    conv = torch.nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=1, groups=2, device=device)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    layer = set_engine(attention_for(read_convolution(conv)), engine)
    image = torch.randint(-4, 5, (2, 2, 5, 6), device=device).float().requires_grad_()
    expected = torch.autograd.grad(conv(image).square().sum(), [image, conv.weight, conv.bias])
    got = torch.autograd.grad(layer(image).square().sum(), [image, layer.weight, layer.bias])
    assert_same_output(got[0], expected[0])
    assert_same_output(got[1], expected[1])
    assert_same_output(got[2], expected[2])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_says_which_bounds_its_rounding_has(engine):
    rounds_as, bounded = ENGINES[engine].rounds_as, get_args(Rounding)
    assert rounds_as
    assert {*rounds_as} <= {*bounded} <= {*ENGINES}
    assert engine not in bounded or rounds_as == (engine,)


@pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if engine.choose])
def test_the_bounds_of_a_rule_are_those_of_the_engines_that_it_takes_for_soft_heads(engine):
    layer = soft_layer(engine)
    for batch, sides in ((1, (3, 4)), (2, (9, 30)), (1, (40, 41))):
        for memory_limit in (2**20, 2**30):
            set_engine(layer, engine, memory_limit)
            taken = layer.which_engine(torch.randn(batch, layer.d_in, *sides, dtype=layer.like.dtype))
            assert taken in ENGINES[engine].rounds_as
