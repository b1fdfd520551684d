"""Arguments as libraries give them are taken as they are; what is meant by nobody is refused in a sentence."""

from fractions import Fraction
from inspect import Parameter, signature

import numpy as np
import pytest
import torch
from torch import nn

from conv2attn import check_span, convert, express, heads, recover
from conv2attn.span import expression
from conv2attn.verdicts import Strength, Verdict

EYE = np.eye(9)[None]
LAYER = convert(nn.Conv2d(2, 3, 3, padding=1))


def filled(number, *arguments):
    convolution = nn.Conv2d(*arguments)
    nn.init.constant_(convolution.weight, number)
    return convolution


@pytest.mark.parametrize(
    ("attention", "options"),
    [
        (EYE, {"kernel_size": np.int64(1), "grid": np.int64(3)}),
        (EYE, {"kernel_size": np.array([1, 1]), "grid": torch.tensor([3, 3]), "dilation": np.int32(2)}),
        (EYE, {"offsets": np.array([[0, 0]])}),
        (EYE, {"offsets": torch.tensor([[0, 0]])}),
        (EYE.astype(bool), {"kernel_size": 1, "exact": True}),
        (torch.stack([torch.eye(9).to_sparse()]), {"kernel_size": 1}),
        (torch.eye(9, requires_grad=True)[None], {"kernel_size": 1}),
        (torch.eye(9, dtype=torch.bfloat16)[None], {"kernel_size": 1, "exact": True}),
    ],
)
def test_numbers_of_any_library(attention, options):
    assert check_span(attention, **options).verdict is Verdict.HOLDS


def test_one_number_is_a_grid_for_express_too():
    convolution = nn.Conv2d(2, 3, 3, padding=1)
    assert np.array_equal(*(expression(convolution, LAYER, grid=grid).mixing for grid in (7, (7, 7))))


def test_a_convolution_of_zeros_asks_for_nothing_and_is_expressed_by_zeros():
    zeros = filled(0.0, 2, 3, 3)
    assert check_span(LAYER, grid=5, convolution=zeros, condition="kernel").verdict is Verdict.UNDECIDED
    made = express(zeros, LAYER)
    image = torch.randn(1, 2, 6, 6)
    assert torch.equal(made(image), zeros.bias.detach()[:, None, None].expand(1, 3, 4, 4))


@pytest.mark.parametrize("p", [2**61 - 1, (2**61 - 1) * (2**61 - 31) * (2**61 - 45)])
def test_ranks_of_rows_with_large_prime_denominators_are_exact(p):
    identity, other = [[1, 0], [0, 1]], [[Fraction(p - 1, p), Fraction(1, p)], [Fraction(1, p), Fraction(p - 1, p)]]
    heads = np.array([[[Fraction(x) for x in row] for row in head] for head in (identity, other)], dtype=object)
    first = check_span(heads, 1, grid=(2,)).rows[0].deciding
    assert (first.verdict, first.strength) == (Verdict.HOLDS, Strength.PROVED)
    assert check_span(heads[1:], 1, grid=(2,), eps=1e-60).verdict is Verdict.REFUTED


def test_the_largest_norm():
    assert check_span(np.full((2, 9, 9), 1 / 9), 1, max_phi=1e100).verdict is Verdict.REFUTED
    assert check_span(EYE, 1, max_phi=1e100).verdict is Verdict.HOLDS
    assert check_span(np.full((2, 9, 9), 1 / 9), 1, max_phi=1e-100).verdict is Verdict.REFUTED


def test_names_need_not_be_text():
    report = check_span({0: EYE, ("a", 1): EYE}, 1)
    assert [row.name for row in report.rows] == ["0", "('a', 1)"]
    assert "('a', 1)" in report.to_text()


TWO = {check_span: "kernel_size", heads: "example_input", express: "layer", expression: "layer"}
"""Functions of which a second argument needs no name."""


@pytest.mark.parametrize("function", [*TWO, recover])
def test_options_are_given_by_name(function):
    first, *others = signature(function).parameters.values()
    assert first.kind is Parameter.POSITIONAL_OR_KEYWORD
    named = {each.name for each in others if each.kind is Parameter.KEYWORD_ONLY}
    assert {each.name for each in others} - named == ({TWO[function]} if function in TWO else set())
