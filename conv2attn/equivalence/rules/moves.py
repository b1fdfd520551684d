"""Functions that move, repeat or leave out numbers, and do no arithmetic: bounds move as the numbers do."""

from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import format_of
from conv2attn.equivalence.domain import Carried, Stop
from conv2attn.equivalence.rules.registry import Call, replaced, rule, stored, tensors_in

MOVING = (
    *("flatten", "reshape", "view", "_unsafe_view", "reshape_as", "view_as", "unflatten", "squeeze", "unsqueeze"),
    *("permute", "transpose", "movedim", "moveaxis", "swapaxes", "t", "numpy_T", "mT", "adjoint", "ravel"),
    *("chunk", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk", "unsafe_split"),
    *("narrow", "select", "slice", "index_select", "index", "gather", "take_along_dim", "diagonal", "unfold"),
    *("stack", "expand", "expand_as", "repeat", "tile", "repeat_interleave", "broadcast_to", "flip", "roll"),
    *("rot90", "triu", "tril", "where", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("native_channel_shuffle", "hstack", "vstack", "column_stack", "atleast_2d", "atleast_3d"),
)


@rule(*MOVING)
def _(call: Call) -> Carried | list[Carried]:
    """One function for the sizes and the errors; the numbers that it moves do not depend on their values."""
    given = dict(call.arguments)
    if any(isinstance(each, torch.dtype) for each in given.values()):
        raise Stop(f"{call.name} as another dtype")
    if any(isinstance(each, float) and {each} != {*stored(each, call.dtype)} for each in given.values()):
        raise Stop(f"{call.name} of a number that is rounded")
    moved = []
    for part in ("size", "error"):

        def expanded(tensor: Tensor, part: str = part) -> Tensor:
            return getattr(call.bounds(tensor), part).expand(tensor.shape).contiguous()

        moved.append(call.function(**replaced(given, expanded)))
    sizes, errors = moved
    if isinstance(sizes, Tensor):
        return Carried(sizes.abs(), errors.abs())
    return [Carried(size, error) for size, error in zip(sizes, errors, strict=True)]


@rule("cat", "concat", "concatenate")
def _(call: Call) -> Carried:
    """Joined along one axis; along the others bounds stay as short as they are."""
    tensors = list(tensors_in(call.argument("tensors")))
    axis = call.argument("dim", 0)
    if not isinstance(axis, int):
        raise Stop("cat along an axis that is no number")
    bounds = [(tensor.shape, call.bounds(tensor)) for tensor in tensors if tensor.numel()]

    def joined(part: str) -> Tensor:
        parts = [(shape, getattr(each, part)) for shape, each in bounds]
        common = [max(sides) for sides in zip(*(each.shape for _, each in parts), strict=True)]
        return torch.cat([each.expand(along(common, axis, shape[axis])) for shape, each in parts], axis)

    return Carried(joined("size"), joined("error"))


def along(shape: Sequence[int], axis: int, side: int) -> list[int]:
    """`shape` with another side along `axis`."""
    sides = list(shape)
    sides[axis] = side
    return sides


@rule("clone", "detach", "contiguous", "positive", "alias", "lift_fresh_copy")
def _(call: Call) -> Carried:
    return call.given


@rule("to", "_to_copy", "type_as")
def _(call: Call) -> Carried:
    """A cast rounds once, unless the numbers of the one format are numbers of the other."""
    before, after = call.tensor.dtype, call.dtype
    if before not in FORMATS or after not in FORMATS:
        raise Stop(f"a cast from {before} to {after}")
    old, new = format_of(FORMATS[before]), format_of(FORMATS[after])
    kept = old.precision <= new.precision and old.smallest_subnormal >= new.smallest_subnormal
    return call.given.rounded(0 if kept else 1, after)
