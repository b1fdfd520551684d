"""Rewrites: one rule for each operator, which gives the term that stands for all ways of writing it.

Every rule is an identity of real numbers, and of computed ones up to the order of a sum; the tests hold each against
random inputs.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from conv2attn.equality.context.terms import Call, Term, Value, axes_from_front, exponent, fits_a_float, sides

Rewrite = Callable[[Call], "Term | tuple[Term, ...] | None"]
REWRITES: dict[str, Rewrite] = {}


def rule(*names: str) -> Callable[[Rewrite], Rewrite]:
    """Registers the rule of some operators of torch; where it gives None, a call is its own term."""

    def register(function: Rewrite) -> Rewrite:
        REWRITES.update({f"aten::{name}": function for name in names})
        return function

    return register


# Nothing is computed.


@rule("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "positive")
def same(call: Call) -> Term:
    """Copies, and layouts in memory."""
    return call.first.term


@rule("to", "_to_copy", "type_as")
def cast(call: Call) -> Term:
    """A cast to the own dtype is none."""
    tensor = call.first
    same_place = (tensor.fake.dtype, tensor.fake.device) == (call.made.dtype, call.made.device)
    return tensor.term if same_place else call.term("cast", tensor, str(call.made.dtype), str(call.made.device))


@rule("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(call: Call) -> Term | None:
    """Evaluation leaves nothing out."""
    return call.first.term if call["train"] is False else None


# Numbers are moved.


@rule(
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "ravel"
)
def reshaped(call: Call) -> Term:
    """A tensor in another shape, row-major."""
    return in_shape(call, call.first.term, call.first.shape, call.shape)


def in_shape(call: Call, term: Term, before: Sequence[Any], after: Sequence[Any]) -> Term:
    """A term in another shape; one after the other are the last alone."""
    if term.operator == "reshape":
        term, before = term.arguments[0], term.arguments[1]
    return term if tuple(before) == tuple(after) else call.term("reshape", term, tuple(before), tuple(after))


@rule("permute", "transpose", "t", "numpy_T", "mT", "movedim", "moveaxis", "swapaxes", "swapdims")
def permuted(call: Call) -> Term:
    """Axes in another order, found on a tensor whose sides are their numbers."""
    operator = getattr(torch.ops.aten, call.name.removeprefix("aten::"))
    _, *rest = call.arguments.values()
    moved = operator(torch.empty(tuple(range(call.first.rank)), device="meta"), *rest)
    return in_order(call, call.first.term, list(moved.shape))


def in_order(call: Call, term: Term, order: Sequence[int]) -> Term:
    """A term with its axes in another order; one after the other are one."""
    if term.operator == "permute":
        term, order = term.arguments[0], [term.arguments[1][axis] for axis in order]
    return term if list(order) == list(range(len(order))) else call.term("permute", term, tuple(order))


def piece(call: Call, tensor: Value, axis: int, start: Any, length: Any, step: int = 1) -> Term:
    """Every `step`-th of the places along an axis."""
    whole = (start, step) == (0, 1) and call.size(length) == tensor.shape[axis]
    return tensor.term if whole else call.term("piece", tensor, axis, start, length, step)


def from_front(place: Any, side: Any) -> Any:
    """A place along an axis, counted from the front."""
    return 0 if place is None else place + side if isinstance(place, int) and place < 0 else place


@rule("slice")
def _(call: Call) -> Term:
    tensor, axis = call.first, call["dim"] % call.first.rank
    start = from_front(call["start"], tensor.fake.shape[axis])
    return piece(call, tensor, axis, start, call.made.shape[axis], call["step"])


@rule("narrow")
def _(call: Call) -> Term:
    axis = call["dim"] % call.first.rank
    return piece(call, call.first, axis, from_front(call["start"], call.first.fake.shape[axis]), call["length"])


@rule("select")
def _(call: Call) -> Term:
    return place_along(call, call["dim"] % call.first.rank, call["index"])


def place_along(call: Call, axis: int, index: Any) -> Term:
    """One place along an axis, which goes."""
    tensor = call.first
    term = piece(call, tensor, axis, from_front(index, tensor.fake.shape[axis]), 1)
    one = tuple(1 if each == axis else side for each, side in enumerate(tensor.shape))
    return in_shape(call, term, one, sides(tensor.shape, [axis]))


@rule("chunk", "split", "split_with_sizes", "unsafe_chunk", "unsafe_split")
def _(call: Call) -> tuple[Term, ...]:
    axis = (call["dim"] or 0) % call.first.rank
    lengths = [each.shape[axis] for each in call.made]
    starts = itertools.accumulate(lengths[:-1], initial=0)
    return tuple(piece(call, call.first, axis, *place) for place in zip(starts, lengths, strict=True))


@rule("unbind")
def _(call: Call) -> tuple[Term, ...]:
    return tuple(place_along(call, call["dim"] % call.first.rank, index) for index in range(len(call.made)))


@rule("cat", "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack")
def _(call: Call) -> Term | None:
    tensors = call["tensors"]
    if call.name.endswith("stack") and any(each.rank < 3 for each in tensors):
        return None
    axis = {"vstack": 0, "dstack": 2}.get(call.name.removeprefix("aten::"), 1 if call["dim"] is None else call["dim"])
    if not isinstance(axis, int):
        return None
    terms = [each.term for each in tensors]  # of which torch leaves out empty vectors
    return terms[0] if len(terms) == 1 else call.term("cat", terms, axis % call.made.ndim)


@rule("stack")
def _(call: Call) -> Term:
    tensors, axis = call["tensors"], call["dim"] % (call["tensors"][0].rank + 1)
    shape = tensors[0].shape
    terms = [in_shape(call, each.term, shape, (*shape[:axis], 1, *shape[axis:])) for each in tensors]
    return terms[0] if len(terms) == 1 else call.term("cat", terms, axis)


@rule("as_strided")
def _(call: Call) -> Term:
    """Numbers at places in memory, which the layout of the tensor decides."""
    layout = call.first.fake.stride(), (call.first.fake.storage_offset(),)
    return call.term(call.name, *call.arguments.values(), *layout)


@rule("expand", "expand_as", "broadcast_to")
def _(call: Call) -> Term:
    return call.first.term if call.first.shape == call.shape else call.term("expand", call.first, call.shape)


@rule("pad", "constant_pad_nd", *(f"re{kind}_pad{n}d" for kind in ("flection", "plication") for n in (1, 2, 3)))
def _(call: Call) -> Term:
    """Around the image stands a constant, or a copy of its pixels."""
    mode = {"refl": "reflect", "repl": "replicate"}.get(call.name[6:10], call["mode"] or "constant")
    amounts = list(call["padding"] or call["pad"])
    while amounts and amounts[-2:] == [0, 0]:
        amounts = amounts[:-2]
    number = 0.0 if call["value"] is None or mode != "constant" else call["value"]
    number = float(number) if fits_a_float(number) else number
    return call.term("pad", call.first, amounts, mode, number) if amounts else call.first.term


# Numbers are computed.


def scalar(call: Call, item: Any) -> Any:
    """A number beside a floating-point tensor is a float."""
    return float(item) if fits_a_float(item) and call.made.is_floating_point() else item


def sorted_terms(call: Call, operator: str, *pair: Any) -> Term:
    """An operator whose two arguments may change places; a number comes last."""
    terms = [each for each in pair if isinstance(each, Value)]
    numbers = [scalar(call, each) for each in pair if not isinstance(each, Value)]
    return call.term(operator, *sorted((each.term for each in terms), key=lambda term: term.number), *numbers)


@rule("eq", "ne", "logical_and", "logical_or", "logical_xor")
def _(call: Call) -> Term:
    return sorted_terms(call, call.name, call.first, call["other"])


@rule("maximum", "minimum")
def _(call: Call) -> Term | None:
    """The larger of a tensor and of a constant that is one number is a clamp; of two zeros it may be either."""
    first, other = call.first, call["other"]
    for x, limit in ((first, other), (other, first)):
        number = only_number(call, limit)
        alike = {x.fake.dtype, limit.fake.dtype} == {call.made.dtype} and x.shape == call.shape
        if number and x.floating and alike:
            return clamped(call, x, *((number, math.inf) if call.name == "aten::maximum" else (-math.inf, number)))
    return None


def only_number(call: Call, value: Value) -> float | None:
    """The number that all entries of a constant are; else None."""
    tensor = call.terms.constants.get(value.term)
    full = value.term.arguments[1] if value.term.operator == "full" else None
    if isinstance(full, tuple) and full[0] == "float":
        number = float(full[1])
        return None if math.isnan(number) else number
    if tensor is None or not tensor.numel() or not value.floating:
        return None
    first = tensor.flatten()[0]
    alike = (tensor == first) & (tensor.signbit() == first.signbit())
    return float(first) if bool(alike.all()) else None


@rule("add")
def add(call: Call) -> Term | None:
    """A sum; one of a product with a matrix and a vector is a linear layer."""
    first, other, alpha = call.first, call["other"], call["alpha"]
    if alpha not in (None, 1):
        return None
    for product, bias in ((first, other), (other, first)):
        if isinstance(product, Value) and isinstance(bias, Value) and product.term.operator == "linear":
            x, weight, own_bias = product.term.arguments
            if not isinstance(own_bias, Term) and bias.rank == 1 and bias.shape == product.shape[-1:]:
                return call.term("linear", x, weight, bias)
    return sorted_terms(call, "add", first, other)


@rule("sub", "subtract", "rsub")
def _(call: Call) -> Term | None:
    first, other, alpha = call.first, call["other"], call["alpha"]
    if alpha not in (None, 1):
        return None
    if call.name == "aten::rsub":
        return call.term("subtract", scalar(call, other), first)
    if fits_a_float(other) and call.made.is_floating_point():
        positive = other == 0 and math.copysign(1, other) == 1  # x - -0.0 has another sign where x is -0.0
        return first.term if positive else call.term("add", first, -float(other))
    return call.term("subtract", first, other)


@rule("mul", "multiply")
def multiplied(call: Call) -> Term:
    """A product; `x sigmoid(x)` is silu."""
    first, other = call.first, call["other"]
    if fits_a_float(other):
        return times_number(call, first, other)
    if isinstance(other, Value):
        for x, gate in ((first, other), (other, first)):
            if gate.term.operator == "aten::sigmoid" and gate.term.arguments[0] is x.term:
                return call.term("aten::silu", x)
    return sorted_terms(call, "multiply", first, other)


def times_number(call: Call, tensor: Value, factor: float) -> Term:
    """A product with a number, if it is not 1."""
    if factor == 1 and tensor.fake.dtype == call.made.dtype:
        return tensor.term
    return call.term("multiply", tensor, scalar(call, factor))


@rule("neg", "negative")
def _(call: Call) -> Term:
    return times_number(call, call.first, -1)


@rule("div", "divide", "true_divide")
def _(call: Call) -> Term | None:
    first, other = call.first, call["other"]
    if call["rounding_mode"] is not None:
        return None
    if fits_a_float(other) and exponent(float(other)) and first.floating:
        return times_number(call, first, 1 / other)
    return call.term("divide", first, scalar(call, other))


@rule("square")
def _(call: Call) -> Term:
    return call.term("multiply", call.first, call.first)


@rule("pow")
def _(call: Call) -> Term | None:
    power = call["exponent"]
    if not fits_a_float(power) or not isinstance(call["self"], Value) or not call["self"].floating:
        return None
    powers = {1: call.first.term, 2: call.term("multiply", call.first, call.first)}
    return powers.get(power)


@rule("relu", "relu6", "clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def clamp(call: Call) -> Term | None:
    """Between two numbers, of which either may be infinite."""
    low, high = {"aten::relu": (0.0, None), "aten::relu6": (0.0, 6.0)}.get(call.name, (call["min"], call["max"]))
    if call.name == "aten::hardtanh":
        low, high = call["min_val"], call["max_val"]
    if not call.first.floating or not all(each is None or type(each) in (int, float) for each in (low, high)):
        return None
    limits = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    return None if any(map(math.isnan, limits)) else clamped(call, call.first, *limits)


def clamped(call: Call, tensor: Value, low: float, high: float) -> Term:
    """Numbers between two limits, of which either may be infinite; one after the other are one if these overlap."""
    term = tensor.term
    if term.operator == "clamp":
        first = [float(number) for _, number in term.arguments[1:]]
        if max(low, first[0]) <= min(high, first[1]):
            term, low, high = term.arguments[0], max(low, first[0]), min(high, first[1])
    return call.term("clamp", term, low, high)


@rule("mean", "sum", "amax", "amin")
def reduced(call: Call) -> Term | None:
    """Over axes counted from the front; the axes that are kept are only a shape."""
    if call["dtype"] not in (None, call.first.fake.dtype):
        return None
    return over(call, call.name.removeprefix("aten::"), axes_from_front(call["dim"], call.first.rank))


def over(call: Call, operator: str, axes: tuple[int, ...]) -> Term:
    """A reduction over some axes, in the shape that the call returns."""
    return in_shape(call, call.term(operator, call.first, axes), sides(call.first.shape, axes), call.shape)


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _(call: Call) -> Term | None:
    """To a grid of one pixel: the mean."""
    axes = int(call.name[-2])
    if set(call.shape[-axes:]) != {1}:
        return call.term(call.name, call.first, call.shape)
    return over(call, "mean", tuple(range(call.first.rank - axes, call.first.rank)))


@rule(*(name for n in (1, 2, 3) for name in (f"avg_pool{n}d", f"max_pool{n}d", f"max_pool{n}d_with_indices")))
def pool(call: Call) -> Term | tuple[Term, ...]:
    """A window in numbers for each axis, its stride filled in."""
    _, kernel, *_ = call.arguments.values()
    axes = int(call.name.partition("pool")[2][0])
    rest = {name: item for name, item in call.arguments.items() if name not in ("self", "input", "kernel_size")}
    rest["stride"] = rest.get("stride") or kernel
    same = [each_axis(item, axes) if isinstance(item, list) else item for item in rest.values()]
    term = call.term(call.name.removesuffix("_with_indices"), call.first, each_axis(kernel, axes), *same)
    return (term, call.term("places", term)) if call.name.endswith("indices") else term


def each_axis(numbers: Any, axes: int) -> tuple[Any, ...]:
    """One number for each axis."""
    listed = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
    return tuple(listed * axes if len(listed) == 1 else listed)


@rule("linear")
def _(call: Call) -> Term:
    return call.term("linear", call.first, call["weight"], call["bias"])


@rule("matmul", "mm")
def product(call: Call) -> Term | None:
    """A product with a matrix on the right is a linear layer with the transposed matrix."""
    first, other = call.first, call["other"] or call["mat2"]
    if other.rank == 2 <= first.rank:
        return call.term("linear", first, in_order(call, other.term, (1, 0)), None)
    return call.term("product", first, other) if first.rank == other.rank > 2 else None


@rule("einsum")
def einsum(call: Call) -> Term | None:
    """A sum over one letter of two tensors is a product of matrices; of which one is shared, a linear layer."""
    written, _, out = call["equation"].replace(" ", "").partition("->")
    names, tensors = written.split(","), call["tensors"]
    if len(names) != 2 or "." in written or any(len({*each}) < len(each) for each in (*names, out)) or not out:
        return None
    pairs = zip(names, tensors, strict=True)
    (left, x), (right, y) = sorted(pairs, key=lambda pair: (-len(pair[0]), sorted(map(out.find, pair[0]))))
    batch = [each for each in out if each in left and each in right]
    rows, columns = ([each for each in out if each in side and each not in batch] for side in (left, right))
    summed = [each for each in left if each in right and each not in out]
    if len(summed) != 1 or len(columns) != 1 or {*left, *right} != {*out, *summed}:
        return None

    def turned(tensor: Value, letters: str, *order: str) -> Term:
        return in_order(call, tensor.term, [letters.index(each) for each in order])

    rows_first = turned(x, left, *batch, *rows, *summed)
    if not batch:
        term = call.term("linear", rows_first, turned(y, right, *columns, *summed), None)
    elif len(rows) == 1:
        term = call.term("product", rows_first, turned(y, right, *batch, *summed, *columns))
    else:
        return None
    letters = [*batch, *rows, *columns]
    return in_order(call, term, [letters.index(each) for each in out])


@rule("addmm")
def _(call: Call) -> Term | None:
    bias = call["self"]
    if (call["alpha"], call["beta"]) != (1, 1) or bias.rank != 1 or bias.shape != call.shape[-1:]:
        return None
    return call.term("linear", call["mat1"], in_order(call, call["mat2"].term, (1, 0)), bias)


@rule("batch_norm", "_native_batch_norm_legit_no_training")
def _(call: Call) -> Term | tuple[Term, ...] | None:
    """Evaluation reads no momentum."""
    if call["training"]:
        return None
    numbers = (call[name] for name in ("weight", "bias", "running_mean", "running_var", "eps"))
    term = call.term("batch_norm", call.first, *numbers)
    return term if call.name == "aten::batch_norm" else (term, *(call.term("statistics", term, n) for n in (1, 2)))


@rule("layer_norm", "group_norm")
def _(call: Call) -> Term:
    return call.term(call.name, *(item for name, item in call.arguments.items() if not name.startswith("cudnn")))


@rule("softmax", "log_softmax")
def _(call: Call) -> Term | None:
    if call["dtype"] not in (None, call.first.fake.dtype):
        return None
    return call.term(call.name, call.first, call["dim"] % call.first.rank)


@rule("zeros", "ones", "full", *(f"{kind}_like" for kind in ("zeros", "ones", "full")))
@rule(*(f"new_{kind}" for kind in ("zeros", "ones", "full")))
def _(call: Call) -> Term:
    """A tensor of one number."""
    number = 0 if "zeros" in call.name else 1 if "ones" in call.name else call["fill_value"]
    return call.term("full", call.shape, scalar(call, number), str(call.made.dtype), str(call.made.device))
