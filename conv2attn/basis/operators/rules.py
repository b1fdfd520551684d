"""The questions that every family of operators `P_k` answers, each by one rule per family."""

from functools import singledispatch

from torch import Tensor

from conv2attn.basis.grid import Offset, Sides
from conv2attn.basis.operator import Operator
from conv2attn.errors import UnsupportedError


@singledispatch
def terms(operator: object) -> int:
    """Number of operators `P_k` in the family."""
    raise UnsupportedError(
        "C2A110",
        f"terms has no rule for {type(operator).__name__}",
        "Register a rule for terms, or pass the operator as Dense.",
    )


@singledispatch
def output_sides(operator: object, sides: Sides) -> Sides:
    """Sides of the grid that `operator` maps a grid with these `sides` to."""
    raise UnsupportedError(
        "C2A110",
        f"output_sides has no rule for {type(operator).__name__}",
        "Register a rule for output_sides, or pass the operator as Dense.",
    )


@singledispatch
def as_matrix(operator: object, sides: Sides) -> Tensor:
    """The token-mixing matrices on a grid: float64, (terms, queries, keys)."""
    raise UnsupportedError(
        "C2A110",
        f"as_matrix has no rule for {type(operator).__name__}",
        "Register a rule for as_matrix, or pass the operator as Dense.",
    )


@singledispatch
def apply(operator: object, image: Tensor, sides: Sides) -> Tensor:
    """Each `P_k` applied to `image` (..., *sides): (terms, ..., *queries); no matrix is built."""
    raise UnsupportedError(
        "C2A110",
        f"apply has no rule for {type(operator).__name__}",
        "Register a rule for apply, or pass the operator as Dense.",
    )


@singledispatch
def combine(operator: object, images: Tensor, sides: Sides) -> Tensor:
    """`sum_k P_k x_k` for images (terms, ..., *sides): (..., *queries); no matrix is built."""
    raise UnsupportedError(
        "C2A110",
        f"combine has no rule for {type(operator).__name__}",
        "Register a rule for combine, or pass the operator as Dense.",
    )


@singledispatch
def entries(operator: object, sides: Sides) -> int:
    """Multiplications that `apply` and `combine` spend on each channel of an image, over all terms."""
    raise UnsupportedError(
        "C2A110",
        f"entries has no rule for {type(operator).__name__}",
        "Register a rule for entries, or pass the operator as Dense.",
    )


@singledispatch
def offsets(operator: Operator) -> tuple[Offset, ...]:
    """The offset of the target of each operator: that of a shift, and the pixel nearest to the finite centre of a head.

    Raises:
        UnsupportedError: the family has no targets that are the same for every query (C2A110).
    """
    if operator.centers is None:
        raise UnsupportedError(
            "C2A110",
            f"offsets has no rule for {type(operator).__name__}",
            "Register a rule for offsets, or pass the operator as Dense.",
        )
    return tuple(tuple(round(x) for x in center) for center in operator.centers.tolist())
