"""Engines for soft heads against the dense softmax: outputs and gradients, borders and long axes included."""

import itertools

import pytest
import torch
from changes import changing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import convolve, rounding_allowed, soft_allowed
from suite import grids, paddings, sites_on, wide_tensors

from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention, score_dtype, set_engine
from conv2attn.layers.attention.engines import dense, profiles
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import AttentionGrid, HeadNumbers, Padding, QuadraticSoftmax, Sites, evaluate


@st.composite
def soft_layers(draw, axes, dtype=torch.float64):
    """Position-only layers with real centres, any sharpness, padding and strides, and the sides of an image."""
    sides = draw(grids(axes, {1: 30, 2: 7, 3: 4}[axes]))
    padding = draw(paddings(sides))
    sites = draw(sites_on(padding.sides(sides)))
    heads = draw(st.integers(1, 3))
    centers = draw(wide_tensors((heads, axes), torch.float64).map(lambda c: c.clamp(-6, 6)))
    alphas = draw(st.lists(st.sampled_from([-0.25, 0.0, 0.01, 0.5, 2.0, 46.0, 1e4]), min_size=heads, max_size=heads))
    encoding = Encoding.of("quadratic", centers, torch.tensor(alphas, dtype=torch.float64))
    torch.manual_seed(draw(st.integers(0, 99)))
    groups = draw(st.integers(1, 2))
    layer = MultiHeadSelfAttention(2, 2, encoding, groups=groups, padding=padding, sites=sites, dtype=dtype)
    return layer.requires_grad_(False), sides


@example(17, False, 46.0)
@given(st.integers(1, 40), st.booleans(), st.sampled_from([2.0, 46.0, 800.0]))
def test_few_queries_on_a_long_side_are_the_dense_softmax(queries, trained, alpha):
    """One tile of queries reads the whole side."""
    encoding = Encoding.of("quadratic", torch.tensor([[0.3]], dtype=torch.float64), torch.tensor([alpha]).double())
    padding, sites = Padding((0,), (3,), "zeros"), Sites((1,), (0,), (103 - queries,))
    layer = MultiHeadSelfAttention(2, 2, encoding, padding=padding, sites=sites, dtype=torch.float64)
    layer.requires_grad_(trained)
    image = torch.linspace(-1, 1, 200, dtype=torch.float64).reshape(1, 2, 100)
    expected = set_engine(layer, "dense")(image)
    assert expected.shape[-1] == queries
    assert_same_output(set_engine(layer, "separable")(image), expected, 1e-12)


@pytest.mark.rotated
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
        assert_same_output(set_engine(layer, engine)(image), expected, float(soft_allowed(layer, image) + slack))

    check()
    assert compared


