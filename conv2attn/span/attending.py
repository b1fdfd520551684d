"""Turns what a user passes as attention (networks, layers, arrays) into one record for each layer.

A network is read as it runs on inputs, or by position alone.
"""

import math
from collections.abc import Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, final

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
from conv2attn.networks.run_header import run_header
from conv2attn.networks.specimens import wanted_inputs
from conv2attn.span.grids import as_sides
from conv2attn.theory.basis import Sides

MOST_ZEROS = 2**24
"""The largest image of zeros, in numbers, on which a network is run to find the grids of its layers."""


@final
@dataclass(frozen=True, eq=False)
class AskedAttention:
    """The checked arguments of a question about attention: attention itself, or a network with the inputs of its call.

    Args:
        model: a network, or attention as arrays, layers, or a list or mapping of these.
        inputs: the inputs of the network's call; None for attention by position alone.
        grid: sides of the grid of tokens that the caller passed, or None.
        selection: names of the layers that are read.
        position_only: whether a network is read by position alone, on `inputs` if there are any.
    """

    model: Any
    inputs: Any
    grid: Sequence[int] | int | None
    selection: Selection
    position_only: bool

    @property
    def header(self) -> str:
        """The inputs of the network's run, in one line; empty if nothing runs."""
        return "" if self.inputs is None else run_header(self.model, self.inputs)

    def reads(self) -> Reads:
        """One record per layer that attends: captured on the inputs, read by position alone, or passed as attention.

        Raises:
            UsageError: no layer has such a name (C2A008), or the network does not run on the inputs (C2A009).
        """
        model, sides = self.model, dict[str, Sides]()
        if isinstance(model, nn.Module):
            if self.inputs is not None and not self.position_only:
                return read_network(model, self.inputs, self.selection)
            if self.position_only or not isinstance(model, MultiHeadSelfAttention):
                model, sides = attention_by_position(model, self.grid, self.inputs)
        return as_reads(model, sides).only(self.selection)


def ask_attention(
    model: Any,
    inputs: Any = None,
    grid: Sequence[int] | int | None = None,
    only: Patterns = (),
    position_only: bool = False,
) -> AskedAttention:
    """Checks the arguments. If `inputs` is the size of an image, the network runs on one image of noise.

    Raises:
        UsageError: `inputs` or `position_only` was passed with an array (C2A004); `model` is a state dict, or a network
            on the meta device (C2A006).
    """
    # A state dict is a mapping from names too. It nearly always has biases, which are vectors; attention has none.
    if isinstance(model, Mapping) and any(getattr(array, "ndim", 2) == 1 for array in model.values()):
        remedy = "Load weights into their network, conv2attn.load(path, arch=...), and pass that; images are inputs."
        reason = f"{next(iter(model))} and others are not attention (heads, queries, keys)"
        raise UsageError("C2A006", reason, remedy)
    if isinstance(model, nn.Module):
        check_has_numbers(model)
        inputs = None if inputs is None else as_inputs(model, inputs)
    else:
        check_attention(model, inputs, grid, position_only)
    return AskedAttention(model, inputs, grid, Selection.of(only), position_only)


def check_images(attention: Any) -> None:
    """Refuses layers whose arrays have different numbers of images: some of these would be windows.

    Raises:
        UsageError: the numbers of images differ (C2A502).
    """
    layers = attention.values() if isinstance(attention, Mapping) else attention
    # The four axes are images (or windows), heads, queries and keys. One run gives every layer the same number of
    # images, so a layer with another number has windows. Windows of an image are not independent, unlike images.
    several = layers if isinstance(layers, list | tuple | ValuesView) else ()
    counts = sorted({len(each) for each in several if getattr(each, "ndim", 0) == 4})
    if len(counts) > 1:
        many = " and ".join(map(str, counts))
        reason = f"layers have attention of {many} images, or of windows of images"
        raise UsageError(
            "C2A502", reason, "Pass the model itself with --inputs, so that windows are distinguished from images."
        )


