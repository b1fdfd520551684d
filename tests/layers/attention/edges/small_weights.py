"""The gradient of fused attention where weights are subnormal: torch's numbers, of which none is subnormal."""

import math

import pytest
import torch
from layers.attention.drawing import encoding_for
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.layers.attention import MultiHeadSelfAttention, set_engine
from conv2attn.layers.attention.engines import cut_gradient
from conv2attn.testing import assert_same_output

TINY = torch.finfo(torch.float32).tiny


def drawn(spread, dtype=torch.float64):
    """Queries, keys and values of two images and three heads whose scores differ by about `spread`, and a gradient."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((7, 8), (50, 8), (50, 8), (7, 8))
    queries, keys, values, gradient = (torch.randn(2, 3, *size, generator=generator, dtype=dtype) for size in sizes)
    return [(spread / 8 * queries), keys, values], gradient


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("numbers", [2**19, 100])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
def test_gradients_are_those_of_the_formula(spread, numbers, trained, monkeypatch):
    monkeypatch.setattr(cut_gradient, "TILE_NUMBERS", numbers)
    inputs, gradient = drawn(spread)
    for each in inputs[: 3 if trained else 2]:
        each.requires_grad_()
    queries, keys, values = inputs
    wanted = [each for each in inputs if each.requires_grad]
    formula = torch.softmax(queries @ keys.mT, -1) @ values
    plain = torch.autograd.grad(formula, wanted, gradient)
    for factor in (1.0, 2.0**-200):
        own = torch.autograd.grad(cut_gradient.CutGradient.apply(*inputs), wanted, factor * gradient)
        for one, other in zip(own, plain, strict=True):
            assert_same_output(one / factor, other, 1e-11 * spread)


def test_what_is_left_out_of_a_gradient_is_within_the_stated_bound():
    """A weight of 2^-115 on a value of 2^100: the whole gradient of the query is lost, and the bound says so."""
    queries = torch.tensor([[[[1.0]]]], requires_grad=True)
    keys, values = torch.tensor([[[[0.0], [-80.0]]]]), torch.tensor([[[[1.0], [2.0**100]]]])
    (found,) = torch.autograd.grad(cut_gradient.CutGradient.apply(queries, keys, values).sum(), queries)
    exact = queries.double()
    mean = torch.softmax(exact @ keys.double().mT, -1) @ values.double()
    (wanted,) = torch.autograd.grad(mean.sum(), exact)
    off = abs(found.item() - wanted.item())
    assert found == 0
    assert 0 < off <= 2 * 2.0**-102 * (values - mean).abs().max().item() * 80


EMPTY = {
    "no queries": (2, 3, 0, 5, 4, 4),
    "no keys": (2, 3, 5, 0, 4, 4),
    "neither": (2, 3, 0, 0, 4, 4),
    "no heads": (2, 0, 5, 6, 4, 4),
    "no images": (0, 3, 5, 6, 4, 4),
    "no width": (2, 3, 5, 6, 0, 4),
    "no width of values": (2, 3, 5, 6, 4, 0),
}
FUSED = {
    "cut": cut_gradient.CutGradient.apply,
    "chosen": lambda *inputs: cut_gradient.fused_attention(*inputs, 0.0),
}


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_axes_have_the_results_and_gradients_of_the_formula(kind, fused, trained):
    images, heads, asking, asked, width, of_values = EMPTY[kind]
    generator, sizes = torch.Generator().manual_seed(0), ((asking, width), (asked, width), (asked, of_values))
    inputs = [torch.randn(images, heads, *size, generator=generator, dtype=torch.float64) for size in sizes]
    wanted = [each.requires_grad_() for each in inputs[: 3 if trained else 2]]
    queries, keys, values = inputs
    formula, own = torch.softmax(queries @ keys.mT, -1) @ values, FUSED[fused](*inputs)
    torch.testing.assert_close(own, formula)
    gradient = torch.ones_like(formula)
    pairs = zip(torch.autograd.grad(own, wanted, gradient), torch.autograd.grad(formula, wanted, gradient), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("depth", "kept"), [(0.0, True), (30.0, True), (65.0, True), (75.0, False), (95.0, False)])
def test_a_weight_is_kept_until_it_is_nearly_subnormal(depth, kept):
    """In float32 a weight counts from 2^-102 of the largest on; two keys, the second `depth` below the first."""
    query, values = torch.ones(1, 1, 1, 8), torch.ones(1, 1, 2, 8, requires_grad=True)
    keys = torch.tensor([0.0, -depth / 8])[:, None].expand(1, 1, 2, 8)
    (result,) = torch.autograd.grad(cut_gradient.CutGradient.apply(query, keys, values).sum(), values)
    first = 1 / (1 + math.exp(-depth))
    assert_same_output(result[0, 0, 0], torch.full((8,), first), 1e-6)
    second = result[0, 0, 1].double() * math.exp(depth)
    assert_same_output(second, torch.full((8,), first if kept else 0.0, dtype=torch.float64), 1e-4)


class Subnormals(TorchDispatchMode):
    """Counts the numbers of all results with one for each pair of 7 queries and 50 keys, and the subnormal ones."""

    def __init__(self):
        super().__init__()
        self.numbers = self.subnormal = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(each, torch.Tensor) and each.is_floating_point() and each.shape[-2:] == (7, 50):
                self.numbers += each.numel()
                self.subnormal += ((each != 0) & (each.abs() < TINY)).sum().item()
        return result


@pytest.mark.parametrize("factor", [1.0, 2.0**-90])
def test_no_weight_and_no_product_with_one_is_subnormal(factor):
    inputs, gradient = drawn(100.0, torch.float32)
    result = cut_gradient.CutGradient.apply(*(each.requires_grad_() for each in inputs))
    with Subnormals() as counted:
        result.backward(factor * gradient)
    assert counted.numbers >= 6 * 4 * 350
    assert counted.subnormal == 0


def plane(alpha, terms="qk+qr+uk+vr"):
    """A quadratic layer with content on 16 x 16 tokens."""
    torch.manual_seed(0)
    encoding = encoding_for("quadratic", 2, (16, 16), torch.Generator().manual_seed(0), alpha).float()
    layer = MultiHeadSelfAttention(3, 3, encoding, d_key=8, terms=terms, affine=True, engine="sdpa")
    layer.query.data *= 0.05
    return layer


@pytest.mark.parametrize(("alpha", "cut"), [(0.01, False), (0.5, True)])
def test_a_layer_takes_it_where_many_weights_are_subnormal(alpha, cut, monkeypatch):
    calls = []
    monkeypatch.setattr(
        cut_gradient.CutGradient, "apply", lambda *inputs: calls.append(inputs) or torch.zeros_like(inputs[2])
    )
    layer, image = plane(alpha), 0.1 * torch.randn(1, 3, 16, 16)
    layer(image)
    assert bool(calls) is cut
    calls.clear()
    with torch.no_grad():
        layer(image)
    torch.func.grad(lambda one: layer(one).sum())(image)
    assert not calls


def test_a_layer_with_many_subnormal_weights_has_the_gradients_of_the_formula():
    layer, image = plane(0.5), 0.1 * torch.randn(2, 3, 16, 16)
    exact = set_engine(plane(0.5).double(), "dense")
    gradients = []
    for network, given in ((layer, image), (exact, image.double())):
        given = given.clone().requires_grad_()
        gradients.append(torch.autograd.grad(network(given).sin().mean(), [given, *network.parameters()]))
    for one, other in zip(*gradients, strict=True):
        assert_same_output(one.double(), other, 1e-4 * max(1e-3, other.abs().max().item()))


def test_a_backward_pass_under_autocast_is_that_without():
    inputs, gradient = drawn(100.0, torch.float32)
    results = []
    for enabled in (False, True):
        result = cut_gradient.CutGradient.apply(*(each.requires_grad_() for each in inputs))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            results.append(torch.autograd.grad(result, inputs, gradient))
    assert all(map(torch.equal, *results))


def test_dropped_weights_are_torchs_own():
    inputs, _ = drawn(1000.0)
    assert not torch.equal(
        *(cut_gradient.fused_attention(*(each.requires_grad_() for each in inputs), 0.5) for _ in range(2))
    )
