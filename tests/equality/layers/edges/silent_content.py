"""Content terms whose keys are all 0 add exactly 0 to every score: certify decides such a layer by its positions."""

import pytest
import torch
from equality.pairs import row_of
from torch import nn

from conv2attn import convert
from conv2attn.equality.layers.bases import engines_of
from conv2attn.verdicts import Verdict

IMAGE = torch.rand(1, 2, 6, 7, generator=torch.Generator().manual_seed(0))


def silent(alpha):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3, padding=1).eval()
    return conv, convert(conv, alpha=alpha, content="silent")


@pytest.mark.parametrize(("alpha", "verdict"), [("auto", Verdict.HOLDS), (3.0, Verdict.REFUTED)])
def test_silent_content_is_decided_as_positions_alone_are(alpha, verdict):
    conv, attention = silent(alpha)
    row = row_of(conv, attention, IMAGE)
    plain = row_of(conv, convert(conv, alpha=alpha), IMAGE)
    assert (row.verdict, row.leak > 0) == (plain.verdict, plain.leak > 0) == (verdict, alpha == 3.0)
    assert row.max_error <= row.bound
    assert {"dense", "sdpa"} == set(engines_of(attention))


@pytest.mark.parametrize(("name", "value"), [("key", 1e-30), ("key_bias", 1e-30)])
def test_content_that_says_anything_is_not_silent(name, value):
    conv, attention = silent("auto")
    if name == "key_bias":
        attention.key_bias = nn.Parameter(torch.zeros(attention.heads, attention.key.shape[1]))
    with torch.no_grad():
        getattr(attention, name).view(-1)[0] = value
    assert not attention.has_silent_content
    assert row_of(conv, attention, IMAGE).verdict is Verdict.UNSUPPORTED


def test_content_without_a_score_of_positions_is_not_silent():
    _, attention = silent("auto")
    attention.terms = type(attention.terms).of("qk")
    assert not attention.has_silent_content
