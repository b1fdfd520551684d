"""The reference convolutions of ONNX, which the package onnx carries with inputs and outputs: an oracle of others."""

from dataclasses import dataclass

import onnx
import pytest
import torch
from onnx import numpy_helper
from packaged import packaged
from rounding import within
from torch import Tensor, nn

import conv2attn

LAYERS = {
    ("Conv", 1): nn.Conv1d,
    ("Conv", 2): nn.Conv2d,
    ("Conv", 3): nn.Conv3d,
    ("ConvTranspose", 2): nn.ConvTranspose2d,
}
FOLDER = packaged("onnx", "backend/test/data/pytorch-converted")
NAMES = sorted(path.name for path in FOLDER.glob("test_Conv*"))


@dataclass(frozen=True)
class Case:
    """A layer, an input, and the output that was stored with them."""

    layer: nn.Module
    image: Tensor
    expected: Tensor


def load_case(name: str) -> Case:
    """The case in the folder `name`; its model must be one convolution with symmetric padding and nothing else."""
    graph = onnx.load(FOLDER / name / "model.onnx").graph
    (node,) = graph.node
    known = {tensor.name: _tensor(tensor) for tensor in graph.initializer}
    weight, *bias = (known[name] for name in node.input[1:])
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    groups, axes = attributes["group"], len(attributes["kernel_shape"])
    before, after = attributes["pads"][:axes], attributes["pads"][axes:]
    if before != after:
        raise ValueError(f"{name}: padding {before} before and {after} after is not what one torch layer pads")
    transposed = node.op_type == "ConvTranspose"
    d_in, d_out = (weight.shape[0], weight.shape[1] * groups) if transposed else (weight.shape[1] * groups, len(weight))
    layer = LAYERS[node.op_type, axes](
        d_in,
        d_out,
        attributes["kernel_shape"],
        stride=attributes["strides"],
        padding=before,
        dilation=attributes["dilations"],
        groups=groups,
        bias=bool(bias),
        **({"output_padding": attributes["output_padding"]} if transposed else {}),
    )
    layer.load_state_dict(dict(zip(["weight", "bias"], [weight, *bias], strict=False)))
    data = FOLDER / name / "test_data_set_0"
    return Case(layer, _stored(data / "input_0.pb"), _stored(data / "output_0.pb"))


def _stored(path) -> Tensor:
    return _tensor(onnx.load_tensor(path))


def _tensor(proto: onnx.TensorProto) -> Tensor:
    return torch.from_numpy(numpy_helper.to_array(proto).copy())


def test_the_cases_are_those_expected():
    layers = [type(load_case(name).layer).__name__ for name in NAMES]
    counts = {layer: layers.count(layer) for layer in layers}
    assert counts == {"Conv1d": 8, "Conv2d": 11, "Conv3d": 7, "ConvTranspose2d": 2}


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_output_is_the_convolution(name):
    case = load_case(name)
    assert within(case.layer, case.image, case.expected)


@pytest.mark.rotated
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
