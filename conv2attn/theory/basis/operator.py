"""Families of token-mixing operators: properties for engines and checks, and rules that compute with them."""

import operator
from dataclasses import fields, is_dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError
from conv2attn.theory.basis.grid import AttentionGrid, Offset, Sides
from conv2attn.theory.basis.numbers import HeadNumbers

Value = TypeVar("Value")


class Operator:
    """A family of operators `P_k`. The defaults here promise nothing.

    What a family computes is given by rules (`as_matrix`, `apply`, ...). Its properties are given here, so that no
    engine needs its class.

    `reads_content`: whether the operators depend on the image.
    `is_separable`: whether scores are a sum over the axes, of which `axis_scores` gives the terms.
    `has_features`: whether scores are inner products of `features` of the query and of the key.
    `sharpens`: whether heads tend to shifts as their sharpness grows, so that a convolution converts into them.
    `is_stationary`: whether a score depends on the displacement alone, and not on the grid.
    `reads_nearest`: whether a one-hot head with its target off the grid reads the key nearest to it.
    """

    reads_content: ClassVar[bool] = False
    is_separable: ClassVar[bool] = False
    has_features: ClassVar[bool] = False
    is_stationary: ClassVar[bool] = False
    reads_nearest: ClassVar[bool] = False
    sharpens: ClassVar[bool] = False

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.has_none("heads")

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The tensors from which `numbers` is read; empty if nothing depends on their values."""
        return ()

    def numbers(self) -> HeadNumbers:
        """Centres and sharpness as Python numbers: reads the values, which synchronises an accelerator."""
        return HeadNumbers()

    def numbers_on(self, image: Tensor) -> HeadNumbers | None:
        """Bounds on the positional part of scores that also read `image`; the accuracy of features follows from them.

        None if the positions have no features of few numbers. Reads the values.
        """
        return None

    @property
    def centers(self) -> Tensor | None:
        """The centre of each head in pixels, (heads, axes), from which its target follows; None without centres."""
        return None

    def precision(self) -> Tensor | None:
        """P of each head, (heads, axes, axes), if scores are `-1/2 (delta - centre)^T P (delta - centre)`: float64."""
        return None

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """The scores of some queries, (batch or 1, heads, queries, keys); `image` is the padded one."""
        self.has_none("scores")

    def on(self, grid: AttentionGrid) -> "Operator":
        """A family with the same `axis_scores`, prepared for this grid.

        Raises:
            GeometryError: the family does not support the grid (C2A121).
        """
        return self

    def axis_scores(self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice = slice(None)) -> Tensor:
        """The part of `axis` in the scores of some heads, (heads, *displacement.shape)."""
        self.has_none("axis_scores")

    def features(self, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Features of queries (1, heads, queries, width) and keys (1, 1, keys, width), coordinates centred."""
        self.has_none("features")

    def content_features(
        self, grid: AttentionGrid, dtype: torch.dtype, image: Tensor, by_axis: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Features of queries and keys, whose inner products give scores that read the padded `image`.

        Both are lists of parts (batch, heads, queries or keys, width); part i of one meets part i of the other.
        Coordinates are centred.

        Args:
            by_axis: for positions whose scores are a sum over the axes. A query then holds its score with every
                coordinate of each axis, and a key holds a one-hot mark of its own. This is accurate for every
                sharpness, but wider.
        """
        self.has_none("content_features")

    def has_none(self, what: str) -> NoReturn:
        """Raises the error for a property that the family does not have (C2A110)."""
        raise UnsupportedError(
            "C2A110", f"{type(self).__name__} has no {what}", "Define it in the class, or pass the operator as Dense."
        )


def moved_to(value: Value, device: torch.device | str) -> Value:
    """An operator, a basis, or a field of either, with all its tensors on `device`; itself if they are there
    already.
    """
    # An object that is already there is returned itself: no copy of a large operator is made.
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device)
    elif isinstance(value, tuple):
        moved = tuple(moved_to(each, device) for each in value)
    elif is_dataclass(value):
        parts = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        there = {name: moved_to(part, device) for name, part in parts.items()}
        same = all(there[name] is part for name, part in parts.items())
        moved = value if same else replace(moved, **there)
    return value if isinstance(value, tuple) and all(map(operator.is_, moved, value)) else moved


def without_rule(question: str, operator: object) -> UnsupportedError:
    """The error for a family that has no rule for a function."""
    return UnsupportedError(
        "C2A110",
        f"{question} has no rule for {type(operator).__name__}",
        f"Register a rule for {question}, or pass the operator as Dense.",
    )


@singledispatch
def terms(operator: object) -> int:
    """Number of operators `P_k` in the family."""
    raise without_rule("terms", operator)


@singledispatch
def output_sides(operator: object, sides: Sides) -> Sides:
    """Sides of the grid that `operator` maps a grid with these `sides` to."""
    raise without_rule("output_sides", operator)


@singledispatch
def as_matrix(operator: object, sides: Sides) -> Tensor:
    """The token-mixing matrices on a grid: float64, on the CPU, (terms, queries, keys)."""
    raise without_rule("as_matrix", operator)


@singledispatch
def apply(operator: object, image: Tensor, sides: Sides) -> Tensor:
    """Each `P_k` applied to `image` (..., *sides): (terms, ..., *queries); by the matrix if a family has no rule."""
    matrix, queries = as_matrix(operator, sides).to(image), output_sides(operator, sides)
    return torch.einsum("...k,tqk->t...q", image.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def combine(operator: object, images: Tensor, sides: Sides) -> Tensor:
    """`sum_k P_k x_k` for images (terms, ..., *sides): (..., *queries); by the matrix if a family has no rule."""
    matrix, queries = as_matrix(operator, sides).to(images), output_sides(operator, sides)
    return torch.einsum("t...k,tqk->...q", images.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def offsets(operator: Operator) -> tuple[Offset, ...]:
    """The offset of the target of each operator: that of a shift, and the pixel nearest to the finite centre of a head.

    Raises:
        UnsupportedError: the family has no targets that are the same for every query (C2A110).
    """
    if operator.centers is None:
        raise without_rule("offsets", operator)
    return tuple(tuple(round(x) for x in center) for center in operator.centers.tolist())
