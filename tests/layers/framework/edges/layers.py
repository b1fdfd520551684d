"""Layers of the framework are the layers that the paper says they are, with the same weights."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn.errors import UsageError
from conv2attn.layers.framework import (
    AttentionConvolution,
    BasisConvolution,
    BiAffine,
    DotProduct,
    Quadratic,
    from_torch,
    to_torch,
)
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    Chebyshev,
    Graph,
    Pattern,
    Shift,
    Weights,
    adjacency,
    as_basis,
    basis_of,
    compose,
    evaluate,
    gcn,
    pattern_of,
)

ROUNDING = 1e-12
GRID = Shift(tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)))
EDGES = torch.tensor([[0, 1, 1, 2, 3, 3], [1, 0, 2, 1, 3, 0]])


@pytest.fixture(autouse=True)
def _in_double(request):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("d_in", [4, 8])
@pytest.mark.parametrize("groups", [1, 2])
def test_over_shifts_it_is_a_convolution_of_torch_with_its_gradients(d_in, groups):
    conv = nn.Conv2d(d_in, 6, 3, padding=1, groups=groups)
    layer = BasisConvolution(d_in, 6, 9, groups=groups)
    layer.output.data = conv.weight.detach().flatten(2).movedim(2, 0)
    layer.bias.data = conv.bias.detach()
    image = torch.randn(2, d_in, 5, 7)
    assert_same_output(layer(image, GRID).detach(), conv(image).detach(), ROUNDING)
    layer(image, GRID).square().sum().backward()
    conv(image).square().sum().backward()
    assert_same_output(layer.output.grad, conv.weight.grad.flatten(2).movedim(2, 0), 1e-10)


@pytest.mark.parametrize("options", [{}, {"mixtures": 2}, {"rank": 2}, {"rank": 2, "groups": 2}, {"mixtures": 1}])
@pytest.mark.parametrize("d_out", [2, 6])
def test_constrained_parameters_are_the_sum_of_their_products(options, d_out):
    layer = BasisConvolution(4, d_out, 3, **options)
    family = Chebyshev(adjacency(Graph(EDGES, 4)), 2)
    kept = layer.basis(family).weights.dense()
    taps = kept if layer.coefficients is None else torch.einsum("hk,hoi->koi", layer.coefficients, kept)
    image = torch.randn(2, 4, 4)
    expected = evaluate(basis_of(family, Weights(None, taps, layer.bias), 1), image)
    assert_same_output(layer(image, family).detach(), expected.detach(), ROUNDING)


def test_the_same_parameters_run_on_other_graphs_and_learn():
    layer = BasisConvolution(2, 2, 1)
    for nodes in (4, 9):
        layer(torch.randn(1, 2, nodes), gcn(Graph(EDGES, nodes))).sum().backward()
    assert layer.output.grad.abs().sum() > 0
    with pytest.raises(UsageError, match="C2A122 a structure of 9 terms for a layer of 1"):
        layer(torch.randn(1, 2, 4, 4), GRID)


def test_a_depthwise_separable_pair_has_as_many_mixtures_as_its_kernels_have_rank():
    depthwise, pointwise = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.Conv2d(4, 5, 1)
    kernels = depthwise.weight.detach()
    for weight, rank in ((kernels, 4), (kernels[:1] * torch.arange(1.0, 5)[:, None, None, None], 1)):
        depthwise.weight.data = weight
        both = compose(as_basis(pointwise), as_basis(depthwise), (5, 6))
        assert torch.linalg.matrix_rank(both.weights.dense().flatten(1)) == rank


@given(st.booleans(), st.booleans(), st.sampled_from([1, 2, 4]), st.integers(0, 2**16))
def test_multi_head_attention_of_torch_is_one_and_comes_back(bias, causal, heads, seed):
    """With its gradients; the tokens that ask are not those that are read."""
    torch.manual_seed(seed)
    attention = nn.MultiheadAttention(8, heads, bias=bias, batch_first=True).double()
    if bias:
        attention.in_proj_bias.data.normal_()
        attention.out_proj.bias.data.normal_()
    tokens, readers = torch.randn(2, 3, 6, 8).double()
    mask = torch.full((6, 6), -torch.inf).double().triu(1) if causal else None
    expected = attention(readers, tokens, tokens, attn_mask=mask)[0]
    layer = from_torch(attention)
    found = layer(tokens.mT, readers.mT, mask)
    assert_same_output(found.mT.detach(), expected.detach(), ROUNDING)
    back = to_torch(layer)(readers, tokens, tokens, attn_mask=mask)[0]
    assert_same_output(back.detach(), expected.detach(), ROUNDING)
    found.square().sum().backward()
    expected.square().sum().backward()
    query = attention.in_proj_weight.grad[:8].unflatten(0, (heads, 8 // heads))
    assert_same_output(layer.mechanism.scored.query.grad, query, 1e-9)


@given(st.sampled_from([(6, 6), (6, 5), (8, 5)]), st.integers(0, 2**16))
def test_keys_and_values_of_other_widths_are_read_from_one_image(widths, seed):
    torch.manual_seed(seed)
    kdim, vdim = widths
    attention = nn.MultiheadAttention(8, 2, kdim=kdim, vdim=vdim, batch_first=True).double()
    attention.in_proj_bias.data.normal_()
    readers, keys, values = (torch.randn(3, count, width).double() for count, width in ((4, 8), (6, kdim), (6, vdim)))
    image = keys if kdim == vdim else torch.cat([keys, values], -1)
    expected = attention(readers, keys, keys if kdim == vdim else values)[0]
    assert_same_output(from_torch(attention)(image.mT, readers.mT).mT.detach(), expected.detach(), ROUNDING)


def test_a_mask_as_pairs_is_the_mask_in_the_log_domain():
    """Values and gradients agree; a token that nobody reads may be NaN, and one that reads nothing gives the bias."""
    pattern = pattern_of(Graph(EDGES, 6), loops=False)
    mask = torch.full((6, 6), -torch.inf)
    mask[pattern.queries, pattern.keys] = 0
    layer = from_torch(nn.MultiheadAttention(8, 2, batch_first=True))
    image = torch.randn(2, 8, 6)
    dense, sparse = layer(image, None, mask), layer(image, None, pattern)
    assert_same_output(dense.detach(), sparse.detach(), ROUNDING)
    assert_same_output(dense[..., 4].detach(), layer.bias.detach().expand(2, 8), 0.0)
    for name, parameter in layer.named_parameters():
        grads = [torch.autograd.grad(y.square().sum(), parameter, retain_graph=True)[0] for y in (dense, sparse)]
        assert_same_output(*grads, 1e-10, name)
    image[..., 5] = torch.nan
    for pairs in (mask, pattern):
        assert_same_output(layer(image, None, pairs)[..., :4].detach(), sparse[..., :4].detach(), ROUNDING)


@pytest.mark.parametrize("sparse", [False, True])
def test_what_depends_on_the_query_alone_is_redundant_without_the_relu_and_only_then(sparse):
    from_key, value, image = torch.randn(2, 5), torch.randn(2, 4, 5), torch.randn(2, 5, 4)
    mask = pattern_of(Graph(EDGES, 4)) if sparse else None
    for slope, same in ((1.0, True), (0.2, False)):
        scores = [BiAffine(None, from_key, second).leaky_relu(slope) for second in (None, torch.randn(2, 5))]
        first, second = (AttentionConvolution(s.softmax(), value)(image, None, mask) for s in scores)
        assert bool((first - second).abs().max() < ROUNDING) is same


def test_mechanisms_add_multiply_and_normalise_over_any_axis():
    a, b = DotProduct(torch.randn(2, 3, 5), torch.randn(2, 3, 5)), BiAffine(None, torch.randn(2, 5))
    value, image = torch.randn(2, 4, 5), torch.randn(2, 5, 4)
    pattern = Pattern.sorted(*[i.flatten() for i in torch.meshgrid(*[torch.arange(4)] * 2, indexing="ij")], (4, 4))[0]
    weights = lambda m, mask=None: AttentionConvolution(m, value).weights(image, None, mask).detach()  # noqa: E731
    assert_same_output(weights(a + b), weights(a) + weights(b), ROUNDING)
    assert_same_output(weights(a * b), weights(a) * weights(b), ROUNDING)
    for over, axis in (("keys", 3), ("queries", 2), ("heads", 1)):
        expected = torch.softmax(weights(a + b), axis)
        assert_same_output(weights((a + b).softmax(over)), expected, ROUNDING)
        assert_same_output(weights((a + b).softmax(over), pattern).unflatten(2, (4, 4)), expected, ROUNDING)


def test_theorem_1_is_a_statement_inside_the_framework():
    """Quadratic positions, with one head a tap, are a convolution with replicated borders."""
    conv = nn.Conv2d(3, 5, 3, padding=1, padding_mode="replicate")
    center = torch.tensor(GRID.offsets).double()
    scores = Quadratic(center, torch.full((9,), 1024.0))
    taps = conv.weight.detach().flatten(2).movedim(2, 0)
    layer = AttentionConvolution(scores.softmax(), taps, None, conv.bias.detach())
    image = torch.randn(2, 3, 4, 6)
    assert_same_output(layer(image).detach(), conv(image).detach(), ROUNDING)


def test_content_heads_and_given_heads_stand_in_one_layer():
    given = BasisConvolution(8, 8, 3)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    plain = from_torch(attention)
    layer = AttentionConvolution(plain.mechanism, plain.value, plain.output, plain.bias, given=given)
    image, shifts = torch.randn(2, 8, 5), Shift(((-1,), (0,), (1,)))
    assert_same_output(
        layer(image, structure=shifts).detach(), (plain(image) + given(image, shifts)).detach(), ROUNDING
    )


def test_attention_is_a_basis_once_its_image_is_known():
    layer = from_torch(nn.MultiheadAttention(8, 2, batch_first=True))
    image = torch.randn(1, 8, 5)
    for mask in (None, pattern_of(Graph(EDGES, 5))):
        assert_same_output(
            evaluate(layer.basis(image, None, mask), image).detach(), layer(image, None, mask).detach(), ROUNDING
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_kind_of_layer_runs_in_every_dtype_and_on_no_image_at_all(dtype):
    """Compared with float64; a mask may be of another dtype."""
    pattern, image = pattern_of(Graph(EDGES, 5)), torch.randn(2, 8, 5, dtype=dtype)
    attention = from_torch(nn.MultiheadAttention(8, 2)).to(dtype)
    scores = BiAffine(None, torch.randn(2, 4), torch.randn(2, 4)).leaky_relu().softmax()
    graph = AttentionConvolution(scores, torch.randn(2, 4, 8), join="concatenation", of_values=True).to(dtype)
    linear = BasisConvolution(8, 4, 3).to(dtype)
    structure = Chebyshev(adjacency(Graph(EDGES, 5)), 2)
    calls = [
        (attention, lambda layer, x: layer(x)),
        (attention, lambda layer, x: layer(x, None, torch.zeros(5, 5, dtype=torch.float64))),
        (attention, lambda layer, x: layer(x, None, pattern)),
        (graph, lambda layer, x: layer(x, None, pattern)),
        (linear, lambda layer, x: layer(x, structure)),
    ]
    for layer, call in calls:
        found, exact = call(layer, image), call(copy.deepcopy(layer).double(), image.double())
        assert found.dtype == dtype
        assert_same_output(found.double().detach(), exact.detach(), 64 * torch.finfo(dtype).eps)
        assert call(layer, image[:0]).shape == (0, *found.shape[1:])
        found.float().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_layers_on_a_graph_are_exported_and_their_structure_serves_on():
    """Tracing must leave none of its symbols in the structure that it read."""
    layer, image = BasisConvolution(4, 3, 3), torch.randn(2, 4, 5)
    structure = Chebyshev(adjacency(Graph(EDGES, 5)), 2)
    given = {"structure": structure}

    class OnGraph(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, image):
            return self.layer(image, **given)

    program = torch.export.export(OnGraph(), (image,))
    assert_same_output(program.module()(image).detach(), layer(image, structure).detach(), ROUNDING)
    layer(image, structure).sum().backward()
