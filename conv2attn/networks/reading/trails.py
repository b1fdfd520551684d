"""Tracks the softmaxes and score products from which a tensor was computed, and reads matrix products."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

MATRIX_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm}
ADDED_PRODUCTS = {torch.baddbmm, Tensor.baddbmm}
DISTANCES = {torch.cdist}
EINSUMS = {torch.einsum, torch.functional.einsum}
MOST_PRODUCTS = 8
UNIT = 1e-6
"""Rows count as shares if their sums are this close to 1."""


@final
@dataclass(frozen=True, eq=False)
class Trail:
    """The numbers, within a `run`, of the `softmaxes` and the score `products` from which a tensor was computed.

    `before` are the softmaxes that precede those of its scores.
    """

    run: object
    softmaxes: frozenset[int] = frozenset()
    products: frozenset[int] = frozenset()
    before: frozenset[int] = frozenset()

    @property
    def every(self) -> frozenset[int]:
        """All softmaxes from which the tensor was computed."""
        return self.softmaxes | self.before


def trail_of(tensor: Tensor, run: object) -> Trail | None:
    """The trail of a tensor in a run; a tensor that outlives its run has no trail in the next."""
    trail = getattr(tensor, "_trail", None)
    return trail if isinstance(trail, Trail) and trail.run is run else None


def tag(tensor: Tensor, trail: Trail) -> None:
    """Gives a tensor its trail."""
    if not isinstance(tensor, nn.Parameter):
        vars(tensor)["_trail"] = trail


def join(trails: Sequence[Trail], run: object) -> Trail:
    """The union of several trails, with the last of their products."""
    if len(trails) == 1:
        return trails[0]
    softmaxes = frozenset[int]().union(*(each.softmaxes for each in trails))
    products = frozenset[int]().union(*(each.products for each in trails))
    before = frozenset[int]().union(*(each.before for each in trails))
    return Trail(run, softmaxes, frozenset(sorted(products)[-MOST_PRODUCTS:]), before)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dictionaries."""
    # Every call of torch passes here, and most arguments are tensors or numbers: these start no generator.
    for each in values.values() if isinstance(values, dict) else values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, tuple | list | dict):
            yield from tensors_in(each)


def weights_are_right(first: Trail | None, second: Trail | None, left: Tensor, right: Tensor) -> bool | None:
    """Whether the second factor is attention for the first (True), or the first for the second; None for neither."""
    strong = [each is not None and bool(each.softmaxes) for each in (first, second)]
    if first is not None and second is not None and all(strong):
        if first.softmaxes == second.softmaxes:
            return None
        # Both factors have weights in them. Values that an earlier layer mixed carry its softmaxes, which precede those
        # of the scores, since scores are computed from the same tokens.
        if second.softmaxes <= first.before:  # values after an earlier softmax
            return False
        if first.softmaxes <= second.before:
            return True
        return bool(second.products) if bool(first.products) != bool(second.products) else None
    if any(strong):
        weights, other = (second, first) if strong[1] else (first, second)
        assert weights is not None
        return None if other is not None and other.every & weights.softmaxes else strong[1]
    # Weights normalised by hand come from products, and are not negative.
    by_hand = [
        each is not None and bool(each.products) and bool((factor >= 0).all())
        for each, factor in ((first, left), (second, right))
    ]
    # After a layer that is not observed the values come from products too, but values have both signs.
    return None if by_hand[0] == by_hand[1] else by_hand[1]


