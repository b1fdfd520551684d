"""The layer is an nn.Module like any other: autocast, compilation, copies, layouts, training, processes."""

import copy
import pickle

import pytest
import torch
from torch import nn

from conv2attn.attention import ENGINES, set_engine
from conv2attn.attention.plan import from_plan, to_plan
from conv2attn.testing import assert_same
from conv2attn.theorem import attention_for, read

CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(3, 4, 3, padding=1),
    "strided": lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(2, 1), dilation=(2, 1), groups=2),
    "transposed": lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1),
    "circular": lambda: nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular", bias=False),
}


@pytest.fixture(params=CONVOLUTIONS)
def conv(request, device):
    """A convolution of small whole numbers, so that all sums are exact in every dtype that autocast may choose."""
    conv = CONVOLUTIONS[request.param]().to(device)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    return conv


def whole_image(conv, *batch):
    """Small whole numbers."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-2, 3, (*batch, conv.in_channels, 5, 7), generator=generator).float().to(conv.weight.device)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_a_converted_layer_is_the_convolution_under_autocast(conv, engine, dtype):
    layer = set_engine(attention_for(read(conv)), engine)
    image = whole_image(conv, 2)
    with torch.no_grad(), torch.autocast(image.device.type, dtype=dtype):
        result = layer(image)
        assert result.dtype == dtype
        assert_same(result, conv(image))
        assert_same(layer(image.to(dtype)), conv(image.to(dtype)))
    assert layer.bias is None or layer.bias.dtype == torch.float32


def test_under_autocast_float64_stays_float64():
    conv = nn.Conv1d(1, 1, 2, dtype=torch.float64).requires_grad_(False)
    layer, image = attention_for(read(conv)), torch.randn(1, 1, 5, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(image).dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "backend"), [("separable", "aot_eager"), ("gather", "inductor")])
@pytest.mark.needs("g++")
@pytest.mark.filterwarnings("ignore")
def test_a_layer_compiled_by_a_backend_is_the_layer(engine, backend):
    """tests/attention/laws.py compiles with every engine and at several sizes, but rewrites no graph."""
    torch.compiler.reset()
    conv = nn.Conv2d(2, 3, 3, padding=1).requires_grad_(False)
    for parameter in conv.parameters():
        parameter.copy_(torch.randint(-4, 5, parameter.shape))
    compiled = torch.compile(set_engine(attention_for(read(conv)), engine), backend=backend)
    image = torch.randint(-4, 5, (2, 2, 5, 7)).float()
    assert_same(compiled(image), conv(image))


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_layer_fails_when_its_heads_became_soft():
    torch.compiler.reset()
    layer = attention_for(read(nn.Conv2d(2, 3, 3, padding=1))).requires_grad_(False)
    compiled, image = torch.compile(layer, backend="eager"), torch.randn(1, 2, 5, 4)
    compiled(image)
    layer.encoding.alpha.data.fill_(1)
    with pytest.raises(RuntimeError, match="centres or sharpness moved"):
        compiled(image)


def through_pickle(layer):
    return pickle.loads(pickle.dumps(layer))


@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle])
def test_a_copy_is_the_layer(conv, copied):
    layer, image = set_engine(attention_for(read(conv)), "separable"), whole_image(conv, 2)
    twin = copied(layer)
    assert twin.engine == "separable"
    assert_same(twin(image).detach(), layer(image).detach())
    twin.encoding.alpha.data.fill_(1)
    assert layer.encoding.alpha.min() > 1


def test_a_state_dict_restores_the_layer(conv):
    layer, other = attention_for(read(conv)), attention_for(read(conv))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(layer.state_dict())
    image = whole_image(conv, 2)
    assert_same(other(image).detach(), layer(image).detach())
    names = {"encoding.center", "encoding.alpha", "value" if layer.output is None else "output"}
    assert layer.state_dict().keys() == names | ({"bias"} if conv.bias is not None else set())


@pytest.mark.parametrize("options", [{}, {"encoding": "enumerated"}, {"trainable": True}, {"stride_by": "pooling"}])
def test_a_plan_and_a_state_dict_rebuild_the_layer(conv, options):
    layer, image = attention_for(read(conv), **options), whole_image(conv, 2)
    rebuilt = from_plan(to_plan(layer))
    rebuilt.load_state_dict(layer.state_dict(), assign=True)
    assert_same(rebuilt(image).detach(), layer(image).detach())


@pytest.mark.parametrize("engine", ENGINES)
def test_channels_last_stays_channels_last(conv, engine):
    layer, image = set_engine(attention_for(read(conv)), engine), whole_image(conv, 2)
    result = layer(image.contiguous(memory_format=torch.channels_last))
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert layer(image).is_contiguous()
    assert_same(result.detach(), conv(image).detach())


@pytest.mark.parametrize("engine", ENGINES)
def test_images_without_a_batch_and_empty_batches(conv, engine):
    layer, image = set_engine(attention_for(read(conv)), engine), whole_image(conv)
    assert_same(layer(image).detach(), conv(image).detach())
    empty = whole_image(conv, 2)[:0]
    result, expected = layer(empty), conv(empty)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("trainable", [False, True])
def test_training_a_layer_lowers_its_loss(trainable):
    """Centres and sharpness move only in a trainable layer."""
    torch.manual_seed(0)
    layer = attention_for(read(nn.Conv2d(2, 3, 3, padding=1)), alpha=1.0, trainable=trainable)
    start = layer.encoding.center.detach().clone()
    image, target = torch.randn(4, 2, 5, 6), torch.randn(4, 3, 5, 6)
    optimiser = torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = (layer(image) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sorted(losses, reverse=True) == losses
    assert torch.equal(layer.encoding.center, start) is not trainable


def train_in_parallel(rank, store):
    """Gradients of all parameters that ask for them arrive, in two steps, and equal those without the wrapper.

    All numbers are whole, so that no order of summation differs from another.
    """
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=1)
    for trainable in (False, True):
        train_wrapped(trainable)
    torch.distributed.destroy_process_group()


def train_wrapped(trainable):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3, padding=1)
    for parameter in conv.parameters():
        parameter.data = torch.randint(-3, 4, parameter.shape).float()
    layer = attention_for(read(conv), trainable=trainable)
    alone, image = copy.deepcopy(layer), torch.randint(-3, 4, (2, 2, 5, 6)).float()
    parallel = nn.parallel.DistributedDataParallel(layer)
    for _ in range(2):
        parallel(image).square().sum().backward()
        alone(image).square().sum().backward()
    for ours, theirs in zip(layer.parameters(), alone.parameters(), strict=True):
        assert ours.requires_grad is (ours.grad is not None)
        if ours.grad is not None:
            assert_same(ours.grad, theirs.grad)


def test_distributed_data_parallel_takes_the_layer(tmp_path):
    """In one process of its own."""
    torch.multiprocessing.spawn(train_in_parallel, (tmp_path / "store",), nprocs=1)


def test_a_layer_reads_well():
    layer = attention_for(read(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)))
    assert repr(layer) == (
        "MultiHeadSelfAttention(\n"
        "  3, 64, heads=49, d_head=3, padding=(3, 3)..(3, 3) zeros, stride=(2, 2) by queries, value=identity, "
        "bias=False, engine=auto\n"
        "  (encoding): QuadraticEncoding(heads=49, dimensions=2, alpha=128)\n)"
    )


def test_it_moves_between_dtypes_like_a_module(conv):
    layer, image = attention_for(read(conv)), whole_image(conv, 1)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        layer.to(dtype)
        assert_same(layer(image.to(dtype)).detach(), conv(image).detach().to(dtype))


def test_float64_after_conversion_in_float32_is_soft_but_evaluated(conv):
    """alpha = 128 is one-hot in float32, and leaks exp(-128) in float64: `auto` then takes the softmax."""
    layer, image = attention_for(read(conv)).double(), whole_image(conv, 1).double()
    assert layer.which_engine(image) == "separable"
    assert_same(layer(image).detach(), copy.deepcopy(conv).double()(image).detach(), 1e-50)
