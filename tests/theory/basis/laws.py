"""Operators obey their laws; paddings, sites and convolutions are those of torch; composing multiplies (Prop. 3)."""

import itertools
import math
from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers.attention.drawing import encoding_for
from suite import (
    LAWS,
    convolutions,
    grids,
    images_for,
    integer_tensors,
    operators_on,
    paddings,
    polynomials,
    shifts,
    sites_on,
    smallest_sides,
    softmaxes,
    sparses,
    sums,
)
from suite.operator_laws import apply_is_the_matrix, composition_multiplies
from suite.operator_strategies import compositions_on
from torch import nn
from torch.nn import functional as F

import conv2attn.theory.basis
from conv2attn.layers.theorem import read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    FAMILIES,
    MODES,
    AttentionGrid,
    Form,
    Padding,
    Shift,
    Sites,
    Weights,
    apply,
    as_affine_map,
    as_basis,
    as_matrix,
    basis_of,
    combine,
    compose,
    evaluate,
    kernel_taps,
    moved_to,
    offsets,
    output_sides,
    terms,
    turned,
)
from conv2attn.theory.basis.basis import field

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@st.composite
def heads_on(draw, sides):
    """One or two heads of any family."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    torch.manual_seed(generator.initial_seed())
    encoding = encoding_for(draw(st.sampled_from([*FAMILIES])), draw(st.integers(1, 2)), sides, generator)
    return encoding.requires_grad_(False).operators()


KINDS = {
    "shift": lambda sides: shifts(len(sides)),
    "softmax": lambda sides: softmaxes(len(sides)),
    "padding": paddings,
    "sites": sites_on,
    "composition": compositions_on,
    "polynomial": polynomials,
    "sparse": sparses,
    "sum": sums,
    "any": operators_on,
    "heads": heads_on,
}
LINES = st.integers(1, 3).flatmap(lambda axes: grids(axes, 5 if axes < 3 else 3))


@pytest.mark.parametrize("kind", KINDS)
def test_operators_obey_the_laws(kind):
    @settings(max_examples=max(10, settings.default.max_examples // 2))
    @given(st.data(), LINES)
    def check(data, sides):
        operator = data.draw(KINDS[kind](sides))
        image = data.draw(integer_tensors((2, *sides), torch.float64, 8))
        for law in LAWS:
            law(operator, sides, image)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_operator_computes_where_its_image_is(kind, device):
    """Its matrix is on the CPU, in float64."""

    @settings(max_examples=max(10, settings.default.max_examples // 4))
    @given(st.data(), LINES)
    def check(data, sides):
        operator = in_float32(data.draw(KINDS[kind](sides)))
        image = data.draw(integer_tensors((2, *sides), torch.float32, 8))
        there = moved_to(operator, device)
        output, expected = apply(there, image.to(device), sides), apply(operator, image, sides)
        assert output.device == image.to(device).device
        assert_same_output(output.cpu(), expected, 1e-4 * (1 + expected.abs().max().item()))
        assert_same_output(as_matrix(there, sides), as_matrix(operator, sides), 1e-6)

    check()


def in_float32(value):
    """An operator with all its numbers in float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple):
        return tuple(map(in_float32, value))
    if not is_dataclass(value):
        return value
    return replace(value, **{part.name: in_float32(getattr(value, part.name)) for part in fields(value) if part.init})


@given(st.data(), LINES)
def test_what_is_moved_to_where_it_is_stays_itself(data, sides):
    """And every tensor of what is moved elsewhere is there."""
    operator = data.draw(operators_on(sides))
    assert moved_to(operator, "cpu") is operator
    basis = basis_of(operator, Weights(None, torch.ones(terms(operator), 3, 2)), len(sides))
    assert moved_to(basis, "cpu") is basis
    assert all(tensor.is_meta for tensor in tensors(moved_to(basis, "meta")))


def tensors(value):
    """All tensors of an operator, a basis, or a tuple of them."""
    if isinstance(value, torch.Tensor):
        yield value
    parts = [getattr(value, part.name) for part in fields(value) if part.init] if is_dataclass(value) else value
    if is_dataclass(value) or isinstance(value, tuple):
        for part in parts:
            yield from tensors(part)


@given(st.data(), LINES, st.integers(0, 2**16))
def test_combine_adds_up_what_apply_gives(data, sides, seed):
    """On the grid of the outputs, for another image in each term."""
    operator, numbers = data.draw(operators_on(sides)), torch.Generator().manual_seed(seed)
    images = torch.randint(-8, 9, (terms(operator), 2, *sides), generator=numbers).double()
    each = [apply(operator, image, sides)[term] for term, image in enumerate(images)]
    assert tuple(each[0].shape[1:]) == output_sides(operator, sides)
    assert_same_output(
        combine(operator, images, sides), torch.stack(each).sum(0), 1e-9 * (1 + max(e.abs().max().item() for e in each))
    )


