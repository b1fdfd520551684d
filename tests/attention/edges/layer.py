"""The paper's layer: Eqs. (1) to (8) against loops over Python numbers, and an nn.Module like any other."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from conv2attn.attention import ENGINES, EnumeratedEncoding, MultiHeadSelfAttention, QuadraticEncoding, set_engine
from conv2attn.attention.plan import from_plan, to_plan
from conv2attn.basis import AttentionGrid, Padding, Sites
from conv2attn.errors import EngineError, HeadSizeError, UnsupportedError, UsageError
from conv2attn.testing import assert_same
from conv2attn.theorem import attention_for, read

TERMS = ["content", "content_position", "content_bias"]


def layer_with(kind=QuadraticEncoding, axes=2, dtype=torch.float64, **options):
    """A layer with real centres, three heads, and padding, strides and parameters of every size."""
    generator = torch.Generator().manual_seed(axes)
    centers = torch.randn(3, axes, generator=generator, dtype=torch.float64)
    encoding = kind(centers, torch.tensor([0.1, 0.5, 1.5], dtype=torch.float64))
    padding = Padding((1, 0, 1)[:axes], (0, 2, 1)[:axes])
    sites = Sites((2, 1, 2)[:axes], (1, 0, 0)[:axes], (0, 1, 0)[:axes])
    torch.manual_seed(0)
    layer = MultiHeadSelfAttention(4, 2, encoding, padding=padding, sites=sites, dtype=dtype, **options)
    nn.init.normal_(layer.bias)
    return layer.requires_grad_(False)


def loops(layer, image):
    """Eqs. (1) to (8) for one image (d_in, *sides), by loops over Python floats; of the product only its numbers."""
    numbers = {
        name: None if tensor is None else tensor.tolist()
        for name, tensor in {
            "query": layer.query,
            "key": layer.key,
            "position_key": layer.position_key,
            "u": layer.content_bias,
            "value": layer.weights.value,
            "output": layer.weights.output,
            "bias": layer.bias,
            "center": layer.encoding.center,
            "alpha": layer.encoding.alpha,
        }.items()
    }
    padded = layer.padding.pad(image[None])[0]
    sides = tuple(padded.shape[1:])
    places = coordinates(sides)
    tokens = {place: [padded[(c, *place)].item() for c in range(layer.d_in)] for place in places}
    sites = [
        tuple(b + o * s for b, o, s in zip(layer.sites.before, index, layer.sites.stride, strict=True))
        for index in coordinates(layer.sites.count(sides))
    ]
    results = []
    for site in sites:
        total = list(numbers["bias"])
        for h in range(layer.heads):
            center, alpha = numbers["center"][h], numbers["alpha"][h]
            q = times(numbers["query"][h], tokens[site]) if numbers["query"] else None
            scores = []
            for place in places:
                delta = [k - s for k, s in zip(place, site, strict=True)]
                score = -alpha * sum((d - c) ** 2 for d, c in zip(delta, center, strict=True))
                key = times(numbers["key"][h], tokens[place]) if numbers["key"] else None
                if q and key:
                    score += dot(q, key)
                if numbers["u"]:
                    score += dot(numbers["u"][h], key)
                if numbers["position_key"]:
                    score += dot(q, times(numbers["position_key"][h], [sum(d * d for d in delta), *delta]))
                scores.append(score)
            weights = [math.exp(score - max(scores)) for score in scores]
            mixed = [
                sum(w * tokens[place][c] for w, place in zip(weights, places, strict=True)) / sum(weights)
                for c in range(layer.d_in)
            ]
            total = [t + o for t, o in zip(total, through(numbers, layer, h, mixed), strict=True)]
        results.append(total)
    return torch.tensor(results, dtype=torch.float64).T.reshape(layer.d_out, *layer.sites.count(sides))


def through(numbers, layer, h, mixed):
    """`mixed W_val^h W_out^h`, group by group."""
    step, result = layer.d_in // layer.groups, []
    for g in range(layer.groups):
        part = mixed[g * step : (g + 1) * step]
        if numbers["value"]:
            width = layer.d_head // layer.groups
            part = times(numbers["value"][h][g * width : (g + 1) * width], part)
        if numbers["output"]:
            height = layer.d_out // layer.groups
            part = times(numbers["output"][h][g * height : (g + 1) * height], part)
        result += part
    return result


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def coordinates(sides):
    return [(i, *rest) for i in range(sides[0]) for rest in coordinates(sides[1:])] if sides else [()]


@pytest.mark.parametrize("terms", [[], *[[term] for term in TERMS], TERMS], ids="+".join)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_layer_is_its_equations(terms, axes, groups):
    """The four score terms of Eq. (8), one by one and all at once, with padding, strides, wide keys and heads."""
    layer = layer_with(axes=axes, d_key=axes + 3, d_head=6, groups=groups, **dict.fromkeys(terms, True))
    image = torch.randn(2, 4, *(4, 3, 2)[:axes], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    result = layer(image)
    for one, found in zip(image, result, strict=True):
        assert_same(found, loops(layer, one), 1e-12)


@pytest.mark.parametrize("identity", ["value", "output"])
def test_an_absent_matrix_is_the_identity(identity):
    width = {"value": 4, "output": 2}[identity]
    layer = layer_with(d_head=width, **{identity: False})
    assert getattr(layer, identity) is None
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    assert_same(layer(image)[0], loops(layer, image[0]), 1e-12)


@pytest.mark.parametrize("term", TERMS)
def test_each_term_of_the_scores_counts(term):
    """Planted: without any one of the terms the loops say something else."""
    layer = layer_with(**dict.fromkeys(TERMS, True))
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    expected = loops(layer, image[0])
    for name in {"content": ["query"], "content_position": ["position_key"], "content_bias": ["content_bias"]}[term]:
        getattr(layer, name).mul_(1 + 1e-6)
    with pytest.raises(AssertionError, match="differs in"):
        assert_same(layer(image)[0], expected, 1e-12)


@pytest.mark.parametrize("terms", [[term] for term in TERMS] + [TERMS], ids="+".join)
def test_content_is_left_to_the_dense_engine(terms):
    layer = layer_with(**dict.fromkeys(terms, True))
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    assert layer.which_engine(image) == "dense"
    for engine in set(ENGINES) - {"auto", "dense"}:
        with pytest.raises(EngineError, match=f"engine '{engine}' is not exact here: its attention depends on the con"):
            set_engine(layer, engine)(image)
    with pytest.raises(UsageError, match="C2A001 attention: pass an image, or sides where attention is position-only"):
        layer.attention(sides=(4, 3))


@pytest.mark.parametrize("content", [False, True])
def test_attention_is_given_out_whole_and_in_chunks(content):
    """On whole queries, keys and pixels, so that no order of summation matters."""
    layer = layer_with(content=content)
    for tensor in (layer.query, layer.key) if content else ():
        tensor.mul_(4).round_()
    image = torch.randint(-2, 3, (2, 4, 5, 4)).double()
    whole = layer.attention(image)
    queries, keys = layer.question(layer.basis(), image).grid.shape
    assert whole.shape == (2 if content else 1, 3, queries, keys)
    assert_same(whole.sum(-1), torch.ones_like(whole[..., 0]), 2 * keys * 2.0**-53)
    layer.memory_limit = 20_000
    chunks = list(layer.attention_chunks(image))
    assert len(chunks) > 1
    assert [i for rows, _ in chunks for i in range(rows.start, rows.stop)] == list(range(queries))
    assert_same(torch.cat([piece for _, piece in chunks], 2), whole)
    if not content:
        assert_same(layer.attention(sides=(5, 4)), whole)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_attention_of_a_converted_layer_is_one_hot(dtype):
    conv = nn.Conv2d(1, 1, (3, 2), stride=2, padding=1, dtype=dtype)
    attention = attention_for(read(conv)).attention(sides=(4, 5))
    assert attention.dtype == dtype
    assert bool(((attention == 0) | (attention == 1)).all())
    assert bool((attention.sum(-1) == 1).all())
    assert attention.shape == (1, 6, 2 * 3, 6 * 7)


def test_attention_needs_an_image_or_sides():
    layer = layer_with()
    for arguments in ({}, {"image": torch.ones(1, 4, 4, 4), "sides": (4, 4)}):
        with pytest.raises(UsageError, match="C2A001 attention: pass an image, or sides"):
            layer.attention(**arguments)


def test_images_that_do_not_fit_are_refused():
    layer = layer_with()
    for shape in ((1, 3, 4, 4), (3, 4, 4), (4, 4), (1, 1, 4, 4, 4)):
        with pytest.raises(UsageError, match=r"C2A120 attention: an image .* is not \(batch, 4, 2 sides\)"):
            layer(torch.ones(shape, dtype=torch.float64))


WIDTHS = [
    ({"d_key": 2, "content_position": True}, "d_key=2 is less than d_position=3"),
    ({"d_head": 3, "groups": 2}, "d_head=3 is not a positive multiple of groups=2"),
    ({"d_head": 0}, "d_head=0 is not a positive multiple of groups=1"),
    ({"groups": 3}, "d_in=4 is not a positive multiple of groups=3"),
    ({"value": False, "d_head": 3}, "value is the identity, so d_head=3 must be d_in=4"),
    ({"output": False, "d_head": 3}, "output is the identity, so d_head=3 must be d_out=2"),
]


@pytest.mark.parametrize(("options", "message"), WIDTHS)
def test_widths_that_do_not_fit_are_refused(options, message):
    with pytest.raises(HeadSizeError, match=f"C2A105 {message}"):
        layer_with(**options)


def test_two_identities_are_refused():
    with pytest.raises(HeadSizeError, match="C2A105 value and output are both the identity"):
        MultiHeadSelfAttention(2, 2, QuadraticEncoding([[0.0]], 1.0), value=False, output=False)


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


@pytest.mark.parametrize(
    ("engine", "backend"),
    [*((engine, "eager") for engine in ENGINES), ("auto", "aot_eager"), ("separable", "aot_eager")],
)
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_layer_is_the_layer(engine, backend):
    torch.compiler.reset()
    conv = nn.Conv2d(2, 3, 3, padding=1).requires_grad_(False)
    for parameter in conv.parameters():
        parameter.copy_(torch.randint(-4, 5, parameter.shape))
    layer = set_engine(attention_for(read(conv)), engine)
    compiled = torch.compile(layer, backend=backend)
    for sides in ((5, 7), (6, 4)):
        image = torch.randint(-4, 5, (2, 2, *sides)).float()
        assert_same(compiled(image), conv(image))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "gather"])
@pytest.mark.needs("g++")
@pytest.mark.filterwarnings("ignore")
def test_a_layer_compiled_to_machine_code_is_the_layer(engine):
    torch.compiler.reset()
    conv = nn.Conv2d(2, 3, 3, padding=1).requires_grad_(False)
    for parameter in conv.parameters():
        parameter.copy_(torch.randint(-4, 5, parameter.shape))
    image = torch.randint(-4, 5, (2, 2, 5, 7)).float()
    compiled = torch.compile(set_engine(attention_for(read(conv)), engine))
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


def train_in_parallel(rank, store, trainable):
    """Gradients of all parameters that ask for them arrive, in two steps, and equal those without the wrapper.

    All numbers are whole, so that no order of summation differs from another.
    """
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=1)
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
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("trainable", [False, True])
def test_distributed_data_parallel_takes_the_layer(tmp_path, trainable):
    """In one process of its own."""
    torch.multiprocessing.spawn(train_in_parallel, (tmp_path / "store", trainable), nprocs=1)


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


def test_no_rule_reads_content_as_a_basis():
    from conv2attn.basis import as_affine_map, as_basis

    with pytest.raises(UnsupportedError, match="C2A110"):
        as_affine_map(as_basis(layer_with(content=True)), (4, 3))


def test_the_enumerated_layer_follows_its_equations():
    """`r_delta = (t, t^2)`: its vectors meet queries too, where content meets positions."""
    layer = layer_with(EnumeratedEncoding, content_position=True)
    image = torch.randn(1, 4, 4, 3, dtype=torch.float64)
    keys = layer.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), layer.sites)
    asking = keys[layer.sites.view(grid.keys, (0, 0))].flatten(2)[0]
    operators, rows = layer.encoding.operators(), grid.every_query()
    t = operators.enumeration(grid, rows)
    vectors = torch.stack([t, t * t], -1).double()
    scores = operators.scores(grid, rows, torch.float64)[0] + torch.einsum(
        "hdc,cq,hdp,qkp->hqk", layer.query, asking, layer.position_key, vectors
    )
    assert_same(layer.attention(image)[0], scores.softmax(-1), 1e-9)
