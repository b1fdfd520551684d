"""Attention by position alone, measured in runs of the layers themselves, whatever their classes are.

Products that change with the input (queries with keys, queries with a table) are set to zero. The remaining terms of
the scores, such as biases, masks and products of parameters, pass through the layer's softmax. If no such term remains,
the run is repeated for the first layer that attends, with absolute positions: the first tokens that the network makes
of its input, such as patches or words, are set to zero instead of the products.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import FAILURES, Selection, as_inputs, call_network, tensors_in
from conv2attn.errors import Conv2AttnError, UsageError, first_line
from conv2attn.networks.positions import PositionAttention, Unread, leading_note, windows_note
from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.double_precision import double_copy, precise
from conv2attn.networks.reading.perturbed import on_the_cpu
from conv2attn.networks.reading.phase import CaptureRun, read_network
from conv2attn.networks.reading.records import Read, Tokens
from conv2attn.networks.reading.responses import Call, different_calls, sums_of_run
from conv2attn.networks.reading.watch import Watch
from conv2attn.networks.specimens import IDS, main_input, specimen_of, specimen_size
from conv2attn.theory.basis import AttentionGrid, Sides, Sites
from conv2attn.torch_internals import tree_map_only

RELATIVE = "positions alone, in a run with every product that changes with the input set to zero"
ABSOLUTE = "absolute positions alone, in a run with the first tokens made of the input set to zero"
NO_TERM = (
    "its scores have no term of position alone: with products of content set to zero, also of "
    "queries with a table, all its unmasked weights are equal"
)
DEPENDS = "its weights depend on the image also outside the products of queries and keys"
AFTER_FIRST = "content reaches it: only the first layer sees positions alone"
SHIFTED = "shifted windows cut by the edge of the image also mask pixels, and are left out"
OF_THEIR_OWN = "its windows attend by different positions"
NO_ORDER = "the tokens of a window are in no order of rows and columns"
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
FIRST = {F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d, F.linear, F.embedding}
"""Functions that make the first tokens of an input."""
SIDE = 224
"""Side of the images for a network that does not state their size."""
SPREAD = 2.0
MOST_LEADING = 16
"""Most class tokens and registers of a layer."""
EVEN = 1e-6
"""Weights with a smaller relative difference count as equal, since some networks compute softmaxes in float32."""
LEAST = 1e-30
"""Smaller weights count as masked; float32 still represents this one."""
SAME = 1e-9
"""Weights of two images that differ by less count as equal in float64."""

Known = PositionAttention | Unread
Sums = dict[int, Tensor]


@on_the_cpu
def attention_by_run(network: nn.Module, sides: Sides | None = None, inputs: Any = None) -> dict[str, Known]:
    """The attention by position alone of each layer that attends, or the reason why it has none.

    Args:
        sides: sides of the token grid of at least one layer, if the caller passed them.
        inputs: the network's inputs; by default random numbers of a size that fits.
    Raises:
        UsageError: no input is known on which the network runs with such a grid (C2A503), or nothing attends (C2A501).
    """
    kind, failure = type(network).__name__, ""
    try:
        double = double_copy(network, share=False)
    except FAILURES as error:
        reason = f"{kind} cannot be copied in float64 ({first_line(error)})"
        raise UsageError("C2A503", reason, "Pass --inputs.") from error
    # Some networks compute their softmax in float32, whatever the dtype of their parameters is. Four units of float32
    # are more than float64 loses.
    dtype = next((each.dtype for each in network.parameters() if each.is_floating_point()), torch.float32)
    roundoff = torch.float32 if dtype == torch.float64 else dtype
    # Sizes are guesses: if the network fails on one, the next is tried.
    for first, second in pairs_of_inputs(network, sides, inputs):
        try:
            records = known_of(double, first, second, sides, roundoff)
        except (Conv2AttnError, *FAILURES) as error:  # the network does not run on this size
            if isinstance(error, Conv2AttnError) and error.code == "C2A501":
                raise
            failure = failure or f" ({first_line(error)})"
            continue
        if records:
            return records
    of_sides = "" if sides is None else f" and has {'x'.join(map(str, sides))} tokens"
    raise UsageError(
        "C2A503", f"no input is known on which {kind} runs{of_sides}{failure}", "Pass the --grid of its tokens."
    )


def pairs_of_inputs(network: nn.Module, sides: Sides | None, inputs: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of inputs of one size with different contents."""
    if inputs is not None:
        first = tree_map_only(Tensor, precise, as_inputs(network, inputs))
        main = next((each for each in tensors_in(first) if each.ndim > 1), None)

        def another(tensor: Tensor) -> Tensor:
            return tensor if tensor is not main else (tensor / 2 if tensor.is_floating_point() else tensor).flip(-1)

        yield first, tree_map_only(Tensor, another, first)
        return
    like = torch.zeros((), dtype=torch.float64)
    for size in dict.fromkeys(sizes_of_inputs(network, sides)):
        first, second = (specimen_of(network, size, SPREAD, seed, like).inputs for seed in (3, 4))
        yield first, second