def test_drawn_vectors_have_a_length_of_about_one():
    """So that scores begin at the same scale whatever the width is."""
    torch.manual_seed(0)
    for width in (4, 64):
        learned, sinusoidal = FAMILIES["learned"].of(2, (200,), width), FAMILIES["sinusoidal"].of(200, 2, width)
        for vectors in (learned.tables[0], sinusoidal.bias):
            assert vectors.square().sum(-1).mean().item() == pytest.approx(1, rel=0.3)


@given(LINES, st.integers(0, 2**16))
def test_numbers_of_heads_with_a_covariance_bound_their_scores(sides, seed):
    """And their ellipses hold every key that scores at most `depth` below the largest score."""
    generator, depth = torch.Generator().manual_seed(seed), 1.0
    axes, grid = len(sides), AttentionGrid(sides, Sites.everywhere(len(sides)))
    centers = 5 * torch.rand(5, 1, generator=generator) * torch.randn(5, axes, generator=generator)
    roots = torch.randn(5, axes, axes, generator=generator)
    heads = FAMILIES["generalised"].of(centers.double(), roots.double())
    numbers, largest = heads.numbers(), torch.linalg.eigvalsh(heads.precision()).max().item()
    assert (numbers.axes, numbers.reach) == (axes, heads.center.abs().max().item())
    assert largest / 2 <= numbers.sharpness * (1 + 1e-12)
    assert numbers.sharpness <= axes * largest / 2 * (1 + 1e-12)
    scores, away = heads.scores(grid, grid.every_query(), torch.float64)[0], grid.displacements()
    for ellipse, found in zip(numbers.ellipses, scores, strict=True):
        below = found < found.amax(-1, keepdim=True) - depth
        for axis in range(axes):
            first, last = ellipse.interval(axis, depth)
            assert below[(away[..., axis] < first) | (away[..., axis] > last)].all()


@given(LINES)
def test_enumerated_displacements_are_apart_by_the_smallest_radix_that_serves(sides):
    grid = AttentionGrid(sides, Sites.everywhere(len(sides)))
    heads = FAMILIES["enumerated"].of(torch.zeros(1, len(sides)), 1.0)
    numbers, away = heads.enumeration(grid, grid.every_query()), grid.displacements()
    factors = [math.prod(2 * side - 1 for side in sides[axis + 1 :]) for axis in range(len(sides))]
    assert torch.equal(numbers, (away * torch.tensor(factors)).sum(-1))
    count = len(away.flatten(0, 1).unique(dim=0))
    assert len(numbers.unique()) == count
    for axis in [a for a in range(len(sides) - 1) if sides[a] > 1 and factors[a] > 1]:
        smaller = [factor - (a == axis) for a, factor in enumerate(factors)]
        assert len((away * torch.tensor(smaller)).sum(-1).unique()) < count


def test_a_law_rejects_an_operator_that_is_not_its_matrix(monkeypatch):
    """Planted: `apply` of a shift wraps around."""
    monkeypatch.setattr("conv2attn.theory.basis.padding.Padding.pad", lambda self, image: torch.roll(image, 1, -1))
    with pytest.raises(AssertionError, match="output differs in"):
        apply_is_the_matrix(Shift(((0, -1),)), (3, 4), torch.arange(12.0, dtype=torch.float64).reshape(3, 4))


def test_a_law_rejects_factors_in_the_wrong_order(monkeypatch):
    monkeypatch.setattr("conv2attn.theory.basis.operators.combination.reversed", lambda items: items, raising=False)
    with pytest.raises(AssertionError):
        composition_multiplies(Sites((2,), (0,), (0,)), (4,), torch.arange(4.0, dtype=torch.float64))


@given(st.data(), LINES)
def test_padding_is_that_of_torch(data, sides):
    """Where F.pad has the mode; zero-stuffing is what a transposed convolution with the kernel 1 does."""
    padding = data.draw(paddings(sides))
    image = data.draw(integer_tensors((1, 2, *sides), torch.float64, 8))
    if max(padding.spacing) > 1:
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(sides) - 1]
        identity = torch.eye(2, dtype=torch.float64).reshape(2, 2, *[1] * len(sides))
        image = transposed(image, identity, stride=padding.spacing)
    around = [amount for pair in zip(reversed(padding.before), reversed(padding.after), strict=True) for amount in pair]
    mode = "constant" if padding.mode == "zeros" else padding.mode
    expected = F.pad(image, around, mode=mode)
    stuffed = Padding(padding.before, padding.after, padding.mode)
    assert_same_output(apply(stuffed, image, tuple(image.shape[2:]))[0], expected)
    assert padding.sides(sides) == tuple(expected.shape[2:])


