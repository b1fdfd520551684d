"""Layers of the framework, and the way back to torch."""

import torch
from layers.framework.edges.layers import EDGES, GRID
from torch import nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.framework import (
    AttentionConvolution,
    BasisConvolution,
    BiAffine,
    Quadratic,
    from_torch,
    to_torch,
)
from conv2attn.theory.basis import (
    Basis,
    Chebyshev,
    Graph,
    Padding,
    Shift,
    Sites,
    Weights,
    adjacency,
    as_basis,
    basis_of,
    pattern_of,
)

TAPS, AROUND = Weights(None, torch.ones(3, 1, 1)), Shift(GRID.offsets)
CHEBYSHEV = basis_of(Chebyshev(adjacency(Graph(torch.tensor([[0], [1]]), 2)), 2), TAPS, 1)
BEYOND = Basis(Shift(((2,), (0,), (1,))), TAPS, Padding((1,), (1,), "reflect"), Sites.everywhere(1))
WIDE, THIN = (basis_of(Shift(((0,),)), Weights(None, torch.ones(1, inputs, 2).double().mT), 1) for inputs in (2, 1))
HEADS, IMAGE, PATTERN = from_torch(nn.MultiheadAttention(8, 2)), torch.ones(3, 8, 6), pattern_of(Graph(EDGES, 6))
INFINITE, HOOKED = nn.Conv2d(1, 1, 3, padding=1), nn.MultiheadAttention(8, 2)
nn.init.constant_(INFINITE.weight, torch.inf)
HOOKED.register_forward_hook(lambda *call: None)
SCALED = type("Scaled", (nn.MultiheadAttention,), {"forward": lambda self, *tokens: tokens})
MASKS = [
    *(torch.zeros(6, 5), torch.zeros(4, 2, 6, 6), torch.zeros(1, 3, 2, 6, 6)),
    # a mask of booleans would be added as zeros and ones: libraries read True as either
    *(torch.ones(6, 6).bool(), torch.ones(6, 6).int(), pattern_of(Graph(EDGES, 4))),
]


REFUSALS = {
    UsageError: {
        "C2A007 groups=2 does not divide all": lambda: BasisConvolution(3, 4, 1, groups=2),
        "C2A122 a mask": [lambda mask=mask: HEADS(IMAGE, None, mask) for mask in MASKS],
        "C2A120 an image of 7 channels for heads that read 8": [
            lambda mask=mask: HEADS(IMAGE[:, :7], None, mask) for mask in (None, PATTERN)
        ],
        "C2A002 join='product' is not sum": lambda: AttentionConvolution(HEADS.mechanism, HEADS.value, join="product"),
        "C2A002 join='mean' is not sum": lambda: AttentionConvolution(
            HEADS.mechanism, HEADS.value, HEADS.output, join="mean"
        ),
        "C2A120 the basis depends on the image, and there are 3": lambda: HEADS.basis(IMAGE),
        "C2A001 sizes 4, 4, 2, None, -1, 1 are too small": lambda: BasisConvolution(4, 4, 2, rank=-1),
    },
    UnsupportedError: {
        r"C2A110 no layer of torch\.nn has the operators of a Chebyshev": lambda: to_torch(CHEBYSHEV),
        "C2A101 shifts that reach beyond reflect padding": lambda: to_torch(BEYOND),
        "C2A110 Linear is not a layer": lambda: to_torch(nn.Linear(1, 1)),
        "C2A101 only a convolution followed by a 1x1 convolution": [
            lambda: as_basis(nn.Sequential(nn.Conv1d(1, 1, 1))),
            lambda: as_basis(nn.Sequential(nn.Conv1d(1, 1, 1), nn.Conv1d(1, 1, 3))),
        ],
        "C2A101 AvgPool2d divides by other numbers at the border": [
            lambda: as_basis(nn.AvgPool2d(2, ceil_mode=True)),
            lambda: as_basis(nn.AvgPool2d(2, padding=1, count_include_pad=False)),
        ],
        "C2A101 MultiheadAttention with extra keys": [
            lambda: from_torch(nn.MultiheadAttention(8, 2, add_zero_attn=True)),
            lambda: from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True)),
        ],
        "C2A106 Scaled has a forward of its own": lambda: from_torch(SCALED(8, 2)),
        "C2A106 MultiheadAttention has hooks": lambda: from_torch(HOOKED),
        "C2A101 Linear cannot be read as an attention convolution": lambda: from_torch(nn.Linear(1, 1)),
        "C2A110 MultiheadAttention is only a softmax of dot products": lambda: to_torch(
            AttentionConvolution(BiAffine(None, torch.ones(1, 2)), torch.ones(1, 2, 2))
        ),
        "C2A110 a MultiheadAttention has heads that tile its channels, not 2 heads of size 3 from 8": lambda: to_torch(
            AttentionConvolution(HEADS.mechanism, HEADS.value[:, :3], HEADS.output[..., :3])
        ),
        "C2A110 a bi-affine mechanism without any": lambda: AttentionConvolution(BiAffine(), torch.ones(1, 2, 2))(
            torch.ones(1, 2, 3)
        ),
        "C2A110 quadratic positions score only all pairs": lambda: AttentionConvolution(
            Quadratic(torch.zeros(1, 1), torch.ones(1)), torch.ones(1, 2, 2)
        )(torch.ones(1, 2, 5), None, pattern_of(Graph(EDGES, 5))),
    },
}