def test_the_soft_bound_rejects_a_centre_that_is_slightly_off():
    """Planted: a centre moved by 1e-9 pixels."""
    encoding = Encoding.of("quadratic", torch.tensor([[0.3, -0.2]], dtype=torch.float64), 0.5)
    layer = MultiHeadSelfAttention(1, 1, encoding, dtype=torch.float64).requires_grad_(False)
    image = torch.randn(1, 1, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = layer(image)
    with changing(layer, "center") as numbers:
        numbers += 1e-9
    with pytest.raises(AssertionError, match="differs in"):
        assert_same_output(layer(image), expected, soft_allowed(layer, image))


@settings(max_examples=max(10, settings.default.max_examples // 4))
@example(200, 60.0, [0.4, -3.0, 150.5, -190.25, 300.0, -1e4])
@given(st.integers(150, 210), st.floats(1.0, 1000.0), st.lists(st.floats(-300, 300), min_size=1, max_size=4))
def test_slabs_that_read_a_part_of_the_axis_are_the_dense_softmax(side, alpha, centers):
    """Centres beyond both borders too."""
    encoding = Encoding.of("quadratic", torch.tensor(centers, dtype=torch.float64)[:, None], alpha)
    layer = MultiHeadSelfAttention(2, 3, encoding, dtype=torch.float64).requires_grad_(False)
    image = torch.randn(2, 2, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = set_engine(layer, "dense")(image)
    assert_same_output(set_engine(layer, "separable")(image), expected, soft_allowed(layer, image))


WAYS = {
    "apart": (torch.nn.Conv2d(16, 4, 3, padding=1), 1.0),
    "apart with a stride": (torch.nn.Conv2d(4, 8, (3, 2), stride=(2, 1), padding=1, groups=2), 60.0),
    "apart in one axis": (torch.nn.Conv1d(2, 3, 4, stride=2, padding=1), 5.0),
    "apart in three axes": (torch.nn.Conv3d(2, 4, (2, 3, 2), stride=(1, 2, 1), padding=1), 5.0),
    "smoothed": (torch.nn.Conv2d(4, 6, 3, padding=1, groups=2), 5.0),
    "smoothed, depthwise": (torch.nn.Conv2d(4, 8, (3, 4), padding=(1, 0), stride=(2, 1), groups=4), 46.0),
    "smoothed with steps": (torch.nn.Conv2d(4, 6, (2, 3), stride=(2, 4), dilation=(3, 2), padding=(0, 9)), 1.0),
    "smoothed by reflection": (torch.nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="reflect"), 5.0),
    "smoothed in one axis": (torch.nn.Conv1d(2, 3, 4, stride=2, padding=1), 5.0),
    "smoothed in three axes": (torch.nn.Conv3d(2, 4, (2, 3, 2), stride=(1, 2, 1), padding=1), 5.0),
}
"""Heads whose centres are unevenly spaced mix the image each for itself; others read one smoothed image."""


TILES = {"one product": (1000, 2), "tiles": (4, 2)}


@pytest.fixture(params=TILES)
def tiles(request, monkeypatch):
    """A device that mixes every axis of these images by one product, and one that does so in tiles of four queries."""
    monkeypatch.setitem(profiles.TILES, "cpu", TILES[request.param])
    return request.param


def build(name, apart=0.0):
    """A frozen layer in float64, its centres all moved by `apart`, and an image."""
    conv, alpha = WAYS[name]
    layer = attention_for(read_convolution(conv.double()), alpha=alpha).requires_grad_(False)
    with changing(set_engine(layer, "separable"), "center") as numbers:
        if name.startswith("apart"):
            numbers += 0.1 * numbers.square()
        numbers += apart
    sides = {1: (40,), 2: (40, 42), 3: (6, 9, 8)}[layer.dimensions]
    return layer, torch.randn(2, conv.in_channels, *sides, generator=torch.Generator().manual_seed(0)).double()


def run_of(layer):
    """The run of the layer's only recipe, and its settings."""
    (decided,) = layer._facts.values()
    (recipe,) = decided.recipes.values()
    return recipe.evaluation.func.__name__, recipe.evaluation.keywords


@pytest.mark.parametrize(("kernel", "side"), [(121, 40), (99, 3)])
def test_blocks_of_points_that_lie_in_the_padding_alone_are_zero(kernel, side):
    conv = torch.nn.Conv1d(2, 2, kernel, padding=kernel // 2).double()
    layer = set_engine(attention_for(read_convolution(conv), alpha=5.0).requires_grad_(False), "separable")
    image = torch.randn(2, 2, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_same_output(layer(image), evaluate(layer.basis(), image), float(soft_allowed(layer, image)))
    assert run_of(layer)[0] == "run_smoothed"


@pytest.mark.rotated
@pytest.mark.parametrize("apart", [0.0, 0.3])
@pytest.mark.parametrize("name", WAYS)
def test_each_way_to_evaluate_heads_is_the_sum_of_the_basis(name, apart, tiles):
    layer, image = build(name, apart)
    expected = evaluate(layer.basis(), image)
    assert_same_output(layer(image), expected, float(soft_allowed(layer, image)))
    way, settings = run_of(layer)
    assert way == ("run_heads" if name.startswith("apart") else "run_smoothed")
    mixing = settings["mixing"] if way == "run_heads" else settings["smoothing"].mixing
    assert mixing.in_tiles == (tiles == "tiles" and max(image.shape[2:]) > 9)


@pytest.mark.parametrize("name", WAYS)
def test_each_way_takes_a_batch_without_images(name):
    layer, image = build(name)
    assert layer(image[:0]).shape == (0, *layer(image).shape[1:])


def slanted(heads):
    """Some of three heads with full covariances, and an image: one is flat along an axis, one far beside the grid."""
    center = torch.tensor([[0.3, -1.2], [2.0, 0.0], [-30.0, 4.0]])
    root = torch.tensor([[[1.0, 0.4], [0.0, 0.7]], [[0.0, 0.0], [0.0, 2.0]], [[3.0, -1.0], [2.0, 2.0]]])
    encoding = Encoding.of("generalised", center[heads], root[heads])
    layer = MultiHeadSelfAttention(3, 2, encoding, sites=Sites((1, 2), (1, 0), (0, 1)), engine="dense")
    return layer, torch.randn(2, 3, 40, 37, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize(("heads", "limit"), [([0, 1, 2], 2**29), ([0], 2**29), ([0], 2**21), ([2], 2**21)])
def test_heads_with_covariances_are_the_same_in_boxes_of_keys(heads, limit, monkeypatch):
    """Values and gradients, those of weights that are computed again too."""
    layer, image = slanted(heads)
    layer.memory_limit = limit
    inputs = [image, *layer.parameters()]
    found = layer(image)
    assert run_of(layer)[0] == "run_boxes"
    got = torch.autograd.grad(found.square().sum(), inputs)
    monkeypatch.setattr(dense, "boxes_for", lambda question: None)
    layer.prepare()
    expected = layer(image)
    assert run_of(layer)[0] == "run"
    assert_same_output(found.detach(), expected.detach(), 1e-5)
    assert_same_output(found.detach(), evaluate(layer.basis(), image).detach(), 1e-3)
    for g, w in zip(got, torch.autograd.grad(expected.square().sum(), inputs), strict=True):
        assert_same_output(g, w, 1e-4 * w.abs().max().item())


@pytest.mark.parametrize("heads", [[0], [2], [0, 1, 2]])
def test_boxes_keep_every_weight(heads):
    """What they leave out is exactly 0 as computed."""
    layer, image = slanted(heads)
    with torch.no_grad():
        boxes = dense.boxes_for(layer.question(layer.basis(), image))
        attention = layer.attention(sides=(40, 37))[0].unflatten(1, (39, 18)).unflatten(3, (40, 37))
    for rows, columns in itertools.product(*boxes):
        part = attention[:, rows.start : rows.stop, columns.start : columns.stop].clone()
        part[..., rows.first : rows.last, columns.first : columns.last] = 0
        assert not part.any()


def profile_of(reading, dtype, alpha, center):
    """The weights (queries, keys) of a frozen head on an axis; those that are left out are 0."""
    operators = QuadraticSoftmax.of(torch.tensor([[center]], dtype=torch.float64).to(score_dtype(dtype)), alpha)
    whole, keys = profiles.Tiling.whole(reading.grid, 0), (0, *reading.grid.keys)
    return profiles.profiles_of(operators, reading.grid, 0, whole, slice(1), dtype, keys, reading.depths())[0, 0]


@given(
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.sampled_from([1e-6, 0.003, 0.1, 1.0, 5.0, 23.0, 46.0, 500.0]),
    st.integers(-480, 480).map(lambda part: part / 16),
    st.integers(1, 60),
)
def test_what_frozen_heads_leave_out_weighs_less_than_rounding(dtype, alpha, center, side):
    """What is kept is no less than a thousandth of what is left out at most, so that three axes stay normal numbers."""
    reading = reading_of(dtype, alpha, center, side)
    kept, (first, last) = profile_of(reading, dtype, alpha, center), reading.ends([0], 0)
    displacement = torch.arange(side) - torch.arange(side)[:, None]
    weights = torch.softmax(-alpha * (displacement - center).double().square(), -1)
    most = profiles.LEFT_OUT * torch.finfo(dtype).eps
    for read in (kept > 0, (displacement >= first) & (displacement <= last)):
        assert weights.masked_fill(read, 0).sum(-1).max() <= most
    least = kept[kept > 0].min()
    assert least >= most / 1000
    assert dtype == torch.float64 or least**3 > torch.finfo(torch.float32).tiny


def reading_of(dtype, alpha, center, side):
    """What a frozen head reads of an axis."""
    grid = AttentionGrid((side,), Sites.everywhere(1))
    return profiles.KeysRead(HeadNumbers(((center,),), (alpha,)), grid, dtype, every=False)


@given(
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.sampled_from([1e-6, 0.003, 0.1, 1.0, 5.0, 23.0, 46.0, 500.0]),
    st.floats(-30, 30),
    st.integers(1, 60),
)
def test_keys_that_are_kept_are_an_interval_with_the_nearest(dtype, alpha, center, side):
    """What claim LEFT asks of an engine: rounding keeps the order of scores, whatever a centre is."""
    kept = profile_of(reading_of(dtype, alpha, center, side), dtype, alpha, center)
    edges = ((kept > 0).int().diff(dim=-1) == 1).sum(-1) + (kept[:, 0] > 0)
    assert (edges == 1).all()
    displacement = torch.arange(side) - torch.arange(side)[:, None]
    nearest = (displacement - center).double().abs().argmin(-1, keepdim=True)
    assert (kept.gather(1, nearest) > 0).all()


@pytest.mark.parametrize("groups", [1, 4])
def test_heads_that_become_trained_have_gradients(groups):
    """A recipe of frozen heads, which keeps their profiles, does not serve them any more."""
    conv = torch.nn.Conv2d(4, 4, 3, padding=1, groups=groups)
    layer = set_engine(attention_for(read_convolution(conv), alpha=5.0), "separable")
    image = torch.randn(1, 4, 30, 31)
    layer(image)
    layer.encoding.learn()
    layer(image).square().sum().backward()
    assert layer.encoding.center.grad.abs().min() > 0


@pytest.mark.parametrize("alpha", [50.0, 128.0])
def test_separable_attention_is_linear_in_the_tokens(alpha):
    """100,000 tokens: all pairs would take 40 GB a head."""
    conv = torch.nn.Conv1d(1, 1, 3, padding=1).requires_grad_(False)
    layer = set_engine(attention_for(read_convolution(conv), alpha=alpha), "separable")
    image = torch.randn(1, 1, 100_000, generator=torch.Generator().manual_seed(0))
    layer.memory_limit = 2**26
    assert_same_output(layer(image).detach().double(), convolve(conv, image), rounding_allowed(conv, image))
