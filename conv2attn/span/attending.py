"""The layers of anything that a user passes as attention, as records: networks, layers and arrays.

A network is read as it runs, or by position alone.
"""

import math
from collections.abc import Mapping, Sequence, ValuesView
from typing import Any

import torch
from torch import nn

from conv2attn.arguments import FAILURES, Patterns, Selection, as_inputs, check_has_numbers, running
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks import attention_layers
from conv2attn.networks.positions import ATTENDS, LayerAttention, PositionAttention, Unread, position_attention
from conv2attn.networks.reading.by_position import attention_by_run
from conv2attn.networks.reading.phase import own_sides, read_network
from conv2attn.networks.reading.records import Read, Reads, Tokens
from conv2attn.networks.specimens import wanted_inputs
from conv2attn.span.grids import as_sides
from conv2attn.theory.basis import Sides

MOST_ZEROS = 2**24
"""Largest image of zeros, in numbers, that is run to find the grids of the layers of a network."""


def reads_of(
    model: Any,
    inputs: Any = None,
    grid: Sequence[int] | int | None = None,
    only: Patterns = (),
    position_only: bool = False,
) -> Reads:
    """The layers of a model that attend: captured on inputs, read by position alone, or already given as attention.

    Raises:
        UsageError: inputs beside what is attention already, or positions alone of what has no parameters (C2A004), or
            no layer of such a name (C2A008), or a network without numbers (C2A006), or one that does not run on the
            inputs (C2A009).
    """
    sides: Mapping[str, Sides] = {}
    if isinstance(model, Mapping) and any(getattr(each, "ndim", 2) == 1 for each in model.values()):
        remedy = "Load weights into their network, conv2attn.load(path, arch=...), and pass that; images are inputs."
        reason = f"{next(iter(model))} and others are no attention (heads, queries, keys)"
        raise UsageError("C2A006", reason, remedy)
    if not isinstance(model, nn.Module):
        check_attention(model, inputs, grid, position_only)
    else:
        check_has_numbers(model)
        if inputs is not None and not position_only:
            return read_network(model, inputs, Selection.of(only))
        if position_only or not isinstance(model, MultiHeadSelfAttention):
            model, sides = attention_by_position(model, grid, inputs)
    return as_reads(model, sides).only(only)


def check_images(attention: Any) -> None:
    """Refuses layers with different numbers of images, whose errors over images would be those of windows.

    Raises:
        UsageError: they are of different numbers of images (C2A502).
    """
    layers = attention.values() if isinstance(attention, Mapping) else attention
    # Four axes are images (or windows), heads, queries, keys. One run gives every layer as many images, so that other
    # numbers are windows of them, whose error is not that of independent images.
    several = layers if isinstance(layers, list | tuple | ValuesView) else ()
    counts = sorted({len(each) for each in several if getattr(each, "ndim", 0) == 4})
    if len(counts) > 1:
        many = " and ".join(map(str, counts))
        reason = f"layers have attention of {many} images, or of windows of images"
        raise UsageError("C2A502", reason, "Pass the model itself with --inputs, so that windows are told from images.")


def check_attention(attention: Any, inputs: Any, grid: Sequence[int] | int | None, position_only: bool) -> None:
    """Refuses what attention that is no network does not take.

    Raises:
        UsageError: inputs, or positions alone (C2A004), or another grid than that of its parameters (C2A503).
    """
    kind = f"an object of class {type(attention).__name__}"
    if position_only:
        remedy = "Pass a network, or leave out --position-only."
        raise UsageError("C2A004", f"{kind} has no parameters to read positions from", remedy)
    if inputs is not None:
        raise UsageError("C2A004", f"{kind} takes no inputs", "Leave them out.")
    keys = attention.grid.keys if isinstance(attention, PositionAttention) else None
    if keys is not None and as_sides(grid, len(keys)) not in (None, keys):
        own_grid = "x".join(map(str, keys))
        raise UsageError("C2A503", f"its parameters are those of a grid {own_grid}", "Leave out the grid.")


def attention_by_position(
    network: nn.Module, grid: Sequence[int] | int | None, inputs: Any
) -> tuple[Mapping[str, LayerAttention], Mapping[str, Sides]]:
    """What attends in a network by position alone, and the sides that reach its own layers.

    Layers of this project whose sides are known come last.
    """
    own = {n or "(root)": each for n, each in attention_layers(network).items() if not each.has_content}
    alone = own_alone(network)
    asked = {name: as_sides(grid, layer.dimensions) for name, layer in own.items()}
    of_run = own_sides_on(network, inputs) if inputs is not None else own_sides_by_plan(network)
    sides = {n: each for n, each in asked.items() if each} or {n: each for n, each in of_run.items() if n in own}
    others = {} if sides and alone else others_by_position(network, as_sides(grid, 2), inputs)
    return {name: each for name, each in others.items() if name not in sides} | {n: own[n] for n in sides}, sides


