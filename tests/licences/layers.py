"""Licences of the construction: the layer of Theorem 1, the width of its heads, and composition."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import strategies as st
from licences.cases import Licence
from licences.geometry import MODES

from conv2attn.basis import Dense, Padding, Weights, as_matrix, basis_of, compose
from conv2attn.errors import HeadSizeError
from conv2attn.theorem import construction
from conv2attn.theorem.convolution import Convolution


def integers(draw, shape, largest=3):
    """A float64 tensor of small integers."""
    seed = draw(st.integers(0, 2**31))
    return torch.randint(-largest, largest + 1, shape, generator=torch.Generator().manual_seed(seed)).double()


@st.composite
def convolutions(draw):
    """A convolution of 1 to 3 axes with integer weights, options of its conversion, and an image of integers."""
    axes = draw(st.integers(1, 3))
    longest = 4 - axes
    ranges = (1, longest), (1, 3), (1, 2), (0, 2), (0, 2), (0, 2)
    each = [st.integers(*ends) for ends in ranges]
    kernel, stride, dilation, before, after, spare = zip(*[draw(st.tuples(*each)) for _ in range(axes)], strict=True)
    mode, groups = draw(st.sampled_from(list(MODES))), draw(st.integers(1, 3))
    inner, outer = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sides = tuple(
        max(d * (k - 1) + 1 - b - a, b + 1, a + 1) + s
        for k, d, b, a, s in zip(kernel, dilation, before, after, spare, strict=True)
    )
    weight = integers(draw, (groups * outer, inner, *kernel))
    bias = integers(draw, (groups * outer,)) if draw(st.booleans()) else None
    given = Convolution(weight, bias, stride, dilation, Padding(before, after, mode), groups)
    options = {
        "encoding": draw(st.sampled_from(["quadratic", "enumerated"])),
        "stride_by": draw(st.sampled_from(["queries", "pooling"])),
        "trainable": draw(st.booleans()),
        "d_head": draw(st.sampled_from([None, groups * min(inner, outer), groups * (max(inner, outer) + 1)])),
    }
    return given, options, integers(draw, (2, groups * inner, *sides))


def is_the_convolution(attention_for, case):
    """The layer is PyTorch's convolution of the image as NumPy pads it: all numbers are exact integers."""
    given, options, image = case
    before, after = given.padding.before, given.padding.after
    padded = np.pad(image.numpy(), [(0, 0), (0, 0), *zip(before, after, strict=True)], MODES[given.padding.mode])
    convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[len(before) - 1]
    wanted = convolve(torch.tensor(padded), given.weight, given.bias, given.stride, 0, given.dilation, given.groups)
    with torch.no_grad():
        return torch.equal(attention_for(given, **options)(image), wanted)


def of(change):
    """`attention_for` of another convolution."""
    return lambda given, **options: construction.attention_for(change(given), **options)


def groups_reversed(given):
    return replace(given, weight=given.weight.unflatten(0, (given.groups, -1)).flip(0).flatten(0, 1))


def one_group(given):
    if given.groups == 1:
        return given
    blocks = given.weight.unflatten(0, (given.groups, -1))
    return replace(given, weight=torch.cat([blocks.flatten(0, 1)] * given.groups, 1), groups=1)


def pooling_forgotten(given, **options):
    return construction.attention_for(
        given, **options | {"alpha": 0.5 if options["stride_by"] == "pooling" else "auto"}
    )