def sizes_of_inputs(network: nn.Module, sides: Sides | None) -> Iterator[tuple[int, ...]]:
    """Candidate input sizes, without the batch: from attributes or libraries, from grid times strides, or common."""
    layers = [each for each in network.modules() if isinstance(each, CONVOLUTIONS)]
    channels = layers[0].in_channels if layers else 3
    if main_input(network) == IDS:
        config: Any = getattr(network, "config", None)
        count = sides[0] if sides else getattr(config, "max_position_embeddings", None)
        yield from [(count,)] if isinstance(count, int) and count > 0 else []
    if size := specimen_size(network):
        yield size
    if sides is None:
        yield from [(channels, *[SIDE] * 2)] if layers and len(layers[0].kernel_size) == 2 else []
        return
    step = tuple(1 for _ in sides)
    for layer in layers:
        if len(layer.kernel_size) == len(sides):
            step = tuple(each * stride for each, stride in zip(step, layer.stride, strict=True))
            yield channels, *(side * each for side, each in zip(sides, step, strict=True))
    width = next((each.in_features for each in network.modules() if isinstance(each, nn.Linear)), None)
    if width is not None:  # the input may be tokens
        yield prod(sides), width
        yield *sides, width
        yield width, *sides


def known_of(double: nn.Module, first: Any, second: Any, sides: Sides | None, dtype: torch.dtype) -> dict[str, Known]:
    """The results per layer from runs on two inputs; empty if no layer has a grid of these sides."""
    order, *sums = sums_of(double, first)
    _, *others = sums_of(double, second)
    changing, stem = map(changed, sums, others)
    if not order:
        raise UsageError("C2A501", f"{type(double).__name__} did not attend to anything", "Pass other inputs.")

    def zeroed(number: int, product: Tensor) -> Tensor:
        return torch.zeros_like(product) if number in changing else product

    # A product that differs between two images depends on content. Products of parameters, such as biases that a layer
    # computes from coordinates, are equal to the last bit, and are kept.
    relative = CaptureRun(marked=zeroed)
    absolute = CaptureRun(call=lambda each, inputs: without(min(stem, default=0), each, inputs))
    same, conclusions, fitting = agreeing(double, relative, first, second), dict[str, Known](), False
    reads = read_network(double, first, Selection(()))
    for read in reads.make(reads.names, relative):
        if isinstance(read.attention, nn.Module):  # layers of this project are read from their parameters
            continue
        fitting = fitting or sides is None or fits(read, sides)
        conclusions[read.name] = concluded(read, sides, dtype, RELATIVE, read.name in same)
    if not fitting:
        return {}
    lead = order[0]
    if stem and conclusions.get(lead) == Unread(NO_TERM) and lead in agreeing(double, absolute, first, second):
        (read,) = reads.make([lead], absolute)
        alone = {lead: concluded(read, sides, dtype, ABSOLUTE, True)}
        if isinstance(alone[lead], PositionAttention):
            conclusions |= {
                name: Unread(AFTER_FIRST) for name, each in conclusions.items() if each == Unread(NO_TERM)
            } | alone
    return conclusions


