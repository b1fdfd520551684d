"""Theorem 1's construction refuses options that do not fit, each with the user's numbers."""

import pytest
import torch
from torch import nn

from conv2attn.errors import HeadSizeError, UnsupportedError, UsageError
from conv2attn.layers.theorem import attention_for, read_convolution


def spoiled(change):
    conv = nn.Conv2d(2, 2, 3)
    change(conv)
    return conv


class Own(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2


REFUSED = {
    "complex": (lambda: nn.Conv2d(2, 2, 3, dtype=torch.complex64), "C2A102 Conv2d has weights of torch.complex64"),
    "lazy": (lambda: nn.LazyConv2d(2, 3), "C2A103 LazyConv2d has not seen an input yet"),
    "no weight": (lambda: spoiled(lambda c: delattr(c, "weight")), "C2A103 Conv2d has no weight"),
    "its weight None": (lambda: spoiled(lambda c: setattr(c, "weight", None)), "C2A103 Conv2d has no weight"),
    "own forward": (lambda: Own(2, 2, 3), "C2A106 Own has a forward of its own"),
    "patched": (
        lambda: spoiled(lambda c: setattr(c, "forward", lambda x: x)),
        "C2A106 Conv2d has a forward of its own",
    ),
    "a linear layer": (lambda: nn.Linear(2, 2), "C2A101 torch.nn.modules.linear.Linear is not a convolution layer"),
    "integers": (
        lambda: spoiled(lambda c: setattr(c, "weight", nn.Parameter(c.weight.to(torch.int8), requires_grad=False))),
        "C2A102 Conv2d has weights of torch.int8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_convolution_with_a_softmax_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(UnsupportedError, match=message):
        read_convolution(make())


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_are_refused():
    with pytest.raises(UnsupportedError, match=r"C2A102 torch.ao.nn.quantized.* has quantised weights"):
        read_convolution(torch.ao.nn.quantized.Conv2d(2, 2, 3))


def test_unknown_padding_modes_are_refused():
    with pytest.raises(
        UsageError, match="C2A104 padding_mode='mirror' is not one of zeros, reflect, replicate, circular"
    ):
        read_convolution(spoiled(lambda conv: setattr(conv, "padding_mode", "mirror")))
    strided = nn.Conv2d(2, 2, 3, padding="same")
    strided.stride = (2, 2)
    with pytest.raises(UsageError, match=r"C2A004 padding='same' has no meaning at stride \(2, 2\)"):
        read_convolution(strided)


def test_heads_that_are_too_narrow_are_refused_with_what_they_could_express():
    conv, grouped = nn.Conv2d(8, 6, 3), nn.Conv2d(8, 12, 3, groups=4)
    message = r"C2A105 d_head=4 is less than min\(d_in, d_out\)=6: it could express any 4 of the 6 output channels"
    with pytest.raises(HeadSizeError, match=message):
        attention_for(read_convolution(conv), d_head=4)
    message = r"C2A105 d_head=4 is less than .*=8: .* any 1 of the 3 output channels of each of the 4 groups"
    with pytest.raises(HeadSizeError, match=message):
        attention_for(read_convolution(grouped), d_head=4)
    for width in (0, -4, 6):
        with pytest.raises(HeadSizeError, match=f"C2A105 d_head={width} is not a positive multiple of groups=4"):
            attention_for(read_convolution(grouped), d_head=width)
