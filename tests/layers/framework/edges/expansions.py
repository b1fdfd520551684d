"""Layers in given operators (Prop. 1), and average pooling as a basis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn.layers.framework import BasisConvolution, expand
from conv2attn.theory.basis import Dense, Shift, as_basis, evaluate
from conv2attn.verdicts import Verdict

AROUND = Shift(tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)))


def whole_numbers(layer):
    """The layer with small whole numbers, for which sums in float64 are exact."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    return layer.double()


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
