"""What the softmax without subnormal weights cuts, against its bound."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from softmax_rounding import softmax_error

from conv2attn.theory.basis import cut_softmax
from conv2attn.theory.basis.operators import MOST_KEYS, cut_depth
from conv2attn.theory.bounds import accumulator_of
from conv2attn.theory.bounds.by_key import CUT_BITS

FORMATS = {torch.float32: "float32", torch.float64: "float64"}


def test_the_bound_speaks_of_the_depth_at_which_scores_are_cut():
    assert MOST_KEYS == 2**CUT_BITS
    for dtype, name in FORMATS.items():
        smallest = accumulator_of(name).smallest_normal
        assert math.isclose(MOST_KEYS * smallest, math.exp(-cut_depth(dtype)), rel_tol=1e-12)


@given(st.sampled_from([*FORMATS]), st.lists(st.floats(-900, 0, width=32), min_size=2, max_size=40))
def test_no_weight_is_subnormal_and_what_is_cut_is_within_the_bound(dtype, drawn):
    scores = torch.tensor([[0.0, *drawn]], dtype=dtype)
    weights, whole = cut_softmax(scores), torch.softmax(scores.double(), -1)
    tiny = torch.finfo(dtype).tiny
    assert bool(((weights == 0) | (weights >= tiny)).all())
    lost = whole[weights == 0].sum().item()
    assert lost <= scores.shape[1] * (MOST_KEYS * tiny + 2.0**-1022)
    assert (weights.double() - whole).abs().sum().item() <= softmax_error(scores.shape[1], FORMATS[dtype])


def test_scores_that_are_not_numbers_stay_so():
    assert cut_softmax(torch.tensor([0.0, math.nan])).isnan().all()
    assert cut_softmax(torch.tensor([-math.inf, 0.0])).tolist() == [0.0, 1.0]


def test_gradients_are_those_of_the_softmax_where_nothing_matters_less():
    scores = torch.tensor([0.0, -1.0, -200.0], dtype=torch.float64, requires_grad=True)
    (cut,) = torch.autograd.grad(cut_softmax(scores.float())[1], scores)
    (whole,) = torch.autograd.grad(torch.softmax(scores, -1)[1], scores)
    torch.testing.assert_close(cut, whole, rtol=1e-6, atol=1e-40)
