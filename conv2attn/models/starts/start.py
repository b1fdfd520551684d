"""A transformer of stock modules whose heads begin as soft shifts: nothing of its code or shapes changes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Literal

import torch
from torch import nn

from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.models.capture import capture
from conv2attn.models.starts import kernel
from conv2attn.models.starts.biases import sides_of_table, start_tables, tables_of
from conv2attn.models.starts.channels import SHARE, odds_of, silence, start_channels, write_positions
from conv2attn.models.starts.given import start_given
from conv2attn.models.starts.parts import (
    Parts,
    check_same_tokens,
    found_writers,
    inputs_for,
    layers_of,
    named_writers,
    on_one_table,
    table_of,
    traced,
)
from conv2attn.models.starts.report import Start
from conv2attn.models.starts.values import check_convolution, take_values
from conv2attn.models.tokens import MOST_LEADING

HARDEST = 128.0
"""The largest alpha: there heads are one-hot in float32, and queries and keys have no gradient."""


@torch.no_grad()
def start_at_convolution(
    network: nn.Module,
    *,
    kernel_size: int | Sequence[int] = 3,
    alpha: float = 2.0,
    seed: int = 0,
    positions: Literal["waves", "given"] = "waves",
    values: nn.Module | None = None,
    example_input: Any = None,
    parts: Parts | None = None,
) -> Start:
    """Sets the weights of an ordinary transformer, in place, so that its heads begin as soft shifts; all of it trains.

    The first channels of the table of positions become sines and cosines. Keys read them; queries read them turned by
    the offset of the head, so that scores depend on key - query and are largest at the offset. At the start nothing
    writes content into these channels: the rows of embeddings, attention outputs and MLP outputs that end there are
    zero, and the other rows have mean zero, so that layer norms keep the waves up to one scale per token. Values and
    outputs keep what they had elsewhere. Leading tokens (class, registers) have zero in the position channels. Layers
    with a table of relative biases (Swin, BEiT) get exactly quadratic biases instead, and queries of zero.

    Args:
        network: a vision transformer of timm, transformers or torchvision, or of torch's own layers, whose positions
            are a table added to the tokens, freshly drawn.
        kernel_size: of the convolution whose offsets the heads take, in turns, each offset as often as any other.
        alpha: sharpness, in inverse squared tokens.
        seed: of the order in which heads take offsets.
        positions: "waves" replaces the table; "given" keeps it, and what writes to tokens, and fits queries and keys to
            it by least squares: exact on positions of full row rank, but ill-conditioned where rows are nearly
            dependent, as those of sine-cosine tables, and such heads read content too.
        values: a convolution whose taps values and outputs begin as, in each layer and for the channels that hold
            content; instead of `kernel_size`. By default values and outputs keep what they are.
        example_input: what the network is called with, or the size of an image, (channels, *sides); noise of the size
            that its table of positions tells by default.
        parts: names of the parts of a network of one's own.
    Returns:
        A row for each head, with its attention at the offset as computed on tokens of noise.
    Raises:
        UnsupportedError: no table of positions, rotary ones, one table of biases for several layers, a layer that runs
            twice, tokens dropped at random, heads narrower than two numbers per axis, or content that reaches the
            position channels (C2A604). The network is then as it was.
        UsageError: an argument out of range or not understood (C2A001, C2A002, C2A006), weights in half precision or
            that cannot be written in place (C2A006), a network that does not run on the input (C2A009), or parts that
            cannot be found (C2A005, C2A008, C2A502, C2A503).
        AlphaError: alpha is not above 0 and at most 128 (C2A130).
    Examples:
        >>> import conv2attn
        >>> from conv2attn.models.zoo import TransformerPlan, VisionTransformer
        >>> network = VisionTransformer(TransformerPlan(side=28, patch=4, width=64, heads=8, layers=4))
        >>> conv2attn.start_at_convolution(network, kernel_size=3)
        <Start: 32 heads in 4 layers begin as shifts>

    Source: Zheng et al. 2025 (arXiv 2505.19985) for heads that begin as shifts; docs/theory.md for this construction.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= HARDEST:
        raise AlphaError("C2A130", f"alpha={alpha!r} is not a number above 0 and at most {HARDEST:g}")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise UsageError("C2A001", f"seed={seed!r} is not a whole number from 0 to 2^63 - 1")
    if positions not in ("waves", "given"):
        raise UsageError("C2A002", f"positions={positions!r} is neither 'waves' nor 'given'")
    if not isinstance(parts, Parts | None):
        raise UsageError("C2A006", f"parts={parts!r} is not a Parts(...)")
    if not isinstance(network, nn.Module):
        raise UsageError("C2A006", f"{type(network).__name__} is not a torch.nn.Module", "Pass the network itself.")
    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
    with left_as_it_was(network):
        return started(network, kernel_size, float(alpha), seed, positions == "given", values, example_input, parts)


