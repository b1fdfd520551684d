"""The layer is an nn.Module like any other: autocast, compilation, layouts, processes; models/laws.py copies it."""

import copy

import pytest
import torch
from changes import changing
from layers.attention.cases import CONVOLUTIONS
from torch import nn
from whole import whole

from conv2attn.errors import EngineError
from conv2attn.layers.attention import ENGINES, set_engine
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output


@pytest.fixture(params=CONVOLUTIONS)
def conv(request, device):
    """A convolution of small whole numbers, so that all sums are exact in every dtype that autocast may choose."""
    conv = whole(CONVOLUTIONS[request.param]().to(device))
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.clamp_(-1, 1)
    return conv


def whole_image(conv, *batch):
    """Small whole numbers."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-2, 3, (*batch, conv.in_channels, 5, 7), generator=generator).float().to(conv.weight.device)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_a_converted_layer_is_the_convolution_under_autocast(conv, engine, dtype):
    layer = set_engine(attention_for(read_convolution(conv)), engine)
    image = whole_image(conv, 2)
    with torch.no_grad(), torch.autocast(image.device.type, dtype=dtype):
        result = layer(image)
        assert result.dtype == dtype
        assert_same_output(result, conv(image))
        assert_same_output(layer(image.to(dtype)), conv(image.to(dtype)))
    assert layer.bias is None or layer.bias.dtype == torch.float32


def test_under_autocast_float64_stays_float64():
    conv = nn.Conv1d(1, 1, 2, dtype=torch.float64).requires_grad_(False)
    layer, image = attention_for(read_convolution(conv)), torch.randn(1, 1, 5, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(image).dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "backend"), [("separable", "aot_eager"), ("gather", "inductor")])
@pytest.mark.needs("g++")
@pytest.mark.filterwarnings("ignore")
def test_a_layer_compiled_by_a_backend_is_the_layer(engine, backend):
    """tests/layers/attention/laws.py compiles with every engine and at several sizes, but rewrites no graph."""
    torch.compiler.reset()
    conv = whole(nn.Conv2d(2, 3, 3, padding=1)).requires_grad_(False)
    compiled = torch.compile(set_engine(attention_for(read_convolution(conv)), engine), backend=backend)
    image = whole_image(conv, 2)
    assert_same_output(compiled(image), conv(image))


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_layer_is_compiled_again_when_its_heads_became_soft():
    torch.compiler.reset()
    layer = attention_for(read_convolution(nn.Conv2d(2, 3, 3, padding=1))).requires_grad_(False)
    compiled, image = torch.compile(layer, backend="eager"), torch.randn(1, 2, 5, 4)
    before = compiled(image)
    layer.encoding.assign(alpha=1)
    with pytest.raises(EngineError, match="C2A203 attention: no facts were derived from its centres and sharpness"):
        compiled(image)
    layer.prepare()
    assert_same_output(compiled(image), layer(image))
    assert not torch.equal(before, layer(image))


@pytest.mark.parametrize("engine", ENGINES)
def test_images_without_a_batch_and_empty_batches(conv, engine):
    layer, image = set_engine(attention_for(read_convolution(conv)), engine), whole_image(conv)
    assert_same_output(layer(image).detach(), conv(image).detach())
    empty = whole_image(conv, 2)[:0]
    result, expected = layer(empty), conv(empty)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("trainable", [False, True])
def test_distributed_data_parallel_takes_the_layer(process_group, trainable):
    """Gradients of all parameters that ask for them arrive, in two steps, and equal those without the wrapper.

    All numbers are whole, so that no order of summation differs from another.
    """
    conv = whole(nn.Conv2d(2, 3, 3, padding=1))
    layer = attention_for(read_convolution(conv), trainable=trainable)
    alone, image = copy.deepcopy(layer), whole_image(conv, 2)
    parallel = nn.parallel.DistributedDataParallel(layer)
    for _ in range(2):
        parallel(image).square().sum().backward()
        alone(image).square().sum().backward()
    for ours, theirs in zip(layer.parameters(), alone.parameters(), strict=True):
        assert ours.requires_grad is (ours.grad is not None)
        if ours.grad is not None:
            assert_same_output(ours.grad, theirs.grad)


def test_a_layer_reads_well():
    layer = attention_for(read_convolution(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)))
    assert repr(layer) == (
        "MultiHeadSelfAttention(\n"
        "  3, 64, heads=49, d_head=3, padding=(3, 3)..(3, 3) zeros, stride=(2, 2) by queries, "
        "bias=False, engine=auto\n"
        "  (encoding): Encoding(quadratic, heads=49, dimensions=2, alpha=128)\n)"
    )


def test_it_moves_between_dtypes_like_a_module(conv):
    layer, image = attention_for(read_convolution(conv)), whole_image(conv, 1)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        layer.to(dtype)
        assert_same_output(layer(image.to(dtype)).detach(), conv(image).detach().to(dtype))


@pytest.mark.float64
def test_float64_after_conversion_in_float32_is_soft_but_evaluated(conv):
    """alpha = 128 is one-hot in float32, and leaks exp(-128) in float64: `auto` then takes the softmax."""
    layer, image = attention_for(read_convolution(conv)).double(), whole_image(conv, 1).double()
    assert layer.which_engine(image) == "separable"
    assert_same_output(layer(image).detach(), copy.deepcopy(conv).double()(image).detach(), 1e-50)


@pytest.mark.parametrize("engine", ["auto", "dense", "conv"])
def test_a_centre_far_away_takes_no_memory(engine):
    layer = set_engine(attention_for(read_convolution(nn.Conv2d(3, 4, 3))), engine)
    with changing(layer, "center") as numbers:
        numbers[0, 0] = 1e18
    image = torch.ones(1, 3, 5, 5)
    if engine == "conv":
        with pytest.raises(EngineError, match="C2A201"):
            layer(image)
    else:
        assert_same_output(layer(image), set_engine(layer, "separable")(image), 1e-5)


REFUSED = {
    "smaller than the kernel": ({}, torch.ones(1, 3, 4, 4)),
    "of one side of nothing": ({}, torch.ones(1, 3, 0, 9)),
    "of other channels": ({}, torch.ones(1, 2, 9, 9)),
    "of an axis more": ({}, torch.ones(1, 1, 3, 9, 9)),
    "of an axis less": ({}, torch.ones(9, 9)),
    "of another dtype": ({}, torch.ones(1, 3, 9, 9, dtype=torch.float64)),
    "of whole numbers": ({}, torch.ones(1, 3, 9, 9, dtype=torch.int64)),
    "too small to be reflected": ({"padding": 4, "padding_mode": "reflect"}, torch.ones(1, 3, 4, 4)),
    "too small to go around": ({"padding": 5, "padding_mode": "circular"}, torch.ones(1, 3, 4, 4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_convolution_refuses_is_refused_by_an_error_of_its_class(name):
    """Code may catch what torch raises, and go another way."""
    options, image = REFUSED[name]
    conv = nn.Conv2d(3, 4, 5, **options)
    layer = attention_for(read_convolution(conv))
    with pytest.raises(RuntimeError):
        conv(image)
    with pytest.raises(RuntimeError):
        layer(image)