def check_attention(attention: Any, inputs: Any, grid: Sequence[int] | int | None, position_only: bool) -> None:
    """Refuses options that only networks have, if `attention` is not a network.

    Raises:
        UsageError: `inputs` or `position_only` was passed (C2A004), or `grid` is not the grid of the layer's parameters
            (C2A503).
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
) -> tuple[Mapping[str, LayerAttention], dict[str, Sides]]:
    """The attention by position alone of each layer of a network, and the grids of layers of this project.

    Layers of this project whose grid is known come last.

    Raises:
        UsageError: the network does not run on the inputs (C2A009), or nothing attends (C2A501).
    """
    own = {n or "(root)": each for n, each in attention_layers(network).items() if not each.has_content}
    alone = own_alone(network)
    passed = {name: as_sides(grid, layer.dimensions) for name, layer in own.items()}
    if inputs is None:
        of_run = own_sides_by_plan(network)
    else:
        # The report says that the network ran on the inputs. So inputs that the network refuses are an error, even if
        # positions are read from parameters alone.
        with running(network, inputs):
            of_run = own_sides(network, inputs)
    # The caller's grid takes priority over the grid of the run, which is that of this input only.
    sides = {n: each for n, each in passed.items() if each} or {n: each for n, each in of_run.items() if n in own}
    others = {} if sides and alone else others_by_position(network, as_sides(grid, 2), inputs)
    return {name: each for name, each in others.items() if name not in sides} | {n: own[n] for n in sides}, sides


def others_by_position(network: nn.Module, sides: Sides | None, inputs: Any) -> dict[str, LayerAttention]:
    """The attention by position alone of each layer, from its parameters if these suffice, otherwise from a run.

    Raises:
        UsageError: no layer is known to attend (C2A501).
    """
    of_parameters = position_attention(network, sides)
    named = [name for name in named_to_attend(network) if name not in of_parameters]
    # If parameters gave the attention of every module whose name says that it attends, no run is needed.
    if of_parameters and not named:
        return of_parameters
    try:
        run: Mapping[str, LayerAttention] = attention_by_run(network, sides, inputs)
    except UsageError as error:
        if not (of_parameters or named):
            reason = f"{type(network).__name__} has no layer known to attend"
            raise UsageError("C2A501", reason, "Pass --inputs if it attends nevertheless.") from error
        run = dict.fromkeys(named, Unread(error.found))
    places = {name or "(root)": place for place, (name, _) in enumerate(network.named_modules())}
    return dict(sorted({**run, **of_parameters}.items(), key=lambda item: places.get(item[0].split("#")[0], 0)))


def named_to_attend(network: nn.Module) -> list[str]:
    """The innermost modules whose class names say that they attend."""
    names = [name for name, each in network.named_modules() if ATTENDS.search(type(each).__name__)]
    inside = [name for name in names if not any(each != name and f"{each}.".startswith(f"{name}.") for each in names)]
    return [name or "(root)" for name in inside if name or names == [""]]


def own_alone(model: nn.Module) -> bool:
    """Whether a network attends only in layers of this project, and none of these reads content.

    Other modules count as attention by the names of their classes.
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
        UsageError: the attention depends on the inputs (C2A502), or no layer is known to attend (C2A501).
    """
    own, kind = attention_layers(network), type(network).__name__
    if own_alone(network):
        return
    if not own and not any(ATTENDS.search(type(module).__name__) for module in network.modules()):
        remedy = "Pass --inputs if it attends nevertheless."
        raise UsageError("C2A501", f"{kind} has no layer known to attend", remedy)
    raise UsageError(
        "C2A502",
        f"attention of the {kind} depends on its inputs",
        f"Pass {wanted_inputs(network)[0]} with --inputs, or ask for positions alone with --position-only.",
    )


def own_sides_by_plan(network: nn.Module) -> dict[str, Sides]:
    """The grids of layers of this project in a run on zeros, of the `input_size` in the network's plan.

    Empty if there is no plan, the size is too large, or the network does not run.
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
        sides: the grid of tokens that reaches a layer, by the layer's name, if it is known.
    """
    if isinstance(attention, Reads):
        return attention
    if isinstance(attention, tuple | list):
        attention = {f"layer {place}": layer for place, layer in enumerate(attention)}
    reads = list[Read]()
    for name, layer in (attention if isinstance(attention, Mapping) else {"attention": attention}).items():
        tokens = Tokens(sides[name]) if name in sides else None
        ours = isinstance(layer, MultiHeadSelfAttention)
        reads.append(Read.of_layer(str(name), layer, layer, tokens) if ours else Read(str(name), layer, tokens))
    return Reads.of(reads)
