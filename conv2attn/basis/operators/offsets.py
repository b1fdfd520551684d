"""Where the operators of a family read: the offset of the key with the largest entry of each."""

from functools import singledispatch

from torch import Tensor

from conv2attn.basis.grid import Offset
from conv2attn.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.basis.operators.quadratic import QuadraticSoftmax
from conv2attn.basis.operators.shift import Shift
from conv2attn.errors import UnsupportedError


@singledispatch
def offsets(operator: object) -> tuple[Offset, ...]:
    """The offset of the target of each operator: that of a shift, and the pixel nearest to the centre of a head.

    Raises:
        UnsupportedError: the family has no targets that are the same for every query (C2A110).
    """
    raise UnsupportedError("C2A110", f"offsets has no rule for {type(operator).__name__}")


@offsets.register
def _(operator: Shift) -> tuple[Offset, ...]:
    return operator.offsets


@offsets.register
def _(operator: QuadraticSoftmax) -> tuple[Offset, ...]:
    return pixels(operator.center)


@offsets.register
def _(operator: EnumeratedSoftmax) -> tuple[Offset, ...]:
    return pixels(operator.center)


@offsets.register
def _(operator: GeneralisedSoftmax) -> tuple[Offset, ...]:
    return pixels(operator.center)


def pixels(centers: Tensor) -> tuple[Offset, ...]:
    """The pixels nearest to finite centres (heads, axes)."""
    return tuple(tuple(round(x) for x in center) for center in centers.tolist())
