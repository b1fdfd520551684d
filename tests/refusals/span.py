"""Attention, grids, kernels and numbers that `check_span` does not take."""

from copy import deepcopy
from fractions import Fraction

import numpy as np
import torch
from attentions import LINE, soft
from span.cases import boxes, fractions, weights
from span.edges.recovered import depending_on_the_image
from torch import nn

from conv2attn import MultiHeadSelfAttention, check_span, convert
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding

EYE, SOFT = np.eye(9)[None], soft((5, 6), 1.0)
BOXES = weights(boxes())
THIRDS = fractions(BOXES)
LAYER = convert(nn.Conv2d(1, 1, 3))
ON = {"grid": (5, 6)}
SIX = {"kernel_size": 1, "grid": (6,)}
EXACT = {**SIX, "exact": True}
NAN = nn.Conv2d(1, 1, 3)
nn.init.constant_(NAN.weight, float("nan"))


def entry(array, place, value):
    """The array with another number at one place."""
    changed = array.copy()
    changed[place] = value
    return changed


def off(positions, number, place=0):
    """A layer one of whose positions is this number."""
    layer = MultiHeadSelfAttention(1, 1, positions)
    next(layer.encoding.parameters()).data.view(-1)[place] = number
    return layer


QUADRATIC = Encoding.of("quadratic", torch.zeros(2, 2), 3.0)
ENUMERATED = Encoding.of("enumerated", [[0, 1], [1, 0]], 0.01)
LEARNED = Encoding.of("learned", 2, (5, 6), 4)
HARD = Encoding.of("quadratic", torch.zeros(2, 2), 128.0)
CHECKED = [
    *[(off(deepcopy(each), np.nan), ON, "its scores on 5x6 keys are not") for each in (QUADRATIC, ENUMERATED, LEARNED)],
    *[(off(deepcopy(LEARNED), number, -1), ON, "its scores on 5x6 keys are not") for number in (np.nan, np.inf)],
    *[(off(deepcopy(HARD), number), ON, "C2A408 attention: its scores") for number in (np.nan, -np.inf, 1e30)],
    (SOFT.swapaxes(1, 2), ON, "C2A502 attention: columns sum to 1.*Transpose it"),
    (entry(SOFT, (2, 3, 4), np.nan), ON, "image 0, head 2, query 3, key 4 is nan"),
    (entry(SOFT, (2, 3, 4), np.inf), ON, "image 0, head 2, query 3, key 4 is inf"),
    (entry(SOFT, (2, 3, 4), -0.1), ON, r"head 2 has -0.1 at \(3, 4\)"),
    (entry(SOFT, (2, 3, 4), 0.5), ON, "head 2, query 3 sums to 0.957148, 4.3e-02 from 1"),
    (SOFT * (1 + 1e-10), ON, "sums to 1, 1.0e-10 from 1"),
    (np.log(SOFT), ON, "has -"),
    (SOFT, {"grid": (6, 6)}, "C2A503 attention: a grid 6x6 has 36 pixels, not 30 tokens"),
    (SOFT, {}, "C2A503 attention: 30 tokens do not form a square"),
    (SOFT, {"kernel_size": (3, 3, 3)}, "30 tokens do not form a cube"),
    (SOFT[0, 0], ON, r"its shape is \(30,\)"),
    (SOFT[:0], ON, "it is empty"),
    (SOFT.astype(complex), ON, "its dtype is complex128"),
    (SOFT, {**ON, "offsets": [(0,)]}, "C2A504 .*offsets has 1 axes; grid has 2 axes"),
    (SOFT, {**ON, "offsets": [(0, 0), (0, 0)]}, "are not distinct"),
    (SOFT, {**ON, "kernel_size": 0}, "C2A504"),
    (SOFT, {"offsets": [(0,) * 4]}, "C2A504 a grid of 4 axes is not a line, plane or space"),
    (SOFT, {**ON, "example_input": SOFT}, "C2A004 an object of class ndarray takes no inputs"),
    (SOFT * (np.arange(30) != 4)[:, None], ON, "head 0, query 4 attends to nothing"),
    (SOFT, {**ON, "condition": "kernel"}, "C2A002 condition 'kernel'"),
    (SOFT, {**ON, "max_phi": 0}, "max_phi=0 is not"),
    (SOFT, {**ON, "eps": float("nan")}, "eps=nan"),
    (SOFT, {**ON, "extra_tokens": 30}, "30 extra tokens of 30"),
    (SOFT, {**ON, "eps": 1.0}, "C2A001 eps=1 is not below 1, the residual of a layer without heads"),
    (SOFT, {**ON, "eps": 2.0}, "C2A001 eps=2 is not below 1, the residual of a layer without heads"),
    (LAYER, {}, "C2A503"),
    (LAYER, {**ON, "exact": True}, "computed in floats"),
    (depending_on_the_image(), ON, "depends on its inputs"),
    (EYE.tolist(), {}, "C2A502 layer 0 is of class list, neither a layer, array nor tensor"),
    (None, {}, "C2A502 attention is of class NoneType"),
    (
        nn.Linear(9, 9).state_dict(),
        {},
        r"C2A006 weight and others are not attention \(heads, queries, keys\)",
    ),
    (nn.Sequential(nn.ReLU()), {}, "C2A501 Sequential has no layer known to attend"),
    (torch.eye(9, device="meta")[None], {}, "C2A502 attention is on the meta device"),
    (EYE, {"kernel_size": 1.0}, "C2A006 1.0 is neither an integer nor a sequence of integers"),
    (EYE, {"kernel_size": "3x3"}, "C2A006 '3x3' is neither"),
    (EYE, {"grid": (3.0, 3.0)}, r"C2A006 \(3.0, 3.0\) is neither"),
    (EYE, {"offsets": [(0.5, 0)]}, r"C2A006 \(0.5, 0\) is neither"),
    (EYE, {"offsets": 1}, "C2A006 1 is not a sequence of offsets"),
    (EYE, {"offsets": [(10**30, 0)]}, "C2A504 an offset of 1000000000000000000000000000000 pixels is farther"),
    (EYE, {"offsets": [(-(2**31), 0)]}, "C2A504 an offset of 2147483648 pixels is farther"),
    (EYE, {"dilation": 2**31}, "C2A504 an offset of 4294967296 pixels is farther"),
    (EYE, {"kernel_size": 65}, "C2A504 4225 offsets are more than 4096"),
    (EYE, {"kernel_size": 10**20}, "C2A504 1000.* offsets are more"),
    (np.array([[[0, 0], [1, 1]]]), {"grid": (2,), "exact": True}, "a query attends to nothing. "),
    (EYE, {"max_phi": 1e101}, r"C2A001 max_phi=1e\+101 is not from 1e-100 to 1e\+100"),
    (EYE, {"max_phi": 5e-324}, "C2A001 max_phi=4.94066e-324 is not from 1e-100"),
    (EYE, {"convolution": NAN}, "C2A408"),
    (THIRDS.astype(float), EXACT, "sum of 1 by -?[0-9.]+e-17.*fractions or whole weights"),
    (BOXES, SIX, "sums to 3"),
    (entry(THIRDS, (1, 2, 3), Fraction(1, 3)), SIX, "query 2 misses a sum of 1 by -1.7e-01"),
    (entry(THIRDS, (1, 2, 3), "1/2"), SIX, "not Fraction or int"),
    (entry(THIRDS, (1, 2, 3), 0.5), SIX, "not Fraction or int"),
    (-BOXES, EXACT, "negative"),
    (0 * BOXES, EXACT, "attends to nothing"),
    (np.full((1, 6, 6), np.nan), EXACT, "not finite"),
    (BOXES, {**EXACT, "extra_tokens": 6}, "6 extra tokens of 6"),
    (BOXES.astype(complex), EXACT, "complex"),
    (soft((6,), 1.0, LINE), EXACT, "exactly"),
]


def grouped(call, rows):
    """By words, the calls with the argument and options of each row."""
    calls: dict = {}
    for argument, options, words in rows:
        calls.setdefault(words, []).append(lambda argument=argument, options=options: call(argument, **options))
    return calls


REFUSALS = {UsageError: grouped(check_span, CHECKED)}
