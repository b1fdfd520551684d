"""Rules of products of matrices and of convolutions: exact sums of products."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.formulas import add, matmul, mul, product_facts
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, Residues
from conv2attn.equality.fingerprint.ring import pieces
from conv2attn.equality.fingerprint.rules.call import Call, rule
from conv2attn.equality.fingerprint.rules.pointwise import scaled


@rule("mm", "bmm")
def product(c: Call, self: Any, mat2: Any) -> Residues:
    """The product of matrices; columns of a product by a constant are cached."""
    ours, theirs, run = c.factor(self), c.factor(mat2), c.numbers.run
    if len(mat2.shape) == 2 and c.numbers.depends(self) and not c.numbers.depends(mat2):
        return matmul(c.field, ours, theirs, partial(c.field.answers.product, run, self, c.constant(mat2)))
    return matmul(c.field, ours, theirs)


@rule("addmm")
def _(c: Call, self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Residues:
    """`beta self + alpha mat1 mat2`; `self` is not read if beta is 0."""
    matrix = product(c, mat1, mat2)
    matrix = matrix if alpha == 1 else mul(c.field, matrix, c.operand(alpha))
    return matrix if beta == 0 else add(c.field, matrix, scaled(c, self, beta))


@rule("convolution")
def _(
    c: Call,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Residues:
    image, kernel = c.factor(input), c.factor(weight)
    c.field.usable(image.known, "a convolution")
    c.field.usable(kernel.known, "a convolution")
    inner, taps = kernel.shape[0] // groups if transposed else kernel.shape[1], math.prod(kernel.shape[2:])
    terms, axis = inner * taps, int(transposed)
    channels = pieces(inner, taps, c.field.bits)
    at_once = terms if groups > 1 else channels[0].stop * taps

    def op(parts: Tensor, other: Tensor) -> Iterable[Sequence[Tensor]]:
        def one(image: Tensor, part: Tensor) -> Tensor:
            settings = stride, padding, dilation, transposed, output_padding, groups
            return torch.ops.aten.convolution(image, part, None, *settings)

        # Limbs are concatenated as further output channels. With groups these would belong to other input channels.
        if groups > 1:
            yield [one(other, part) for part in parts]
            return
        stacked, limbs = parts.flatten(axis, axis + 1), parts.shape[axis]
        for at in channels:
            kernels = stacked[at] if transposed else stacked[:, at]
            yield one(other[:, at], kernels).chunk(limbs, 1)

    values = c.field.bilinear(kernel, image, at_once, op, axis if groups == 1 else 0)
    sign = min(NOT_NEGATIVE, image.known.sign, kernel.known.sign)
    result = Residues(values, None, True, sign, **product_facts(image.known, kernel.known, terms))
    if bias is None:
        return result
    return add(c.field, result, c.operand(bias).laid((*bias.shape, *[1] * (len(kernel.shape) - 2))))