@contextmanager
def left_as_it_was(network: nn.Module) -> Iterator[None]:
    """Within it a network is in evaluation mode, and computes in its own dtype by code that calls every module; if it
    fails its weights are put back.

    Raises:
        UsageError: its weights are in half precision, on meta, or cannot be written in place (C2A006).
    """
    weights = [*network.parameters()]
    kinds = {str(value.dtype).removeprefix("torch.") for value in weights} - {"float32", "float64"}
    kinds |= {"on meta" for each in weights if each.is_meta}
    kinds |= {"of inference mode" for each in weights if each.is_inference()}
    if kinds:
        found = f"its parameters are {', '.join(sorted(kinds))}"
        raise UsageError("C2A006", found, "Start the network in float32, and cast it afterwards.")
    tensors = [each.detach() for each in (*network.parameters(), *network.buffers()) if not is_lazy(each)]
    state = [(each, each.clone()) for each in tensors]
    modes = {module: module.training for module in network.modules()}
    try:
        for each, value in state:
            each.copy_(value)
        network.eval()
    except (RuntimeError, NotImplementedError) as error:
        told = str(error).partition(".")[0]
        how = "Pass a module whose weights are its own, and that has code of its own."
        raise UsageError("C2A006", f"it cannot be written in place or put in evaluation mode ({told})", how) from error
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it would not call the modules that are watched
    try:
        with torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False):
            yield
    except BaseException:
        for each, value in state:
            each.copy_(value)
        raise
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes.items():
            module.training = mode


