"""Theorem 1's construction: what it stores, for which heads and widths it serves, and what it refuses."""

import copy
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import convolve
from suite import convolutions, images_for
from torch import nn

from conv2attn.errors import GeometryError
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.bounds import one_hot_threshold

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


AUTO = {torch.float64: 1024.0, torch.float32: 128.0, torch.bfloat16: 128.0, torch.float16: 64.0}


@given(convolutions(wide=True), st.sampled_from(["quadratic", "enumerated"]))
def test_the_products_are_the_taps_and_the_centres_the_offsets(conv, encoding):
    """`W_val W_out` equals the tap bit for bit, and heads and taps are in bijection, row-major."""
    layer = attention_for(read_convolution(conv), encoding=encoding)
    weight = conv.weight
    if conv.transposed:
        parts = weight.unflatten(0, (conv.groups, -1)).transpose(1, 2).flatten(0, 1)
        weight = parts.flip(list(range(2, parts.ndim)))
    taps = list(itertools.product(*map(range, conv.kernel_size)))
    assert layer.heads == len(taps)
    for head, tap in enumerate(taps):
        assert torch.equal(layer.weights.taps()[head], weight[(..., *tap)])
        triples = zip(conv.dilation, tap, conv.kernel_size, strict=True)
        assert layer.encoding.center[head].tolist() == [d * (t - (k - 1) // 2) for d, t, k in triples]
    assert layer.bias is conv.bias is None or torch.equal(layer.bias, conv.bias)


@given(convolutions(), st.booleans())
def test_a_layer_holds_a_weight_and_positions_are_parameters_where_they_train(conv, trainable):
    convolution = read_convolution(conv)
    layer = attention_for(convolution, trainable=trainable)
    assert layer.d_head == min(conv.in_channels, conv.out_channels)
    assert torch.equal(layer.weight, convolution.weight)
    assert layer.weight.data_ptr() != convolution.weight.data_ptr()
    assert layer.value is layer.output is None
    names = ["weight"] + ["bias"] * (conv.bias is not None)
    assert list(layer.state_dict()) == names + ["encoding.center", "encoding.alpha"] * trainable
    assert layer.encoding.alpha.tolist() == [AUTO[conv.weight.dtype]] * layer.heads
    assert all(parameter.requires_grad for parameter in layer.parameters())
    assert layer.encoding.is_frozen is not trainable


@given(st.floats(1.0, 200.0) | st.integers(1, 200))
def test_a_given_alpha_is_taken_as_it_is(alpha):
    """And heads are hard from the smallest one on of which a neighbour's weight is 0."""
    layer = attention_for(read_convolution(nn.Conv1d(1, 1, 3)), alpha=alpha)
    assert layer.encoding.alpha.tolist() == [torch.tensor(float(alpha)).item()] * 3
    hard = layer.encoding.alpha[0].item() >= one_hot_threshold("float32")
    assert (layer.which_engine(torch.ones(1, 1, 4)) == "conv") is hard


@given(data=st.data(), conv=convolutions(dtypes=[torch.float32]))
def test_a_layer_is_built_and_computes_where_the_convolution_is(device, data, conv):
    image = data.draw(images_for(conv))
    expected = convolve(conv, image, image.dtype)
    layer = attention_for(read_convolution(copy.deepcopy(conv).to(device)))
    output = layer(image.to(device)).detach()
    assert {output.device, *(each.device for each in layer.parameters())} == {image.to(device).device}
    assert_same_output(output.cpu(), expected)


@given(st.data(), convolutions(transposed=[True], dtypes=[torch.float64]))
def test_output_size_of_a_transposed_convolution_is_honoured(data, conv):
    """Every size that torch accepts gives torch's output, whatever the output padding is; other sizes are refused."""
    added, conv.output_padding = conv.output_padding, (0,) * len(conv.kernel_size)
    image = data.draw(images_for(conv, batches=[1]))
    conv.output_padding = added
    smallest = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(
            image.shape[2:], conv.stride, conv.padding, conv.dilation, conv.kernel_size, strict=True
        )
    ]
    extra = [data.draw(st.integers(0, s - 1)) for s in conv.stride]
    size = [n + e for n, e in zip(smallest, extra, strict=True)]
    layer = attention_for(read_convolution(conv))
    assert_same_output(layer(image, output_size=size).detach(), conv(image, output_size=size))
    assert layer(image, output_size=[1, conv.out_channels, *size]).shape[2:] == torch.Size(size)
    for wrong in ([n - 1 for n in smallest], [n + s for n, s in zip(smallest, conv.stride, strict=True)]):
        with pytest.raises(GeometryError, match=r"C2A121 attention: output_size .* is not between"):
            layer(image, output_size=wrong)
