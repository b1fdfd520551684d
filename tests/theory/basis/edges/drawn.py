"""Drawn graphs, weights and heads: each is its formula, written with dense matrices."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    AttentionGrid,
    GeneralisedSoftmax,
    QuadraticSoftmax,
    Sites,
    Weights,
    basis_of,
    causal_shifts,
    evaluate,
    isotropic,
)

ROUNDING = 2.0**-44
SEEDS = st.integers(0, 2**16)


def numbers(*shape, seed):
    """Numbers of size one in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 4), st.integers(1, 3), SEEDS)
def test_causal_shifts_are_a_padded_convolution_of_torch(size, dilation, seed):
    torch.manual_seed(seed)
    padding = (size - 1) * dilation
    conv = torch.nn.Conv1d(2, 3, size, dilation=dilation, padding=padding, dtype=torch.float64)
    image = numbers(2, 2, 9, seed=seed)
    basis = basis_of(causal_shifts(size, dilation), Weights(None, conv.weight.permute(2, 0, 1), conv.bias), 1)
    assert_same_output(evaluate(basis, image).detach(), conv(image)[..., :9].detach(), ROUNDING)


@given(st.booleans(), st.booleans(), SEEDS)
def test_weights_are_the_products_of_the_factors_that_they_have(first, second, seed):
    value = numbers(3, 4, 2, seed=seed) if first or not second else None
    output = numbers(3, 5, 4, seed=seed + 1) if second else None
    weights = Weights(value, output)
    one, two = weights.explicit_factors()
    assert_same_output(two @ one, weights.taps(), 1e-12)
    if (value is None) != (output is None):
        assert weights.taps() is (output if value is None else value)
        assert (weights.d_out, weights.d_in) == tuple(weights.taps().shape[1:])


@given(st.integers(1, 3), st.booleans(), SEEDS)
def test_the_precision_of_heads_is_the_curvature_of_their_scores(axes, full, seed):
    center, sides = numbers(2, axes, seed=seed), (5, 4, 3)[:axes]
    root, alpha = numbers(2, axes, axes, seed=seed + 1), numbers(2, seed=seed + 2).abs() + 0.1
    heads = GeneralisedSoftmax(center, root) if full else QuadraticSoftmax(center, alpha)
    assert (isotropic(heads) is None) == full
    grid = AttentionGrid(sides, Sites.everywhere(axes))
    from_center = grid.displacements().double()[None] - center[:, None, None]
    expected = -torch.einsum("hqkx,hxy,hqky->hqk", from_center, heads.precision(), from_center) / 2
    found = heads.scores(grid, grid.every_query(), torch.float64)[0]
    assert_same_output(found - found[..., :1], expected - expected[..., :1], 1e-9)
