"""Laws that every operator obeys: plain functions in a list, for `parametrize` to cross with operators and grids."""

import copy
import math
from collections.abc import Callable
from functools import singledispatch

import torch
from softmax_rounding import softmax_error
from torch import Tensor

from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.testing.equivalence import assert_same_output, require
from conv2attn.theory.basis import (
    Composition,
    Operator,
    Padding,
    Positions,
    QuadraticSoftmax,
    Shift,
    Sides,
    Sites,
    apply,
    as_basis,
    as_matrix,
    combine,
    evaluate,
    output_sides,
    terms,
)
from conv2attn.theory.bounds import FORMATS, gamma

Law = Callable[[Operator, Sides, Tensor], None]
FLOAT64_ROUNDOFF = FORMATS["float64"].unit_roundoff


@singledispatch
def relative_error(operator: object, sides: Sides) -> float:
    """Bound on |`apply` - matrix product| in float64, relative to the largest |entry| between the factors.

    0 where both are exact on small whole numbers.
    """
    return 0.0


@relative_error.register
def _(operator: Positions, sides: Sides) -> float:
    return 2 * gamma(math.prod(sides) + 1, FLOAT64_ROUNDOFF)


@relative_error.register
def _(operator: QuadraticSoftmax, sides: Sides) -> float:
    reach = max(sides) + operator.center.abs().max().item()
    score = 5 * FLOAT64_ROUNDOFF * operator.alpha.abs().max().item() * len(sides) * reach**2
    rounding = softmax_error(math.prod(sides), "float64", score) + gamma(math.prod(sides), FLOAT64_ROUNDOFF)
    return 2 * (1 + len(sides)) * rounding


@relative_error.register
def _(operator: Composition, sides: Sides) -> float:
    total = 0.0
    for factor in reversed(operator.factors):
        keys = gamma(math.prod(sides) + 1, FLOAT64_ROUNDOFF)
        total = total + 2 * relative_error(factor, sides) * (1 + total) + 4 * keys * (not is_exact(operator))
        sides = output_sides(factor, sides)
    return total


@singledispatch
def is_exact(operator: Operator) -> bool:
    """Whether the entries of `operator` are whole numbers."""
    return True


@is_exact.register
def _(operator: Positions) -> bool:
    return False


@is_exact.register
def _(operator: Composition) -> bool:
    return all(map(is_exact, operator.factors))


def scale(operator: Operator, sides: Sides, image: Tensor) -> float:
    """The largest absolute value that can arise between the factors of `operator` on `image`."""
    factors = reversed(operator.factors) if isinstance(operator, Composition) else [operator]
    largest = image.abs().max().item()
    for factor in factors:
        largest *= max(1.0, as_matrix(factor, sides).abs().sum(-1).max().item())
        sides = output_sides(factor, sides)
    return largest


def law_tolerance(operator: Operator, sides: Sides, image: Tensor) -> float | None:
    """The tolerance of a law: None, for bitwise equality, where the operator is exact."""
    return None if is_exact(operator) else relative_error(operator, sides) * scale(operator, sides, image)


def as_product(operator: Operator, sides: Sides, image: Tensor) -> Tensor:
    """`as_matrix(operator) @ image`, on the grid of the outputs, term by term."""
    products = [image.flatten(-len(sides)) @ matrix.T for matrix in as_matrix(operator, sides)]
    return torch.stack(products).unflatten(-1, output_sides(operator, sides))


def apply_is_the_matrix(operator: Operator, sides: Sides, image: Tensor) -> None:
    """`apply(P, x) = as_matrix(P) x`."""
    tolerance = law_tolerance(operator, sides, image)
    assert_same_output(apply(operator, image, sides), as_product(operator, sides, image), tolerance)


def combine_is_the_sum(operator: Operator, sides: Sides, image: Tensor) -> None:
    """`combine(P, x) = sum_k as_matrix(P)_k x_k`, for another image in each term."""
    images = torch.stack([image * (-1) ** k * (k % 3) for k in range(terms(operator))])
    products = [as_product(operator, sides, each)[k] for k, each in enumerate(images)]
    tolerance = law_tolerance(operator, sides, image)
    each_term = None if tolerance is None else 3 * terms(operator) * tolerance
    assert_same_output(combine(operator, images, sides), torch.stack(products).sum(0), each_term)


