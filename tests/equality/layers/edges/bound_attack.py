"""Inputs that exceed a printed bound are searched for: drawn layers in four formats, at images made to differ most.

The difference of a convolution and its heads is linear in the image but for rounding, so in real arithmetic the worst
image is made of the signs of one output's gradient; from there the search climbs by the difference as computed. The
suite draws 8 layers; `make attack` draws 1,000.
"""

import copy
import os
import random

import pytest
import torch
from changes import changed
from equality import planted
from equality.layers.edges.rounding import factored
from equality.pairs import row_of
from equality.planted import taps
from torch import nn

from benchmarks.tightness import shuffled
from conv2attn import convert

LAYERS = int(os.environ.get("CONV2ATTN_ATTACK", "80")) // 10
FORMATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
STEPS = 12  # chosen: the climb gains little after about ten

CHANGES = {
    "nothing": lambda layer: None,
    "weights": lambda layer: taps(layer)[-1].add_(0.25),
    "biases": lambda layer: layer.bias.data.mul_(-3),
    "cancelling heads": planted.cancelling,
    "random factors": factored,
    "rewritten factors": planted.rewritten,
    "a centre between pixels": lambda layer: changed(layer, "center", lambda numbers: numbers[0].sub_(0.25)),
    "one soft head": lambda layer: changed(layer, "alpha", lambda numbers: numbers[-1:].fill_(1.5)),
}


def drawn_layer(draw, dtype):
    """A convolution and its conversion with a change, from spread heads to one-hot ones in any order."""
    groups = draw.choice((1, 1, 2))
    conv = nn.Conv2d(
        groups * draw.randint(1, 3),
        groups * draw.randint(1, 2),
        (draw.randint(1, 3), draw.randint(1, 3)),
        stride=draw.randint(1, 2),
        padding=(draw.randint(0, 2), draw.randint(0, 2)),
        dilation=draw.randint(1, 2),
        groups=groups,
        bias=draw.random() < 0.5,
        padding_mode=draw.choice(("zeros", "zeros", "replicate")),
    )
    with torch.no_grad():
        conv.weight *= 2.0 ** draw.randint(-4, 4)
    conv = conv.to(dtype).eval().requires_grad_(False)
    attention = convert(conv, alpha=draw.choice((0.5, 2.0, 5.0, 9.0, 14.0, 20.0, 64.0)))
    if conv.bias is not None:
        CHANGES[draw.choice([*CHANGES])](attention)
    attention = shuffled(attention, torch.Generator().manual_seed(draw.randrange(99)))
    attention.engine = draw.choice(("auto", "separable", "dense"))
    return conv, attention


@torch.no_grad()
def difference(conv, attention, image):
    return (conv(image).double() - attention(image).double()).abs()


def gradient_signs(conv, attention, image, place):
    """The image of ones and minus ones at which this output differs most in real arithmetic."""
    wide = [copy.deepcopy(layer).double() for layer in (conv, attention)]
    leaf = image.double().requires_grad_()
    gap = (wide[0](leaf) - wide[1](leaf)).flatten()[place]
    (slope,) = torch.autograd.grad(gap, leaf)
    return torch.where(slope < 0, -1.0, 1.0).to(image.dtype)


def largest_difference(conv, attention, image, draw):
    """The largest difference that the search finds on images within [-1, 1]; it begins at `image`."""
    best, worst = image, difference(conv, attention, image)
    for step in range(STEPS):
        if step < 3:  # the place that differs most may be another one at the image of another place
            tried = gradient_signs(conv, attention, best, int(worst.argmax()))
        else:  # numbers of other significands round otherwise; other signs leak otherwise
            changed = torch.rand(image.shape) < draw.choice((0.02, 0.1, 0.5))
            less = (1 - torch.rand(image.shape) * draw.choice((0.0, 2.0**-7, 0.5))).to(image.dtype)
            tried = torch.where(changed, best.sign() * less * draw.choice((-1, 1)), best)
        found = difference(conv, attention, tried)
        best, worst = max((best, worst), (tried, found), key=lambda pair: pair[1].max())
    return float(worst.max())


def attacked(draw, dtype):
    """The printed bound of a drawn layer and the largest difference found; None where no bound is printed."""
    torch.manual_seed(draw.randrange(2**31))
    conv, attention = drawn_layer(draw, dtype)
    image = torch.ones(1, conv.in_channels, draw.randint(5, 9), draw.randint(5, 9), dtype=dtype)
    image *= torch.randint(0, 2, image.shape) * 2 - 1
    row = row_of(conv, attention, image)
    assert row.input_range == 1.0
    return None if row.bound is None else (row.bound, largest_difference(conv, attention, image, draw))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_no_input_exceeds_a_printed_bound(dtype):
    draw = random.Random(f"{dtype} of {LAYERS}")
    answers = [attacked(draw, dtype) for _ in range(LAYERS // len(FORMATS))]
    printed = [answer for answer in answers if answer is not None]
    assert [(bound, found) for bound, found in printed if not found <= bound] == []
    assert 2 * len(printed) >= len(answers)


def test_a_bound_of_a_tenth_is_exceeded():
    draw = random.Random(0)
    conv = nn.Conv2d(2, 1, 3, padding=1).eval().requires_grad_(False)
    attention = convert(conv, alpha=2.0)
    image = torch.ones(1, 2, 7, 8)
    row = row_of(conv, attention, image)
    assert row.bound / 10 < largest_difference(conv, attention, image, draw) <= row.bound