def shares(tensor: Tensor) -> bool:
    """Whether the rows of a tensor are shares: not negative, with sum 1, or less if no entry is zero (a sink)."""
    if tensor.shape[-1] < 2 or not tensor.numel():
        return False
    # In half precision the sums differ from 1 by a few roundings.
    unit = max(UNIT, 8 * torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() else 0
    sums, least = tensor.sum(-1), tensor.min()
    return bool((least >= 0 and (sums - 1).abs().max() < unit) or (least > 0 and sums.max() < 1))


@final
@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """A product `left` (..., rows, common) by `right` (..., common, columns), computed from `first` and `second`.

    `canonical` transforms its result into (..., rows, columns), `back` the reverse. The product is added to `added`.
    """

    left: Tensor
    right: Tensor
    first: Tensor
    second: Tensor
    canonical: Callable[[Tensor], Tensor] = lambda result: result
    back: Callable[[Tensor], Tensor] = lambda result: result
    added: Tensor | None = None


def as_matrix_product(function: Any, args: Any, kwargs: Any) -> MatrixProduct | None:
    """A call as a matrix product; None if it is not one."""
    if function in MATRIX_PRODUCTS or function in ADDED_PRODUCTS or function in DISTANCES:
        left, right = (*args, *kwargs.values())[function in ADDED_PRODUCTS :][:2]
        if not (isinstance(left, Tensor) and isinstance(right, Tensor)) or min(left.ndim, right.ndim) < 2:
            return None
        added = args[0] if function in ADDED_PRODUCTS and args else None
        return MatrixProduct(left, right.mT if function in DISTANCES else right, left, right, added=added)
    if function not in EINSUMS or not isinstance(args[0], str):
        return None
    operands = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else args[1:]
    terms = in_letters(args[0], operands)
    return None if terms is None else of_einsum(*terms, *operands)


def in_letters(equation: str, operands: Sequence[Tensor]) -> tuple[str, str, str] | None:
    """The terms of an einsum of two factors and of its result, without dots; None for other equations."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if len(operands) != 2 or not arrow or inputs.count(",") != 1:
        return None
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    terms, most = list[str](), 0
    for term, operand in zip(inputs.split(","), operands, strict=True):
        count = operand.ndim - len(term.replace("...", "")) if "..." in term else 0
        most = max(most, count)
        terms.append(term.replace("...", "".join(spare[:count])[::-1]))
    return terms[0], terms[1], output.replace("...", "".join(spare[:most])[::-1])


def of_einsum(first: str, second: str, output: str, one: Tensor, other: Tensor) -> MatrixProduct | None:
    """An einsum with the letters of its factors and its result, as a matrix product."""
    lead = [letter for letter in output if letter in first and letter in second]
    rows = [letter for letter in output if letter in first and letter not in second]
    columns = [letter for letter in output if letter in second and letter not in first]
    common = [letter for letter in first if letter in second and letter not in output]
    # Each letter must have one role: letters summed in one factor alone, or in both factors and twice in the result,
    # are not a matrix product.
    whole = len(first) == len(lead + rows + common) and len(second) == len(lead + columns + common)
    if not (whole and rows and columns and common and len(output) == len(lead + rows + columns)):
        return None
    sizes = dict(zip(first, one.shape, strict=True)) | dict(zip(second, other.shape, strict=True))

    def size(letters: list[str]) -> int:
        return torch.Size(sizes[letter] for letter in letters).numel()

    # In grouped-query attention, the query heads that share keys are among the rows. Then one axis of the rows alone
    # has as many tokens as there are keys; if the rows are rows and columns of pixels, only all axes together have as
    # many. Keys are the columns of scores, and the common axis of attention and values.
    ends = {size(end) for end in (columns, common)}
    queries = [letter for letter in rows if sizes[letter] in ends]
    heads = [letter for letter in rows if letter not in queries]
    if len(queries) == 1 and size(rows) not in ends:
        rows = queries
    else:
        heads = []

    def matrix(term: str, factor: Tensor, before: list[str], behind: list[str]) -> Tensor:
        own = [letter for letter in heads if letter in term]
        moved = factor.permute([term.index(letter) for letter in (*lead, *own, *before, *behind)])
        front = [*(sizes[letter] for letter in lead), *(sizes[letter] if own else 1 for letter in heads)]
        return moved.reshape(*front, size(before), size(behind))

    letters = [*lead, *heads, *rows, *columns]

    def canonical(result: Tensor) -> Tensor:
        moved = result.permute([output.index(letter) for letter in letters])
        return moved.reshape(*(sizes[letter] for letter in (*lead, *heads)), size(rows), size(columns))

    def back(result: Tensor) -> Tensor:
        apart = result.reshape([sizes[letter] for letter in letters])
        return apart.permute([letters.index(letter) for letter in output])

    left, right = matrix(first, one, rows, common), matrix(second, other, common, columns)
    return MatrixProduct(left, right, one, other, canonical, back)
