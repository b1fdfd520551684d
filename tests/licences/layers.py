"""Licences of the construction: the layer of Theorem 1, the width of its heads, and composition."""

import numpy as np
import torch
from licences.cases import Licence
from licences.geometry import MODES

from conv2attn.errors import HeadSizeError
from conv2attn.layers.theorem import Convolution
from conv2attn.theory.basis import Dense, Padding, Weights, as_matrix, basis_of


def convolution(
    kernel, stride, dilation, before, after, mode, groups, inner, outer, weights, has_bias, encoding, stride_by,
    trainable, width, spare, images, pixels,
):  # fmt: skip
    """A convolution with whole numbers as weights, options of its conversion, and images of whole numbers."""
    sides = tuple(
        max(d * (k - 1) + 1 - b - a, b + 1, a + 1) + s
        for k, d, b, a, s in zip(kernel, dilation, before, after, spare, strict=True)
    )
    weight = weights.fill(groups * outer, inner, *kernel)
    bias = weights.fill(groups * outer, which=1) if has_bias else None
    widths = {"as needed": None, "the least": groups * min(inner, outer), "more": groups * (max(inner, outer) + 1)}
    options = {"encoding": encoding, "stride_by": stride_by, "trainable": trainable, "d_head": widths[width]}
    given = Convolution(weight, bias, stride, dilation, Padding(before, after, mode), groups)
    return given, options, pixels.fill(images, groups * inner, *sides)


def is_the_convolution(attention_for, case):
    """The layer is PyTorch's convolution of the image as NumPy pads it: all numbers are exact integers."""
    given, options, image = case
    before, after = given.padding.before, given.padding.after
    padded = np.pad(image.numpy(), [(0, 0), (0, 0), *zip(before, after, strict=True)], MODES[given.padding.mode])
    convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[len(before) - 1]
    wanted = convolve(torch.tensor(padded), given.weight, given.bias, given.stride, 0, given.dilation, given.groups)
    with torch.no_grad():
        return torch.equal(attention_for(given, **options)(image), wanted)


def asked(d_in, d_out, groups, width, wish):
    """Channels of a convolution in groups, and a width asked for, or none."""
    weight = torch.zeros(groups * d_out, d_in, 1)
    return Convolution(weight, None, (1,), (1,), Padding.none(1), groups), width if wish else None


def is_wide_enough(head_width, case):
    """min(d_in, d_out) of a group without a wish, the wish's share of a group if it is enough, else an error."""
    given, wish = case
    needed = min(given.d_in, given.d_out) // given.groups
    try:
        width = head_width(given, wish)
    except HeadSizeError:
        return wish is not None and (wish % given.groups != 0 or wish // given.groups < needed)
    return width == (needed if wish is None else wish // given.groups) and (
        wish is None or wish >= needed * given.groups
    )


def are_factors(factors, case):
    """The product of the factors is the tap in each head and group; an absent factor is an identity."""
    given, groups, width = case
    value, output = factors(given, groups, width)
    heads, d_out, d_in = len(given), given.shape[1] // groups, given.shape[2]
    for h in range(heads):
        for g in range(groups):
            left = torch.eye(width).double() if output is None else output[h, g * d_out : (g + 1) * d_out]
            right = torch.eye(width).double() if value is None else value[h, g * width : (g + 1) * width]
            if left.shape != (d_out, width) or right.shape != (width, d_in):
                return False
            if not torch.equal(left @ right, given[h, g * d_out : (g + 1) * d_out]):
                return False
    return True


def layers(tokens, channels, terms, biases, weights, pixels):
    """Two layers of dense operators that fit, and an image."""

    def layer(n):
        mixes = weights.fill(terms[n], tokens[n + 1], tokens[n], which=3 * n)
        parameters = weights.fill(terms[n], channels[n + 1], channels[n], which=3 * n + 1)
        bias = weights.fill(channels[n + 1], which=3 * n + 2) if biases[n] else None
        return basis_of(Dense(mixes, (tokens[n + 1],)), Weights(None, parameters, bias), 1)

    return layer(1), layer(0), (tokens[0],), pixels.fill(channels[0], tokens[0])


def evaluated(matrices, weights, image):
    """sum_k P_k x M_k^T + b, added up here."""
    total = sum(m @ image @ p.T for p, m in zip(matrices, weights.output, strict=True))
    return total if weights.bias is None else total + (weights.bias if weights.bias.ndim > 1 else weights.bias[:, None])


def is_the_composition(composed, case):
    second, first, sides, image = case
    whole = composed(second, first, sides)
    inner = evaluated(first.operators.matrix, first.weights, image)
    return torch.equal(
        evaluated(as_matrix(whole.mixing, sides), whole.weights, image),
        evaluated(second.operators.matrix, second.weights, inner),
    )


LICENCES = {
    ("T1", "layers.theorem.construction.attention_for"): Licence(
        is_the_convolution,
        shape=convolution,
    ),
    ("T1p", "layers.theorem.construction.head_width"): Licence(
        is_wide_enough,
        examples=150,
        shape=asked,
    ),
    ("T1p", "layers.theorem.construction.factors"): Licence(
        are_factors,
        examples=100,
        shape=lambda taps, heads, groups, d_out, d_in, spare: (
            *(taps.fill(heads, groups * d_out, d_in), groups, min(d_out, d_in) + spare),
        ),
    ),
    ("AND", "theory.basis.compose"): Licence(
        is_the_composition,
        examples=80,
        shape=layers,
    ),
}
