"""Laws that every attention layer obeys by every engine: plain functions in a list, for `parametrize`."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.testing.equivalence import assert_same_output, require
from conv2attn.theory.basis import as_basis, evaluate

LayerLaw = Callable[[MultiHeadSelfAttention, Tensor], None]


def layer_is_its_basis(layer: MultiHeadSelfAttention, image: Tensor) -> None:
    """A hard quadratic layer equals `sum_k P_k x M_k^T + b` of the basis that it is read into, in float64."""
    exact = evaluate(as_basis(copy.deepcopy(layer).double()), image.double())
    assert_same_output(layer(image), exact.to(image.dtype))


def images_do_not_meet(layer: MultiHeadSelfAttention, image: Tensor) -> None:
    """The output for an image depends neither on the other images of its batch nor on the presence of a batch."""
    batch_output = layer(image)
    for single, result in zip(image, batch_output, strict=True):
        assert_same_output(layer(single), result)


def heads_have_no_order(layer: MultiHeadSelfAttention, image: Tensor) -> None:
    """Permuting whole heads does not change the layer."""
    before = layer(image)
    order = torch.arange(layer.heads - 1, -1, -1)
    with torch.no_grad():
        for name, tensor in layer.named_parameters():
            if name == "weight":
                tensor.copy_(tensor.flatten(2)[..., order].reshape(tensor.shape))
            elif name in ("value", "output"):
                tensor.copy_(tensor[..., order].clone())
            elif name != "bias":
                tensor.copy_(tensor[order].clone())
        for name, numbers in layer.encoding.frozen.items():
            layer.encoding.assign(**{name: numbers[order.numpy()]})
    assert_same_output(layer(image), before)


def attention_is_one_hot(layer: MultiHeadSelfAttention, image: Tensor) -> None:
    """Each attention row of a hard layer has one 1 and 0 elsewhere, bit for bit."""
    attention = layer.attention(sides=tuple(image.shape[2:]))
    require(bool(((attention == 0) | (attention == 1)).all()), "an attention probability is neither 0 nor 1")
    require(bool((attention.sum(-1) == 1).all()), "the attention of a query does not sum to 1")


def zero_gives_the_bias(layer: MultiHeadSelfAttention, image: Tensor) -> None:
    """The image 0 gives the bias everywhere."""
    result = layer(torch.zeros_like(image))
    bias = torch.zeros(layer.d_out, dtype=image.dtype) if layer.bias is None else layer.bias.detach()
    assert_same_output(result, bias.to(result).reshape(-1, *[1] * layer.dimensions).expand_as(result))


LAYER_LAWS: list[LayerLaw] = [
    layer_is_its_basis,
    images_do_not_meet,
    attention_is_one_hot,
    zero_gives_the_bias,
    heads_have_no_order,
]