class Numbered(TorchFunctionMode):
    """Numbers the results of functions that make the first tokens, and keeps their sums or sets one of them to zero."""

    def __init__(self, zero: int | None = None):
        super().__init__()
        self.zero, self.sums = zero, dict[int, Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`."""
        result = func(*args, **(kwargs or {}))
        if func not in FIRST:
            return result
        number = len(self.sums)
        self.sums[number] = result.detach().double().sum(-1)
        return torch.zeros_like(result) if number == self.zero else result


def without(number: int, network: nn.Module, inputs: Any) -> Any:
    """The result of a call in which the first tokens with this number are zero."""
    with Numbered(number):
        return call_network(network, inputs)


def sums_of(network: nn.Module, inputs: Any) -> tuple[list[str], Sums, Sums]:
    """The attentions of a run in order, and the sums of its matrix products, and of what may be the first tokens."""
    order, sums, firsts = list[str](), Sums(), Numbered()

    def note(number: int, product: Tensor) -> Tensor:
        sums[number] = product.sum((-1, -2))
        return product

    def see(attended: Attended, _: Running) -> None:
        order.append(attended.name)

    def call() -> Any:
        with firsts:
            return call_network(network, inputs)

    Watch(network, see, marked=note).run(call)
    return order, sums, firsts.sums


def changed(first: Sums, second: Sums) -> set[int]:
    """The numbers of the tensors that differ between two inputs."""
    return {number for number, each in first.items() if number not in second or not torch.equal(each, second[number])}


def agreeing(network: nn.Module, capture_run: CaptureRun, first: Any, second: Any) -> set[str]:
    """The names of the attentions that are equal on two inputs."""

    def sums(inputs: Any) -> dict[Call, Tensor]:
        call = partial(capture_run.call, network, inputs)
        return sums_of_run(network, lambda watch: watch.run(call), capture_run.marked)

    one, other = sums(first), sums(second)
    different = different_calls(one, other, partial(torch.allclose, rtol=SAME, atol=SAME))
    return {name for name, _ in one} - {name for name, _ in different}


def fits(read: Read, sides: Sides) -> bool:
    """Whether a layer attends to the tokens of a grid, plus at most `MOST_LEADING` others."""
    shape = getattr(read.attention, "shape", (0,))
    return 0 <= shape[-1] - prod(sides) <= MOST_LEADING


def concluded(read: Read, sides: Sides | None, dtype: torch.dtype, how: str, same: bool) -> Known:
    """The layer's attention by position alone, or the reason why it has none; `same` says whether two inputs agree."""
    attention, tokens = read.attention, read.tokens
    if isinstance(attention, Unread) or tokens is None:
        return Unread(read.unread or read.unplaced)
    if not same:
        return Unread(DEPENDS)
    if sides is not None and tokens.sides == (prod(sides),) and tokens.windows is None:  # a flattened grid
        tokens = Tokens(sides, tokens.leading, sites=tokens.sites)
    notes = leading_note(tokens.leading)
    if tokens.windows is not None:
        if not tokens.sides:
            return Unread(NO_ORDER)
        # In shifted windows, a window cut by the edge of the image masks some pixels: its weights there are zero. Only
        # whole windows show the positions alone.
        whole = (attention > LEAST).flatten(1).sum(1)
        attention = attention[whole == whole.max()]
        notes = (windows_note(tokens.sides), *([SHIFTED] if len(attention) < len(whole) else []))
        if not torch.allclose(attention, attention[:1], rtol=0, atol=SAME):
            return Unread(OF_THEIR_OWN)
    if is_even(attention):
        return Unread(NO_TERM)
    grid = AttentionGrid(tokens.sides, tokens.sites or Sites.everywhere(len(tokens.sides)))
    weights = attention[0, :, attention.shape[2] - grid.shape[0] :].roll(-tokens.leading, -1)
    try:
        return PositionAttention(weights.log(), grid, dtype, how, notes=notes, extra=tokens.leading)
    except UsageError as error:
        return Unread(error.found)


def is_even(attention: Tensor) -> bool:
    """Whether weights (..., heads, queries, keys) are uniform over the unmasked keys, with one mask for all heads."""
    allowed = attention > LEAST
    masked = bool((allowed == allowed[:, :1]).all()) and bool((allowed.sum(-1) > 1).any())
    even = allowed.double() / allowed.sum(-1, keepdim=True)
    return masked and torch.allclose(attention, even, rtol=EVEN, atol=LEAST)
