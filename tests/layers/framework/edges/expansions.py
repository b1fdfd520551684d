"""Layers in given operators (Prop. 1), convolutions composed to one, and average pooling as a basis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn.errors import UsageError
from conv2attn.layers.framework import BasisConvolution, expand, to_torch
from conv2attn.theory.basis import Dense, Shift, as_basis, compose_shifts, evaluate, terms
from conv2attn.verdicts import Verdict

AROUND = Shift(tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)))
small = st.integers(1, 3)


def whole_numbers(layer):
    """The layer with small whole numbers, for which sums in float64 are exact."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    return layer.double()


@st.composite
def chains(draw, padded=True):
    """Two convolutions one after the other, and the sides of an image that both take."""
    layers = []
    for d_in, d_out in ((2, 4), (4, 3)):
        kernel, stride, dilation = (draw(st.tuples(small, small)) for _ in range(3))
        padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) if padded else 0
        groups, bias = draw(st.sampled_from([1, 2] if d_out == 4 else [1])), draw(st.booleans())
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
        layers.append(whole_numbers(nn.Conv2d(d_in, d_out, kernel, **options)))
    return (*layers, (draw(st.integers(24, 30)), draw(st.integers(24, 30))))


@given(chains(padded=False))
def test_two_convolutions_without_padding_are_one_of_every_size(chain):
    first, second, sides = chain
    image = torch.randint(-8, 9, (1, 2, *sides)).double()
    both = compose_shifts(as_basis(second), as_basis(first))
    assert torch.equal(evaluate(both, image), second(first(image)))


@given(chains())
def test_two_padded_convolutions_are_one_wherever_neither_reads_padding(chain):
    """Outputs that see padding are found by running both on ones, with and without what lies beyond the image."""
    first, second, sides = chain
    image = torch.randint(-8, 9, (1, 2, *sides)).double()
    one, two = evaluate(compose_shifts(as_basis(second), as_basis(first)), image), second(first(image))
    assert one.shape == two.shape
    counts = [nn.Conv2d(1, 1, c.kernel_size, c.stride, c.padding, c.dilation, bias=False).double() for c in chain[:2]]
    for count in counts:
        nn.init.ones_(count.weight)
    with torch.no_grad():
        whole = counts[1](counts[0](torch.ones(1, 1, *sides).double()))
    interior = (whole == counts[0].weight.numel() * counts[1].weight.numel()).expand_as(two)
    assert torch.equal(one[interior], two[interior])


def test_two_kernels_of_three_make_one_of_five():
    first, second = (whole_numbers(nn.Conv2d(d_in, d_out, 3)) for d_in, d_out in ((2, 4), (4, 3)))
    both = compose_shifts(as_basis(second), as_basis(first))
    assert terms(both.operators) == 25
    layer = to_torch(both)
    assert layer.kernel_size == (5, 5)
    image = torch.randint(-8, 9, (2, 2, 9, 8)).double()
    assert torch.equal(layer(image), second(first(image)))


@pytest.mark.parametrize(
    "pool",
    [nn.AvgPool1d(2), nn.AvgPool2d(2), nn.AvgPool2d((3, 2), 2, (1, 1), divisor_override=5), nn.AvgPool3d(2, 1, 1)],
    ids=str,
)
def test_average_pooling_is_a_basis_of_shifts(pool):
    sides = (7, 6, 5)[: int(type(pool).__name__[-2])]
    image = torch.randn(2, 3, *sides)
    torch.testing.assert_close(evaluate(as_basis(pool, 3), image), pool(image))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=9, unique=True), st.integers(0, 8))
def test_a_layer_expands_exactly_in_operators_that_span_its_own(kept, dropped):
    """A convolution with some taps only, in shifts of which one is missing."""
    conv = whole_numbers(nn.Conv2d(2, 3, 3, padding=1))
    with torch.no_grad():
        conv.weight.copy_(torch.randint(1, 5, conv.weight.shape))
        away = [tap for tap in range(9) if tap not in kept]
        conv.weight.flatten(2)[:, :, away] = 0
    offered = Shift(tuple(offset for k, offset in enumerate(AROUND.offsets) if k != dropped))
    found = expand(conv, offered, sides=(4, 5))
    assert (found.verdict is Verdict.HOLDS) == (dropped not in kept) == (found.comparison.verdict is Verdict.HOLDS)
    image = torch.randint(-8, 9, (1, 2, 4, 5)).double()
    assert torch.equal(evaluate(found.basis, image), conv(image)) or found.verdict is Verdict.REFUTED


def test_every_map_has_one_expansion_in_a_basis_of_all_matrices():
    """Proposition 1 itself, on two inputs and three outputs: six operators in general position."""
    operators = Dense(torch.randint(-4, 5, (6, 3, 2), generator=torch.Generator().manual_seed(3)).double(), (3,))
    target = Dense(torch.tensor([[[1.0, 2], [3, 4], [5, 6]]]).double(), (3,))
    layer = whole_numbers(BasisConvolution(2, 3, terms=1)).basis(target)
    found = expand(layer, operators, sides=(2,))
    assert (found.verdict, found.unique) == (Verdict.HOLDS, True)
    assert found.comparison.error < 1e-12
    fewer = expand(layer, Dense(operators.matrix[:5], (3,)), sides=(2,))
    assert (fewer.verdict, fewer.unique) == (Verdict.REFUTED, True)
    doubled = expand(layer, Dense(operators.matrix[[0, 1, 2, 3, 4, 5, 0]], (3,)), sides=(2,))
    assert (doubled.verdict, doubled.unique) == (Verdict.HOLDS, False)


PADDED = {
    "circular": {"padding": 1, "padding_mode": "circular"},
    "circular, twice as far": {"padding": 2, "dilation": 2, "padding_mode": "circular"},
    "zeros": {"padding": 1},
    "reflect": {"padding": 1, "padding_mode": "reflect"},
    "replicate": {"padding": 1, "padding_mode": "replicate"},
    "circular, fewer outputs": {"padding": 1, "stride": 2, "padding_mode": "circular"},
}


@pytest.mark.parametrize("first", PADDED)
@pytest.mark.parametrize("second", PADDED)
def test_circular_layers_compose_around_the_torus_and_other_paddings_are_refused(first, second):
    """The slides' Conv(W', Conv(W, X)) = Conv(Conv(W', W), X) holds at every pixel of a torus, and there alone."""
    one, two = (nn.Conv2d(2, 2, 3, **PADDED[name]).double() for name in (first, second))
    image = torch.randn(1, 2, 8, 10, dtype=torch.float64)
    names = {first, second}
    if names == {"zeros"}:
        return
    if not names <= {"circular", "circular, twice as far"}:
        with pytest.raises(UsageError, match="C2A104"):
            compose_shifts(as_basis(two), as_basis(one))
        return
    both = compose_shifts(as_basis(two), as_basis(one))
    torch.testing.assert_close(evaluate(both, image), two(one(image)), rtol=0, atol=1e-13)
    assert to_torch(both).padding_mode == "circular"


def test_a_pointwise_layer_keeps_the_torus():
    one, two = nn.Conv2d(2, 3, 1).double(), nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular").double()
    image = torch.randn(1, 2, 5, 7, dtype=torch.float64)
    both = compose_shifts(as_basis(two), as_basis(one))
    torch.testing.assert_close(evaluate(both, image), two(one(image)), rtol=0, atol=1e-13)
