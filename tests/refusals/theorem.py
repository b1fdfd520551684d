"""Layers that are no convolution with a softmax, and sizes of heads that do not fit."""

import warnings

import torch
from torch import nn

from conv2attn.errors import HeadSizeError, UnsupportedError, UsageError
from conv2attn.layers.theorem import attention_for, deformable_as_attention, read_convolution


def spoiled(**attributes):
    """A convolution with other attributes."""
    conv = nn.Conv2d(2, 2, 3)
    for name, value in attributes.items():
        setattr(conv, name, value)
    return conv


def without_weight():
    conv = nn.Conv2d(2, 2, 3)
    del conv.weight
    return conv


class Own(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2


def quantised():
    with warnings.catch_warnings(action="ignore"):
        read_convolution(torch.ao.nn.quantized.Conv2d(2, 2, 3))


PADDED, GROUPED = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(8, 12, 3, groups=4)
WHOLE = nn.Parameter(torch.ones(2, 2, 3, 3, dtype=torch.int8), requires_grad=False)


def moved(*pairs):
    """Layers that move the taps of others."""
    return [lambda pair=pair: deformable_as_attention(*pair) for pair in pairs]


REFUSALS = {
    UnsupportedError: {
        "C2A102 Conv2d has weights of torch.complex64": lambda: read_convolution(
            nn.Conv2d(2, 2, 3, dtype=torch.complex64)
        ),
        "C2A102 Conv2d has weights of torch.int8": lambda: read_convolution(spoiled(weight=WHOLE)),
        "C2A102 torch.ao.nn.quantized.* has quantised weights": quantised,
        "C2A103 LazyConv2d has not seen an input yet": lambda: read_convolution(nn.LazyConv2d(2, 3)),
        "C2A103 Conv2d has no weight": [
            lambda: read_convolution(without_weight()),
            lambda: read_convolution(spoiled(weight=None)),
        ],
        "C2A106 Own has a forward of its own": lambda: read_convolution(Own(2, 2, 3)),
        "C2A106 Conv2d has a forward of its own": lambda: read_convolution(spoiled(forward=lambda x: x)),
        "C2A101 torch.nn.modules.linear.Linear is not a convolution layer": lambda: read_convolution(nn.Linear(2, 2)),
        "C2A101 offsets by a kernel": moved(
            (nn.Conv2d(2, 18, 3), PADDED), (nn.Conv2d(2, 18, 3, 2, 1), nn.Conv2d(2, 3, 3, 2, 1))
        ),
        r"C2A101 padding \(0, 0\) \(zeros\) is not": moved((nn.Conv2d(2, 18, 1), nn.Conv2d(2, 3, 3))),
        "reflect": moved((nn.Conv2d(2, 18, 1), nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"))),
    },
    UsageError: {
        "C2A104 padding_mode='mirror' is not one of zeros, reflect, replicate, circular": lambda: read_convolution(
            spoiled(padding_mode="mirror")
        ),
        r"C2A004 padding='same' has no meaning at stride \(2, 2\)": lambda: read_convolution(
            spoiled(padding="same", stride=(2, 2))
        ),
        "C2A007 offsets 2->9": moved((nn.Conv2d(2, 9, 1), PADDED)),
        "C2A007 offsets 2->18": moved((nn.Conv2d(2, 18, 1, stride=2), PADDED)),
    },
    HeadSizeError: {
        r"C2A105 d_head=4 is less than min\(d_in, d_out\)=6: it could express any 4 of the 6 output channels": lambda: (
            attention_for(read_convolution(nn.Conv2d(8, 6, 3)), d_head=4)
        ),
        r"C2A105 d_head=4 is less than .*=8: .* any 1 of the 3 output channels of each of the 4 groups": lambda: (
            attention_for(read_convolution(GROUPED), d_head=4)
        ),
        **{
            f"C2A105 d_head={width} is not a positive multiple of groups=4": lambda width=width: attention_for(
                read_convolution(GROUPED), d_head=width
            )
            for width in (0, -4, 6)
        },
    },
}