def started(
    network: nn.Module,
    kernel_size: int | Sequence[int],
    alpha: float,
    seed: int,
    keep: bool,
    values: nn.Module | None,
    example_input: Any,
    parts: Parts | None,
) -> Start:
    """Sets the weights of a network in evaluation mode."""
    parts = parts or Parts()
    layers = layers_of(network, parts.heads)
    inputs = inputs_for(network, example_input)
    trace = traced(network, layers, inputs)
    tables = tables_of(network, layers)
    if values is not None and (tables or keep):
        raise UsageError("C2A004", "values of a convolution need positions='waves', and a table of positions")
    if tables:
        windows = {sides_of_table(part) for part in tables.values()}
        if len(windows) > 1:
            raise UnsupportedError("C2A604", f"its windows have {len(windows)} sizes", "Pass a larger image.")
        offsets = offsets_of(kernel_size, windows.pop())
        dealt = dict(zip(tables, dealing(offsets, [layers[name].heads for name in tables], seed), strict=True))
        notes = tuple(f"{name} is left alone: it has no table of biases" for name in sorted({*layers} - {*tables}))
        return Start(tuple(start_tables(network, inputs, tables, layers, dealt, alpha)), notes=notes)
    check_same_tokens(network, trace, traced(network, layers, inputs))
    layers, notes = on_one_table(layers, trace)
    if not layers:
        raise UnsupportedError("C2A604", f"no layer of {type(network).__name__} attends among (images, tokens, width)")
    first = next(iter(layers.values()))
    tokens, width = trace.tokens[first.name].shape[1:]
    table_name, table = table_of(network, parts.positions, tokens, width)
    sides = grid_of(network, inputs, first.name, len(table), parts.sides)
    offsets, heads = offsets_of(kernel_size, sides), [layer.heads for layer in layers.values()]
    if keep:
        dealt = dict(zip(layers, dealing(offsets, heads, seed), strict=True))
        rows, residuals = start_given(network, inputs, [*layers.values()], dealt, sides, alpha)
        return Start(tuple(rows), notes=notes + residuals)
    writers = named_writers(network, parts.writers) or list(found_writers(network, layers, trace, width))
    writers = [name for name in writers if not table_name.startswith(f"{name}.")]
    narrowest = min(layers.values(), key=lambda layer: layer.width)
    if narrowest.width < 2 * len(sides):
        thin = f"{narrowest.name}: heads of {narrowest.width} numbers are narrower than {2 * len(sides)}"
        raise UnsupportedError("C2A604", thin, "Take fewer heads.")
    count = kernel.fitting_count(sides, alpha, min(narrowest.width, width // 2))
    channels = 2 * len(sides) * count
    if channels >= width:
        raise UnsupportedError("C2A604", f"{channels} position channels leave none of {width} to content")
    if values is not None:
        offsets = offsets_of(check_convolution(values, width - channels, len(sides)), sides)
    dealt = dict(zip(layers, dealing(offsets, heads, seed), strict=True))
    if values is not None:
        take_values(network, layers, dealt, offsets, values)
    for name in writers:
        silence(network.get_submodule(name), channels)
    waves = kernel.waves(sides, count)
    write_positions(network, table, waves, tokens - len(waves))
    waves = waves * math.sqrt(SHARE / (1 - SHARE) / odds_of(network, inputs, first, waves))
    write_positions(network, table, waves, tokens - len(waves))
    found = start_channels(network, inputs, [*layers.values()], dealt, waves, sides, count, alpha)
    return Start(tuple(found), channels, count, tuple(writers), notes)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no numbers yet."""
    return isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer)


def grid_of(network: nn.Module, inputs: Any, layer: str, rows: int, given: tuple[int, ...] | None) -> tuple[int, ...]:
    """The sides of the grid on which the tokens of a layer stand: those given, or read from the run.

    Raises:
        UsageError: nothing tells them, or a table of so many rows has no position for each token (C2A503).
    """
    told = capture(network, inputs).tokens.get(layer)
    sides = given or (told.sides if told is not None else ())
    if not sides or not 0 <= rows - math.prod(sides) <= MOST_LEADING:
        grid = "x".join(map(str, sides)) or "no"
        raise UsageError("C2A503", f"{rows} positions, and {grid} tokens on a grid", "Name it: parts=Parts(sides=...).")
    return tuple(sides)


def offsets_of(kernel_size: int | Sequence[int], sides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The offsets of a kernel's taps.

    Raises:
        UsageError: a size below 1, or whose taps lie off a grid with these sides (C2A001, C2A006, C2A007).
    """
    sizes = [kernel_size] * len(sides) if isinstance(kernel_size, int) else kernel_size
    if not isinstance(sizes, Sequence) or not all(type(size) is int for size in sizes):
        raise UsageError("C2A006", f"kernel_size={kernel_size!r} is not a whole number for each axis")
    if len(sizes) != len(sides):
        raise UsageError("C2A007", f"kernel_size={kernel_size} is not one number for each of {len(sides)} axes")
    if any(size < 1 or size // 2 >= side for size, side in zip(sizes, sides, strict=True)):
        grid = "x".join(map(str, sides))
        raise UsageError("C2A001", f"kernel_size={kernel_size} does not fit a grid of {grid} tokens")
    return list(product(*(range(-((size - 1) // 2), size - (size - 1) // 2) for size in sizes)))


def dealing(offsets: Sequence[tuple[int, ...]], heads: Sequence[int], seed: int) -> Iterator[list[tuple[int, ...]]]:
    """The offsets of the heads of each layer: those that were dealt least often first, at random among equals."""
    generator = torch.Generator().manual_seed(seed)
    times = [0] * len(offsets)
    for count in heads:
        here: list[tuple[int, ...]] = []
        while len(here) < count:
            order = torch.randperm(len(offsets), generator=generator).tolist()
            for chosen in sorted(order, key=times.__getitem__)[: count - len(here)]:
                times[chosen] += 1
                here.append(offsets[chosen])
        yield here
