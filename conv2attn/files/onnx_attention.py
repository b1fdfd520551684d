"""Attention layers as ONNX nodes: one operator for torch.export, translated to ONNX nodes.

Torch traces a layer through some hundred operations and compares symbolic sizes in each: minutes for a network. As one
operator, a layer is traced in milliseconds, and its number of nodes does not depend on its number of heads.
"""

from collections.abc import Sequence
from copy import deepcopy
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.extras import optional
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.networks import attention_layers
from conv2attn.theory.basis import Basis, Sites, isotropic
from conv2attn.theory.basis.operators import cut_depth

OPERATOR_NAME = "conv2attn::quadratic_attention"
torch.library.define(
    OPERATOR_NAME,
    "(Tensor keys, Tensor center, Tensor alpha, Tensor matrix, Tensor bias, int groups, int[] stride, int[] before,"
    " int[] after, int[] distinct, int[] shared) -> Tensor",
)
ATTENTION_OPERATOR = torch.ops.conv2attn.quadratic_attention.default


@torch.library.register_fake(OPERATOR_NAME)  # type: ignore[untyped-decorator]
def _(keys: Tensor, center: Tensor, alpha: Tensor, matrix: Tensor, bias: Tensor, groups: int, *geometry: Any) -> Tensor:
    stride, before, after, *_ = geometry
    sides = Sites(tuple(stride), tuple(before), tuple(after)).count(tuple(keys.shape[2:]))
    return keys.new_empty((keys.shape[0], len(matrix), *sides))


def with_whole_layers(network: nn.Module) -> nn.Module:
    """A copy of `network` whose layers of quadratic heads call the operator, which only an ONNX runtime can compute."""
    network = deepcopy(network)
    for layer in attention_layers(network).values():
        if isotropic(layer.operators()) is not None:
            vars(layer)["evaluate"] = MethodType(call_operator, layer)
    return network


def call_operator(layer: MultiHeadSelfAttention, basis: Basis, image: Tensor) -> Tensor:
    """The layer as one node of the graph, instead of `MultiHeadSelfAttention.evaluate`."""
    operators, weights, sites = basis.operators, basis.weights, basis.sites
    center, alpha = (value.to(score_dtype(image.dtype)) for value in operators.values)
    matrix = weights.taps().permute(1, 2, 0).flatten(1)
    bias = matrix.new_zeros(len(matrix)) if weights.bias is None else weights.bias
    numbers = layer.facts(image).numbers
    rows = [(alpha, center[0]) for alpha, center in zip(numbers.alphas, numbers.centers, strict=True)]
    distinct = list(dict.fromkeys(map(rows.index, rows)))
    shared = [distinct.index(rows.index(row)) for row in rows]
    geometry = (weights.groups, sites.stride, sites.before, sites.after, distinct, shared)
    return ATTENTION_OPERATOR(basis.padding.pad(image), center, alpha, matrix, bias, *geometry)


def attention_nodes(
    keys: Any,
    center: Any,
    alpha: Any,
    matrix: Any,
    bias: Any,
    groups: int,
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    distinct: Sequence[int],
    shared: Sequence[int],
) -> Any:
    """The operator in ONNX: a softmax and a matrix product for each axis of the grid, and one product of channels.

    The first axis is mixed only for heads `distinct[shared[h]]`, whose softmax along it is shared by head h.
    """
    op: Any = optional("onnxscript").opset18

    def ints(*values: int) -> Any:
        return op.Constant(value_ints=list(values))

    axes, mixed, (zero, one) = (
        len(stride),
        op.Unsqueeze(keys, ints(1)),
        (op.Constant(value_int=each) for each in (0, 1)),
    )
    for axis in range(axes):
        heads = ints(*(range(len(shared)) if axis else distinct))
        side = op.Shape(keys, start=2 + axis, end=3 + axis)
        first, step = op.Constant(value_int=before[axis]), op.Constant(value_int=stride[axis])
        sites = op.Range(first, op.Squeeze(op.Sub(side, ints(after[axis])), ints(0)), step)
        displacement = op.Sub(op.Range(zero, op.Squeeze(side, ints(0)), one), op.Unsqueeze(sites, ints(1)))
        target = op.Gather(op.Gather(center, op.Constant(value_int=axis), axis=1), heads)
        distance = op.Sub(op.CastLike(displacement, center), op.Unsqueeze(target, ints(1, 2)))
        sharpness = op.Unsqueeze(op.Gather(alpha, heads), ints(1, 2))
        scores = op.Neg(op.Mul(sharpness, op.Mul(distance, distance)))
        depth = op.Constant(value_float=cut_depth(torch.float64 if alpha.dtype.name == "DOUBLE" else torch.float32))
        floor = op.Sub(op.ReduceMax(scores, ints(2), keepdims=1), op.CastLike(depth, scores))
        minus_infinity = op.CastLike(op.Constant(value_float=float("-inf")), scores)
        weights = op.Softmax(op.Where(op.Less(scores, floor), minus_infinity, scores), axis=2)
        weights = op.Transpose(op.CastLike(weights, keys), perm=[0, 2, 1])
        moved_axis = op.Transpose(mixed, perm=[0, 1, 2, *range(4, axes + 3), 3])
        mixed = op.MatMul(moved_axis, op.Unsqueeze(weights, ints(*range(1, axes))) if axes > 1 else weights)
        mixed = mixed if axis else op.Gather(mixed, ints(*shared), axis=1)
    queries = op.Shape(mixed, start=3)
    columns = op.Transpose(mixed, perm=[0, 2, 1, *range(3, axes + 3)])
    columns = op.Reshape(columns, ints(0, groups, int(matrix.shape[1]), -1))
    product = op.MatMul(op.Reshape(matrix, ints(groups, -1, int(matrix.shape[1]))), columns)
    result = op.Reshape(product, op.Concat(ints(0, int(matrix.shape[0])), queries, axis=0))
    return op.Add(result, op.Unsqueeze(bias, ints(*range(1, axes + 1))))
