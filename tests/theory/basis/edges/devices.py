"""Operators on a device compute there what they compute on the CPU; their matrices are on the CPU, in float64."""

import pytest
import torch
from torch import nn

from conv2attn.layers.framework import compare, expand, reduce
from conv2attn.testing import assert_same
from conv2attn.theory.basis import (
    FAMILIES,
    Chebyshev,
    Combination,
    Composition,
    Concatenation,
    Dense,
    Diagonal,
    Kronecker,
    LowRank,
    Padding,
    Shift,
    Sites,
    apply,
    as_affine_map,
    as_basis,
    as_matrix,
    evaluate,
    moved_to,
)
from conv2attn.verdicts import Verdict


def dense(count, queries, keys):
    return Dense(torch.randint(-3, 4, (count, queries, keys)).float(), (queries,))


HEADS = {
    "quadratic": lambda: (torch.randn(2, 2), [0.2, 3.0]),
    "generalised": lambda: (torch.randn(2, 2), torch.randn(2, 2, 2)),
    "learned": lambda: (2, (3, 4), 4),
    "sinusoidal": lambda: (2, 2, 4),
}
OPERATORS = {
    **{name: (lambda name=name: FAMILIES[name].of(*HEADS[name]()), (3, 4)) for name in HEADS},
    "shift": (lambda: Shift(((0, -1), (2, 0))), (3, 4)),
    "padding": (lambda: Padding((1, 0), (0, 2), "reflect"), (3, 4)),
    "sites": (lambda: Sites((2, 1), (0, 1), (0, 1)), (3, 4)),
    "composition": (lambda: Composition((dense(2, 4, 3), dense(3, 3, 2))), (2,)),
    "kronecker": (lambda: Kronecker((dense(2, 4, 3), dense(1, 3, 4))), (3, 4)),
    "polynomials": (lambda: Chebyshev(dense(1, 5, 5), 3), (5,)),
    "dense": (lambda: dense(2, 4, 3), (3,)),
    "low rank": (lambda: LowRank(torch.ones(2, 4, 3), torch.ones(2, 5, 3), (4,)), (5,)),
    "diagonal": (lambda: Diagonal(torch.ones(2, 3, 4)), (3, 4)),
    "side by side": (lambda: Concatenation((dense(1, 4, 3), dense(2, 4, 3))), (3,)),
    "combined": (lambda: Combination(torch.ones(5, 2), dense(2, 4, 3)), (3,)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_computes_where_its_image_is(name, device):
    torch.manual_seed(0)
    build, sides = OPERATORS[name]
    operator = build()
    there = moved_to(operator, device)
    image = torch.randint(-8, 9, (2, *sides)).float()
    output = apply(there, image.to(device), sides)
    assert output.device == image.to(device).device
    assert_same(output.cpu(), apply(operator, image, sides), 1e-5)
    assert_same(as_matrix(there, sides), as_matrix(operator, sides))


def test_what_has_no_tensors_to_move_stays_itself():
    basis = as_basis(nn.Conv2d(2, 3, 3))
    assert moved_to(basis.operators, "cpu") is basis.operators
    assert moved_to(basis, "cpu") is basis
    assert moved_to(basis, "meta").weights.stored.is_meta


def test_layers_are_compared_expanded_and_reduced_from_a_device(device):
    conv = nn.Conv2d(2, 3, 3, padding=1).to(device)
    basis = as_basis(conv)
    image = torch.randn(1, 2, 4, 5, device=device)
    assert evaluate(basis, image).device == image.device
    assert compare(conv, basis, sides=(4, 5)).verdict is Verdict.HOLDS
    assert expand(conv, basis.mixing, sides=(4, 5)).verdict is Verdict.HOLDS
    matrix, vector = as_affine_map(basis, (4, 5))
    expected = (matrix @ image.cpu().double().flatten() + vector).reshape(1, 3, 4, 5)
    assert_same(conv(image).detach().cpu().double(), expected.detach(), 1e-5)
    for kind in ("rank", "mixtures", "terms"):
        reduced = reduce(basis, 2.0, kind).basis
        assert evaluate(reduced, image).device == image.device
        difference = (evaluate(reduced, image.clamp(-1, 1)) - conv(image.clamp(-1, 1))).abs().max()
        assert difference <= 2.0 + 1e-5