def others_by_position(network: nn.Module, sides: Sides | None, inputs: Any) -> dict[str, LayerAttention]:
    """Attention by position alone of each layer: from parameters where no run tells it, else from a run.

    Raises:
        UsageError: nothing is known to attend (C2A501).
    """
    found = position_attention(network, sides)
    named = [name for name in named_to_attend(network) if name not in found]
    if found and not named:
        return found
    try:
        run: Mapping[str, LayerAttention] = attention_by_run(network, sides, inputs)
    except UsageError as error:
        if not (found or named):
            reason = f"{type(network).__name__} has no layer that is known to attend"
            raise UsageError("C2A501", reason, "Pass --inputs if it attends nevertheless.") from error
        run = dict.fromkeys(named, Unread(error.found))
    places = {name or "(root)": place for place, (name, _) in enumerate(network.named_modules())}
    return dict(sorted({**run, **found}.items(), key=lambda item: places.get(item[0].split("#")[0], 0)))


def named_to_attend(network: nn.Module) -> list[str]:
    """The innermost modules whose class names say that they attend."""
    names = [name for name, each in network.named_modules() if ATTENDS.search(type(each).__name__)]
    inside = [name for name in names if not any(each != name and f"{each}.".startswith(f"{name}.") for each in names)]
    return [name or "(root)" for name in inside if name or names == [""]]


def own_alone(model: nn.Module) -> bool:
    """Whether a network attends, and only in layers of this project that read no content.

    Modules count as attention by the names of their classes.
    """
    own = attention_layers(model)
    named = [
        name
        for name, module in model.named_modules()
        if ATTENDS.search(type(module).__name__) and not isinstance(module, MultiHeadSelfAttention)
        if not any(each == name or each.startswith(f"{name}.") or not name for each in own)
        if not any(name.startswith(f"{each}.") for each in own)
    ]
    return bool(own) and not named and not any(layer.has_content for layer in own.values())


def needs_inputs(network: nn.Module) -> None:
    """Refuses a network whose attention depends on its inputs.

    Raises:
        UsageError: it does (C2A502), or nothing in it is known to attend (C2A501).
    """
    own, kind = attention_layers(network), type(network).__name__
    if own_alone(network):
        return
    if not own and not any(ATTENDS.search(type(module).__name__) for module in network.modules()):
        remedy = "Pass --inputs if it attends nevertheless."
        raise UsageError("C2A501", f"{kind} has no layer that is known to attend", remedy)
    raise UsageError(
        "C2A502",
        f"attention of the {kind} depends on its inputs",
        f"Pass {wanted_inputs(network)[0]} with --inputs, or ask for positions alone with --position-only.",
    )


def own_sides_on(network: nn.Module, inputs: Any) -> dict[str, Sides]:
    """The sides that reach layers of this project in a run on what the caller passed.

    Raises:
        UsageError: the network does not run on it (C2A009).
    """
    # A network that refuses the caller's inputs is a mistake of the call, also where positions are read from its
    # parameters: the report names these inputs as what was run.
    inputs = as_inputs(network, inputs)
    with running(network, inputs):
        return own_sides(network, inputs)


def own_sides_by_plan(network: nn.Module) -> dict[str, Sides]:
    """The sides that reach layers of this project in a run on an image of zeros, of the size of the network's plan.

    None where there is no plan, or the network does not run.
    """
    size: Sides | None = getattr(getattr(network, "plan", None), "input_size", None)
    if not attention_layers(network) or size is None or math.prod(size) > MOST_ZEROS:
        return {}
    try:
        return own_sides(network, torch.zeros(1, *size).to(next(network.parameters())))
    except (Conv2AttnError, *FAILURES):
        return {}


def as_reads(attention: Any, sides: Mapping[str, Sides]) -> Reads:
    """Attention as records, from a mapping of names, a sequence of layers, or one layer.

    Args:
        sides: of what reaches layers, by name, where these are known.
    """
    if isinstance(attention, Reads):
        return attention
    if isinstance(attention, tuple | list):
        attention = {f"layer {place}": layer for place, layer in enumerate(attention)}
    reads = list[Read]()
    for name, layer in (attention if isinstance(attention, Mapping) else {"attention": attention}).items():
        tokens = Tokens(sides[name]) if name in sides else None
        if isinstance(layer, Read):
            reads.append(layer)
            continue
        ours = isinstance(layer, MultiHeadSelfAttention)
        reads.append(Read.of_layer(str(name), layer, layer, tokens) if ours else Read(str(name), layer, tokens))
    return Reads.of(reads)
