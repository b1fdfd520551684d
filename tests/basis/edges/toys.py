"""A member added to an open set is found by everything that reads the set."""

import numpy as np
import pytest
import torch
from hypothesis import find
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.basis import MODES, Padding
from conv2attn.basis.padding import Mode
from conv2attn.errors import GeometryError
from conv2attn.testing.operators import paddings
from conv2attn.verdicts import Verdict


def backwards(place, side):
    return torch.where(place < 0, -1 - place, place).minimum(2 * side - 1 - place)


@pytest.fixture
def mirror(monkeypatch):
    """A padding mode that torch has not: the pixels of an axis once more, backwards, its last one twice."""
    monkeypatch.setitem(MODES, "mirror", Mode(backwards, 0))


def test_a_padding_mode_is_one_line_of_its_table(mirror):
    image = torch.arange(12.0).reshape(1, 1, 3, 4)
    padded = torch.from_numpy(np.pad(image.numpy(), ((0, 0), (0, 0), (1, 3), (2, 4)), "symmetric"))
    assert torch.equal(Padding((1, 2), (3, 4), "mirror").pad(image), padded)
    with pytest.raises(GeometryError, match=r"C2A121 mirror padding by \(1, 4\) needs a longer axis"):
        Padding((1, 2), (4, 4), "mirror").pad(image)
    assert find(paddings((3, 4)), lambda padding: padding.mode == "mirror")


def test_a_convolution_of_a_new_padding_mode_converts_and_is_compared(mirror):
    convolution = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect").double()
    convolution.padding_mode = "mirror"
    layer, image = conv2attn.convert(convolution), torch.randn(2, 2, 5, 6).double()
    padded = torch.from_numpy(np.pad(image.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), "symmetric"))
    plain = F.conv2d(padded, convolution.weight, convolution.bias)
    for engine in ("auto", "separable", "dense"):
        layer.engine = engine
        torch.testing.assert_close(layer(image), plain, rtol=1e-12, atol=1e-12)
    reflected = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect").double())
    reflected.load_state_dict(layer.state_dict())
    assert conv2attn.certify(layer, reflected, input_size=(2, 5, 6)).verdict is Verdict.REFUTED
    assert conv2attn.certify(layer, conv2attn.convert(convolution), input_size=(2, 5, 6)).verdict is Verdict.HOLDS
