"""Families of token-mixing operators: their properties, and the rules that compute with them."""

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

    Rules (`as_matrix`, `apply`, ...) say what a family computes. The properties below say what an engine, which is one
    way to evaluate a layer, may rely on, so that no engine tests for a class.

    `reads_content`: whether the operators depend on the image.
    `is_separable`: whether scores are a sum over the axes, whose terms `axis_scores` gives.
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
        """Bounds on the positional part of scores that also read `image`, from which the accuracy of features follows.

        None if the positional part has no `features`. Reads the values, which synchronises an accelerator.
        """
        return None

    @property
    def centers(self) -> Tensor | None:
        """The centre of each head in pixels, (heads, axes), from which its target follows; None without centres."""
        return None

    def precision(self) -> Tensor | None:
        """P of every head, float64 (heads, axes, axes), if scores are `-1/2 (delta - centre)^T P (delta - centre)`.

        None for other scores.
        """
        return None

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """The scores of some queries, (batch or 1, heads, queries, keys); `image` is the padded image."""
        self.has_none("scores")

    def on(self, grid: AttentionGrid) -> "Operator":
        """A family with the same `axis_scores`, prepared for this grid.

        Raises:
            GeometryError: the family does not support the grid (C2A121).
        """
        return self

    def axis_scores(self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice = slice(None)) -> Tensor:
        """What `axis` adds to the scores of these heads, (heads, *displacement.shape)."""
        self.has_none("axis_scores")

    def features(self, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Features of queries (1, heads, queries, width) and of keys (1, 1, keys, width).

        The inner product of two features is the score, up to a term of the query alone, which a softmax ignores.
        Coordinates are counted from the middle of the keys.
        """
        self.has_none("features")

    def content_features(
        self, grid: AttentionGrid, dtype: torch.dtype, image: Tensor, by_axis: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Features of queries and keys, whose inner products give scores that read the padded `image`.

        Both are lists of parts (batch, heads, queries or keys, width). The inner products of the parts with the same
        index are added up. Coordinates are counted from the middle of the keys.

        Args:
            by_axis: whether to use wider features that are accurate at every sharpness, which needs positional scores
                that are a sum over the axes. A query then holds its score with every coordinate of every axis, and a
                key holds one-hot marks of its own coordinates.
        """
        self.has_none("content_features")

    def has_none(self, what: str) -> NoReturn:
        """Raises the error for a property that the family does not have (C2A110)."""
        raise UnsupportedError(
            "C2A110", f"{type(self).__name__} has no {what}", "Define it in the class, or pass the operator as Dense."
        )


def moved_to(value: Value, device: torch.device | str) -> Value:
    """Moves all tensors of an operator, a basis, or a field of either to `device`."""
    # If nothing has to move, `value` itself is returned, so a large operator is not copied.
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device)
    elif isinstance(value, tuple):
        moved = tuple(moved_to(part, device) for part in value)
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
    """Sides of the output grid of `operator`, if its input grid has these `sides`."""
    raise without_rule("output_sides", operator)


@singledispatch
def as_matrix(operator: object, sides: Sides) -> Tensor:
    """The token-mixing matrices on a grid: float64, on the CPU, (terms, queries, keys)."""
    raise without_rule("as_matrix", operator)


@singledispatch
def apply(operator: object, image: Tensor, sides: Sides) -> Tensor:
    """`P_k x` for every k and an `image` x (..., *sides): (terms, ..., *queries).

    A family without a rule is applied as its matrix.
    """
    matrix, queries = as_matrix(operator, sides).to(image), output_sides(operator, sides)
    return torch.einsum("...k,tqk->t...q", image.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def combine(operator: object, images: Tensor, sides: Sides) -> Tensor:
    """`sum_k P_k x_k` for images (terms, ..., *sides): (..., *queries).

    A family without a rule is applied as its matrix.
    """
    matrix, queries = as_matrix(operator, sides).to(images), output_sides(operator, sides)
    return torch.einsum("t...k,tqk->...q", images.flatten(-len(sides)), matrix).unflatten(-1, queries)


@singledispatch
def offsets(operator: Operator) -> tuple[Offset, ...]:
    """The offset of every operator's target: a shift's own offset, or the pixel nearest to a head's finite centre.

    Raises:
        UnsupportedError: the family has no targets that are the same for every query (C2A110).
    """
    if operator.centers is None:
        raise without_rule("offsets", operator)
    return tuple(tuple(round(x) for x in center) for center in operator.centers.tolist())
