"""Captures the attention of any model in a run: every softmax over keys, named by its module."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, as_inputs, call_network, check_network, running
from conv2attn.errors import UsageError
from conv2attn.networks.positions import ATTENDS, Unread
from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.watch import Watch
from conv2attn.networks.values import head_count

Captured = Tensor | Unread


def capture(
    network: nn.Module,
    example_input: Tensor | tuple[Any, ...] | Mapping[str, Any],
    *,
    heads: int | None = None,
    only: Patterns = (),
    skip: Patterns = (),
) -> dict[str, Captured]:
    """The attention of each module of `network` on `example_input`: (batch, heads, queries, keys).

    Calls are joined as a batch. A module that attends twice in one forward appears a second time as `name#2`. A module
    appears as an `Unread`, with the reason, if its class is named after attention but no softmax was observed, or if
    heads and images share an axis and their numbers are unknown.

    It captures scaled_dot_product_attention, multi_head_attention_forward and flex_attention; softmaxes over the last
    axis of a tensor with at least three axes, or over the columns of square matrices; a square softmax of two axes that
    multiplies values (one head); the layers of this project; and mixtures of softmaxes that multiply values. The
    network runs once, without gradients, in evaluation mode, and its modes are restored.

    Args:
        example_input: a tensor, positional or named arguments; or (channels, *sides), a size for one image of noise.
        heads: the number of heads, if neither a module nor its input determines it.
        only, skip: patterns of names to keep (by default all), and to leave out.
    Raises:
        UsageError: nothing attended (C2A501), no layer has such a name (C2A008), the network does not run (C2A009), or
            an argument has a wrong type (C2A006).
    Examples:
        >>> import conv2attn, torch
        >>> block = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention = conv2attn.capture(block, torch.randn(1, 5, 8))
        >>> {name: tuple(maps.shape) for name, maps in attention.items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    check_network(network)
    inputs = as_inputs(network, example_input)
    selection = Selection.of(only, skip)
    pieces, names = defaultdict[str, list[Captured]](list), dict[str, None]()

    def see(attended: Attended, place: Running) -> None:
        names.setdefault(attended.name)
        if selection.wants(attended.name):
            pieces[attended.name].append(by_convention(attended, place, heads))
        attended.query = attended.key = attended.value = None

    with running(network, inputs):
        Watch(network, see, blind=selection.wants, gates=True).run(lambda: call_network(network, inputs))
    layers = chosen(network, {name: joined_calls(each) for name, each in pieces.items()}, names, selection)
    return {name.replace("(root)", ""): each for name, each in layers.items()}


def by_convention(attended: Attended, place: Running, heads: int | None = None) -> Captured:
    """A copy of attention (..., queries, keys) as (images, heads, queries, keys), by its axes and its module."""
    merged = with_one_query_axis(attended.attention.detach().clone())
    return split_heads(merged, place.module, batch_of(place, merged), heads)


def chosen(
    network: nn.Module, attention: Mapping[str, Captured], names: Iterable[str], selection: Selection
) -> dict[str, Captured]:
    """The attention of the selected layers, and of layers whose attention was not observed, in module order.

    Raises:
        UsageError: nothing attended (C2A501), or a pattern fits no layer that attends (C2A008).
    """
    unobserved = unobserved_layers(network, names)
    every = [*names, *(name for name in unobserved if name not in attention)]
    if every:
        selection.check(sorted(every), "layer that attends")
    captured = {**{n: each for n, each in unobserved.items() if selection.wants(n)}, **attention}
    if not captured and every:
        raise UsageError("C2A501", "every layer that attends is skipped", "Leave one in.")
    if not captured:
        raise UsageError(
            "C2A501",
            f"{type(network).__name__} did not attend to anything on these inputs",
            "Pass inputs on which the model attends, or the attention itself as an array.",
        )
    order = {name or "(root)": place for place, (name, _) in enumerate(network.named_modules())}
    return dict(sorted(captured.items(), key=lambda item: order.get(item[0].split("#")[0], 0)))


def joined_calls(pieces: list[Captured]) -> Captured:
    """The attention of all calls of a module as one batch; an `Unread` if one call is unread or the grids differ.

    The list is emptied piece by piece, so that memory never holds attention twice.
    """
    tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
    if len(tensors) < len(pieces):
        return next(piece for piece in pieces if isinstance(piece, Unread))
    if len({piece.shape[1:] for piece in tensors}) > 1:
        return Unread(f"its calls attend to {len({piece.shape[1:] for piece in tensors})} different grids")
    if len(tensors) == 1:
        return tensors[0]
    whole, start = tensors[0].new_empty((sum(map(len, tensors)), *tensors[0].shape[1:])), 0
    pieces.clear()
    while tensors:
        piece = tensors.pop(0)
        whole[start : start + len(piece)] = piece
        start += len(piece)
    return whole


def batch_of(place: Running, attention: Tensor) -> int | None:
    """The number of images or windows on the first axis of attention.

    It is the length of the input's batch axis: the first axis, or the second if tokens come first.
    """
    first = place.first
    if first is None or first.ndim < 3:
        return None if first is None else 1
    sequence, batch = first.shape[:2]
    tokens_first = first.ndim == 3 and sequence == attention.shape[-2] != batch
    return int(batch) if tokens_first else int(sequence)


def with_one_query_axis(attention: Tensor) -> Tensor:
    """Merges the query axes (rows, columns) of attention (..., rows, columns, ..., keys) into one."""
    if attention.ndim < 5 or attention.shape[-1] == attention.shape[-2]:
        return attention
    sides = attention.shape
    pairs = [at for at in range(1, attention.ndim - 2) if sides[at] * sides[at + 1] == sides[-1]]
    return attention.flatten(pairs[0], pairs[0] + 1).movedim(pairs[0], -2) if len(pairs) == 1 else attention


def split_heads(attention: Tensor, module: nn.Module, batch: int | None, heads_argument: int | None) -> Captured:
    """Attention (..., queries, keys) as (images, heads, queries, keys); four axes are unchanged.

    The number of heads is `heads_argument`, or that of the module's attributes, or the first axis divided by the batch
    of its input; images come before heads on a shared axis.
    """
    if attention.ndim == 4:
        return attention
    count = math.prod(attention.shape[:-2])
    batch_heads = count // batch if batch and count % batch == 0 else None
    for heads in (heads_argument, head_count(module), batch_heads) if attention.ndim == 3 else ():
        if heads and count % heads == 0:
            return attention.reshape(-1, heads, *attention.shape[-2:])
    shape = "x".join(map(str, attention.shape))
    if attention.ndim > 4:
        return Unread(f"no reading of it replays, so the axis of heads in its {shape} numbers is unknown")
    return Unread(f"the number of heads in the {shape} numbers of its attention is unknown: pass heads= to capture")


def unobserved_layers(network: nn.Module, names: Iterable[str]) -> dict[str, Unread]:
    """The outermost modules with class names of attention but no softmax observed in or around them."""
    observed = {"" if name == "(root)" else name.split("#")[0] for name in names}
    silent: dict[str, Unread] = {}
    for name, module in network.named_modules():
        compiled = isinstance(module, torch.jit.ScriptModule)
        kind = module.original_name if compiled else type(module).__name__
        around = {name, ""} | {name[:at] for at, letter in enumerate(name) if letter == "."}
        below = any(each == name or not name or each.startswith(f"{name}.") for each in observed)
        if not ATTENDS.search(kind) or around & (observed | silent.keys()) or below:
            continue
        reason = "it is compiled by torch.jit" if compiled else "no softmax over keys was observed in it"
        silent[name or "(root)"] = Unread(f"{reason}, and a {kind} attends")
    return silent