@given(st.data(), st.sampled_from([*MODES]), st.lists(st.integers(3, 5), min_size=1, max_size=3).map(tuple))
def test_a_mode_has_the_padding_layers_of_torch_where_its_convolutions_have_the_mode(data, mode, sides):
    axes = len(sides)
    try:
        (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](1, 1, 1, padding_mode=mode)
    except ValueError:
        assert not MODES[mode].padder
        return
    before, after = (tuple(data.draw(st.integers(0, 2)) for _ in sides) for _ in range(2))
    image = torch.arange(2.0 * math.prod(sides)).reshape(1, 2, *sides)
    around = [amount for pair in zip(reversed(before), reversed(after), strict=True) for amount in pair]
    layer = MODES[mode].layer(axes)(tuple(around), *([0.0] if mode == "zeros" else []))
    assert torch.equal(layer(image), Padding(before, after, mode).pad(image))


@given(st.data())
def test_the_basis_of_a_convolution_is_the_convolution_of_torch(data):
    conv = data.draw(convolutions(dtypes=[torch.float64]))
    image = data.draw(images_for(conv, batches=[1, 2]))
    assert_same_output(evaluate(as_basis(read_convolution(conv)), image), conv(image))


@given(st.data())
def test_the_form_of_a_convolution_is_the_pixels_that_it_copies_and_how_many_outputs_it_has(data):
    conv = data.draw(convolutions(dtypes=[torch.float64]))
    image = data.draw(images_for(conv, batches=[1]))
    basis = as_basis(conv)
    form, sides = basis.form, image.shape[2:]
    rows = zip(sides, form.stride, form.room, form.spacing, strict=True)
    assert [(p * (n - 1) + room) // s + 1 for n, s, room, p in rows] == list(conv(image).shape[2:])
    copied = as_matrix(basis.mixing, sides).reshape(len(basis.starts), *conv(image).shape[2:], *sides)
    for start, term in zip(basis.starts, copied, strict=True):
        for pair in term.nonzero().tolist():
            output, pixel = pair[: len(sides)], pair[len(sides) :]
            places = [f + o * s for f, o, s in zip(start, output, form.stride, strict=True)]
            inside = [0 <= at <= p * (n - 1) for at, p, n in zip(places, form.spacing, sides, strict=True)]
            if all(inside):
                assert [x * p for x, p in zip(pixel, form.spacing, strict=True)] == places
            else:
                assert form.reaches_out(start)


@given(st.integers(1, 3).flatmap(lambda axes: st.one_of(shifts(axes), softmaxes(axes))))
def test_offsets_are_those_of_shifts_and_the_pixels_nearest_to_the_centres_of_heads(operator):
    found = offsets(operator)
    assert len(found) == terms(operator)
    if isinstance(operator, Shift):
        assert found == operator.offsets
    else:
        away = (torch.tensor(found) - operator.center).abs()
        assert bool((away <= 0.5).all())


@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(1, 4), st.booleans())
def test_a_form_reaches_out_where_some_output_of_some_size_does(start, room, step, strided):
    """Steps are those of a convolution, or of a transposed one: then all places are met."""
    stride, spacing = (step, 1) if strided else (1, step)
    places = [
        (start + o * stride, spacing * (side - 1))
        for side in range(1, 20)
        for o in range((spacing * (side - 1) + room) // stride + 1)
    ]
    beyond = any(not 0 <= place <= last for place, last in places)
    assert Form((stride,), (room,), (spacing,)).reaches_out((start,)) is beyond


@given(st.data())
def test_the_affine_map_of_a_convolution_is_that_of_all_basis_images(data):
    """Zero and the one-hot images determine an affine map; the bias apart, so that it hides nothing."""
    conv = data.draw(convolutions(dtypes=[torch.float64], dimensions=[1, 2]))
    sides = smallest_sides(conv)
    matrix, bias = as_affine_map(as_basis(read_convolution(conv)), sides)
    size = conv.in_channels * math.prod(sides)
    zero = conv(torch.zeros(1, conv.in_channels, *sides, dtype=torch.float64))
    conv.bias = None
    images = torch.eye(size, dtype=torch.float64).reshape(size, conv.in_channels, *sides)
    assert_same_output(matrix, conv(images).flatten(1).T.contiguous())
    assert_same_output(bias, zero.flatten())


@given(st.data())
def test_composition_is_the_composition_of_torch_with_borders_and_biases(data):
    first = data.draw(convolutions(dtypes=[torch.float64], dimensions=[1, 2]))
    axes = len(first.kernel_size)
    kind = type(first) if not first.transposed else (torch.nn.Conv1d, torch.nn.Conv2d)[axes - 1]
    padding = data.draw(st.integers(0, 2))
    second = kind(first.out_channels, 2, data.draw(st.integers(1, 2)), padding=padding, dtype=torch.float64)
    second.weight.data = data.draw(integer_tensors(second.weight.shape, torch.float64, 3))
    second.bias.data = data.draw(integer_tensors(second.bias.shape, torch.float64, 100))
    first.weight.clamp_(-8, 8)
    if first.bias is not None:
        first.bias.clamp_(-99, 99)
    sides = tuple(side + s for side, s in zip(smallest_sides(first), first.stride, strict=True))
    image = data.draw(integer_tensors((2, first.in_channels, *sides), torch.float64, 100))
    expected = second(first(image)).detach()
    both = compose(as_basis(read_convolution(second)), as_basis(read_convolution(first)), sides)
    assert_same_output(evaluate(both, image).detach(), expected)
    matrix, bias = as_affine_map(both, sides)
    assert_same_output((image.flatten(1) @ matrix.T + bias).unflatten(1, expected.shape[1:]).detach(), expected)


def test_the_bias_of_a_composition_varies_only_where_the_second_layer_pads():
    first = torch.nn.Conv2d(1, 1, 1, dtype=torch.float64)
    second = torch.nn.Conv2d(1, 1, 3, padding=1, dtype=torch.float64)
    bias = compose(as_basis(read_convolution(second)), as_basis(read_convolution(first)), (5, 6)).weights.bias
    assert len(bias[0, 1:-1, 1:-1].unique()) == 1
    assert len(bias.unique()) > 1


def test_descriptions_without_tensors_are_compared_by_value():
    kinds = [each for each in vars(conv2attn.theory.basis).values() if is_dataclass(each)]
    for kind in kinds:
        held = " ".join(str(field.type) for field in fields(kind))
        assert (kind.__eq__ is object.__eq__) is ("Tensor" in held or "Weights" in held), kind


def test_no_bias_is_a_field_of_zeros():
    basis = basis_of(Shift(((0, 0),)), Weights(None, torch.ones(1, 3, 2)), 2)
    assert torch.equal(field(basis, (4, 5)), torch.zeros(3, 1, 1))


@given(st.booleans(), st.integers(1, 2), st.permutations(range(6)), st.integers(0, 2**16))
def test_weights_of_a_kernel_are_its_taps_whoever_asks_first(narrow, groups, order, seed):
    """Planted before: factors that an engine asked for without gradients had none afterwards."""
    kernel = torch.randn(4, 2, 3, 2, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    weights = Weights.of_kernel(kernel, None, groups, narrow)
    assert weights.kernel((3, 2)) is kernel
    with torch.no_grad():
        assert (weights.value is None, weights.output is None) == (not narrow, narrow)
    assert weights.taps().requires_grad
    for tap, (row, column) in enumerate(itertools.product(range(3), range(2))):
        assert torch.equal(weights.taps()[tap], kernel[:, :, row, column])
    assert torch.equal(kernel_taps(kernel), weights.taps())
    assert torch.equal(weights.kernel((2, 3)), kernel.reshape(4, 2, 2, 3))
    moved = weights.kernel((3, 2), order)
    assert torch.equal(moved.flatten(2), kernel.flatten(2)[:, :, order])
    with pytest.raises(AttributeError, match="weights have no factor"):
        _ = weights.factor


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(0, 2**16))
def test_a_turned_kernel_is_that_of_the_transposed_convolution(groups, d_in, d_out, seed):
    """A convolution of the padded image by it, and the transposed one by the other; turned twice it is itself."""
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.randint(-4, 5, (d_out * groups, d_in, 3, 2), generator=generator).double()
    image = torch.randint(-9, 10, (1, d_in * groups, 4, 5), generator=generator).double()
    swapped = turned(kernel, groups)
    assert_same_output(
        F.conv_transpose2d(image, swapped, groups=groups),
        F.conv2d(F.pad(image, (1, 1, 2, 2)), kernel, None, 1, 0, 1, groups),
    )
    assert torch.equal(turned(swapped, groups), kernel)
    assert torch.equal(kernel_taps(swapped, groups, transposed=True), kernel_taps(kernel))