def gradients_are_adjoints(operator: Operator, sides: Sides, image: Tensor) -> None:
    """The gradient of `sum(y * apply(P, x))` is `sum_k as_matrix(P)_k^T y_k`, and that of `combine` is `P_k^T y`."""
    variable = image.clone().requires_grad_()
    output = apply(operator, variable, sides)
    direction = torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape) % 5 - 2
    matrix, tolerance = as_matrix(operator, sides), law_tolerance(operator, sides, torch.ones_like(image) * 2)
    scaled = None if tolerance is None else 2 * math.prod(output.shape) * tolerance
    expected = torch.einsum("t...q,tqk->...k", direction.flatten(-len(sides)), matrix).reshape(image.shape)
    assert_same_output(torch.autograd.grad(output, variable, direction)[0], expected, scaled)
    images = torch.stack([image] * terms(operator)).requires_grad_()
    to_images = torch.autograd.grad(combine(operator, images, sides), images, direction[0])[0]
    each = torch.einsum("...q,tqk->t...k", direction[0].flatten(-len(sides)), matrix).reshape(images.shape)
    assert_same_output(to_images, each, scaled)


def matrix_has_the_sides(operator: Operator, sides: Sides, image: Tensor) -> None:
    """One matrix per term, one row per token of `output_sides`, one column per token of `sides`, float64."""
    matrix = as_matrix(operator, sides)
    require(
        matrix.shape == (terms(operator), math.prod(output_sides(operator, sides)), math.prod(sides)),
        f"{operator} has a matrix {tuple(matrix.shape)}",
    )
    require(matrix.dtype == torch.float64, f"{operator} has a matrix of {matrix.dtype}")


def zero_stays_zero(operator: Operator, sides: Sides, image: Tensor) -> None:
    """`P 0 = 0`."""
    require(not bool(apply(operator, torch.zeros_like(image), sides).any()), f"{operator} makes something of nothing")


def composition_multiplies(operator: Operator, sides: Sides, image: Tensor) -> None:
    """`as_matrix(P'' P') = as_matrix(P'') as_matrix(P')`, and `apply` composes; here P'' are two shifts."""
    between = output_sides(operator, sides)
    second = Shift(((1,) * len(between), (0,) * len(between)))
    composition = Composition((second, operator))
    require(
        output_sides(composition, sides) == between, f"{composition} has the sides {output_sides(composition, sides)}"
    )
    products = (as_matrix(second, between)[:, None] @ as_matrix(operator, sides)).flatten(0, 1)
    assert_same_output(as_matrix(composition, sides), products)
    assert_same_output(
        apply(composition, image, sides), apply(second, apply(operator, image, sides), between).flatten(0, 1)
    )


def shape_of_batches_is_kept(operator: Operator, sides: Sides, image: Tensor) -> None:
    """Leading axes are independent of each other: applying to a stack is stacking what is applied."""
    stacked = apply(operator, torch.stack([image, -image]), sides)
    assert_same_output(stacked[:, 0], apply(operator, image, sides), law_tolerance(operator, sides, image))
    assert_same_output(stacked[:, 1], -stacked[:, 0], law_tolerance(operator, sides, image))


def rows_are_probabilities(operator: Operator, sides: Sides, image: Tensor) -> None:
    """The rows of a softmax are probabilities, and those of a shift, a padding or a selection are one-hot or zero."""
    check_sums(operator, as_matrix(operator, sides))


@singledispatch
def check_sums(operator: Operator, matrix: Tensor) -> None:
    """Checks the row sums of an operator's matrix."""


@check_sums.register(Shift)
@check_sums.register(Padding)
@check_sums.register(Sites)
def _(operator: Operator, matrix: Tensor) -> None:
    require(bool(((matrix == 0) | (matrix == 1)).all()), f"{operator} weighs a pixel")
    require(bool((matrix.sum(-1) <= 1).all()), f"{operator} reads two pixels at once")


@check_sums.register
def _(operator: Positions, matrix: Tensor) -> None:
    keys = matrix.shape[-1]
    ones = torch.ones(matrix.shape[:2], dtype=torch.float64)
    assert_same_output(matrix.sum(-1), ones, softmax_error(keys, "float64") + gamma(keys, FLOAT64_ROUNDOFF))
    tiny = torch.finfo(matrix.dtype).tiny
    require(bool(((matrix == 0) | (matrix >= tiny)).all()), f"{operator} has a negative or a subnormal weight")


LAWS: list[Law] = [
    apply_is_the_matrix,
    combine_is_the_sum,
    gradients_are_adjoints,
    matrix_has_the_sides,
    zero_stays_zero,
    composition_multiplies,
    shape_of_batches_is_kept,
    rows_are_probabilities,
]


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