@st.composite
def widths(draw):
    """Channels, groups, and a width asked for, or none."""
    groups = draw(st.integers(1, 3))
    d_in, d_out = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    given = Convolution(torch.zeros(d_out, d_in // groups, 1), None, (1,), (1,), Padding.none(1), groups)
    return given, draw(st.none() | st.integers(-1, 18))


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


@st.composite
def taps(draw):
    """Integer taps in groups, and a width that serves."""
    groups, d_out, d_in = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    width = min(d_out, d_in) + draw(st.integers(0, 4))
    return integers(draw, (draw(st.integers(1, 4)), groups * d_out, d_in)), groups, width


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


def changed(value=lambda v: v, output=lambda o: o):
    """`factors` whose results are changed afterwards."""

    def factors(*arguments):
        left, right = construction.factors(*arguments)
        return None if left is None else value(left), None if right is None else output(right)

    return factors


@st.composite
def layers(draw):
    """Two layers of dense operators that fit: grids and channels of any small sizes, biases or none."""
    tokens = [draw(st.integers(1, 4)) for _ in range(3)]
    channels = [draw(st.integers(1, 3)) for _ in range(3)]

    def layer(n):
        terms = draw(st.integers(1, 3))
        mixes = Dense(integers(draw, (terms, tokens[n + 1], tokens[n])), (tokens[n + 1],))
        bias = integers(draw, (channels[n + 1],)) if draw(st.booleans()) else None
        return basis_of(mixes, Weights(None, integers(draw, (terms, channels[n + 1], channels[n])), bias), 1)

    return layer(1), layer(0), (tokens[0],), integers(draw, (channels[0], tokens[0]))


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


def weighted(layer, **changes):
    """The layer with other weights."""
    return replace(layer, weights=replace(layer.weights, **changes))


def first_parameters(second, first, sides):
    return compose(second, weighted(first, output=first.weights.output[:1].expand_as(first.weights.output)), sides)


LICENCES = {
    ("T1", "theorem.construction.attention_for"): Licence(
        convolutions(),
        is_the_convolution,
        {
            "taps flipped": of(lambda c: replace(c, weight=c.weight.flip(2))),
            "axes exchanged": of(lambda c: replace(c, weight=c.weight.mT) if c.weight.ndim > 3 else c),
            "bias forgotten": of(lambda c: replace(c, bias=None)),
            "stride forgotten": of(lambda c: replace(c, stride=(1,) * len(c.stride))),
            "dilation forgotten": of(lambda c: replace(c, dilation=(1,) * len(c.dilation))),
            "padding exchanged": of(
                lambda c: replace(c, padding=replace(c.padding, before=c.padding.after, after=c.padding.before))
            ),
            "zeros for every mode": of(lambda c: replace(c, padding=replace(c.padding, mode="zeros"))),
            "groups reversed": of(groups_reversed),
            "groups as one": of(one_group),
            "soft heads when pooling": pooling_forgotten,
        },
    ),
    ("T1p", "theorem.construction.head_width"): Licence(
        widths(),
        is_wide_enough,
        {
            "d_out": lambda c, wish: c.d_out // c.groups if wish is None else construction.head_width(c, wish),
            "groups ignored": lambda c, wish: construction.head_width(
                replace(c, groups=1, weight=c.weight.repeat(1, c.groups, 1)), wish
            ),
            "the wish whatever it is": lambda c, wish: (
                construction.head_width(c, None) if wish is None else wish // c.groups
            ),
            "the wish forgotten": lambda c, wish: construction.head_width(c, None),
            "one too narrow": lambda c, wish: construction.head_width(c, None if wish is None else wish + c.groups),
        },
        examples=150,
    ),
    ("T1p", "theorem.construction.factors"): Licence(
        taps(),
        are_factors,
        {
            "output transposed": changed(output=lambda o: o.flip(1)),
            "value transposed": changed(value=lambda v: v.flip(1)),
            "heads reversed": changed(value=lambda v: v.flip(0)),
            "taps at every width": lambda taps, groups, width: (None, taps),
            "groups as one": lambda taps, groups, width: construction.factors(taps, 1, width),
            "cut to the width": lambda taps, groups, width: construction.factors(
                taps, groups, min(width, taps.shape[2])
            ),
        },
        examples=100,
    ),
    ("AND", "basis.compose"): Licence(
        layers(),
        is_the_composition,
        {
            "the first bias forgotten": lambda b, a, sides: compose(b, weighted(a, bias=None), sides),
            "the second bias forgotten": lambda b, a, sides: compose(weighted(b, bias=None), a, sides),
            "the layers exchanged": lambda b, a, sides: compose(a, b, sides),
            "parameters of the first term": first_parameters,
            "parameters in another order": lambda b, a, sides: weighted(
                c := compose(b, a, sides), output=c.weights.output.flip(0)
            ),
            "a bias that does not vary": lambda b, a, sides: weighted(
                c := compose(b, a, sides), bias=c.weights.bias[:, :1].expand_as(c.weights.bias)
            ),
        },
        examples=80,
    ),
}
