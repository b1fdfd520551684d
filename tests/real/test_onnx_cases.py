"""The reference convolutions of ONNX: an oracle that nobody here wrote."""

import pytest
import torch
from onnx_cases import NAMES, load_case
from rounding import within

import conv2attn


def test_the_cases_are_those_expected():
    layers = [type(load_case(name).layer).__name__ for name in NAMES]
    counts = {layer: layers.count(layer) for layer in layers}
    assert counts == {"Conv1d": 8, "Conv2d": 11, "Conv3d": 7, "ConvTranspose2d": 2}


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_output_is_the_convolution(name):
    case = load_case(name)
    assert within(case.layer, case.image, case.expected)


@pytest.mark.parametrize("engine", ["auto", "conv", "dense", "gather", "separable"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_attention_computes_the_stored_output(name, engine, device):
    case = load_case(name)
    attention = conv2attn.convert(case.layer).to(device)
    conv2attn.set_engine(attention, engine)
    answer = attention(case.image.to(device)).cpu()
    assert answer.shape == case.expected.shape
    assert within(case.layer, case.image, answer)
