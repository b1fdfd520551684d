"""A transformer of stock modules whose heads begin as soft shifts: nothing of its code or shapes changes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, final

import torch
from torch import nn

from conv2attn.arguments import Selection
from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.networks.reading.phase import literally, read_network
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import (
    Parts,
    attending_layers,
    check_grid_tokens,
    check_same_tokens,
    default_writers,
    layers_on_table,
    named_writers,
    start_inputs,
    table_of,
    trace_run,
)
from conv2attn.networks.starts.start_heads import (
    SHARE,
    blind_values,
    check_convolution,
    check_finite,
    odds_of,
    sides_of_table,
    silence,
    start_channels,
    start_on_table,
    start_tables,
    tables_of,
    take_values,
    write_positions,
)
from conv2attn.networks.starts.start_report import Start

MOST_LEADING = 16
"""Class tokens and registers in front of the pixels, at most."""
OTHER_DRAW = 2**31 - 1
"""The seed of a second run, in which tokens that are dropped at random are others."""
HARDEST = 128.0
"""The largest alpha: there heads are one-hot in float32, and queries and keys have no gradient."""


@torch.no_grad()
def start_at_convolution(
    network: nn.Module,
    *,
    kernel_size: int | Sequence[int] | Literal["image"] = 3,
    alpha: float = 2.0,
    seed: int = 0,
    positions: Literal["waves", "given"] = "waves",
    content: Literal["silent", "drawn"] = "silent",
    values: nn.Module | Literal["kept", "blind"] = "kept",
    draw: Literal["kept", "torch"] = "kept",
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
        kernel_size: of the convolution whose offsets the heads take, in turns, each offset as often as any other;
            "image" takes all offsets between two tokens of the grid.
        alpha: sharpness, in inverse squared tokens.
        seed: of the order in which heads take offsets.
        positions: "waves" replaces the table; "given" keeps it, and what writes to tokens, and fits queries and keys to
            it by least squares: exact on positions of full row rank, but ill-conditioned where rows are nearly
            dependent, as those of sine-cosine tables, and such heads read content too.
        content: "silent" lets queries and keys begin with the waves alone; "drawn" leaves what they read of the other
            channels, so that attention at the offset depends on the tokens, and the bound is measured on the input.
        values: "blind" lets values begin without the waves; "kept" leaves them; a convolution gives the taps that
            values and outputs begin as, in each layer and for the channels that hold content, instead of
            `kernel_size`.
        draw: "torch" first draws linear layers and attention as torch does, by their widths.
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
        >>> from conv2attn.networks.zoo import TransformerPlan, VisionTransformer
        >>> network = VisionTransformer(TransformerPlan(side=28, patch=4, width=64, heads=8, layers=4))
        >>> conv2attn.start_at_convolution(network, kernel_size=3)
        <Start: 32 heads in 4 layers begin as shifts>

    Source: Zheng et al. 2025 (arXiv 2505.19985) for heads that begin as shifts; docs/theory.md for this construction.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= HARDEST:
        raise AlphaError(
            "C2A130",
            f"alpha={alpha!r} is not a number above 0 and at most {HARDEST:g}",
            "Pass a number within these limits.",
        )
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise UsageError(
            "C2A001",
            f"seed={seed!r} is not a whole number from 0 to 2^63 - 1",
            "Pass a whole number within these limits.",
        )
    if positions not in ("waves", "given"):
        raise UsageError("C2A002", f"positions={positions!r} is neither 'waves' nor 'given'", "Pass one of both.")
    if content not in ("silent", "drawn"):
        raise UsageError("C2A002", f"content={content!r} is neither 'silent' nor 'drawn'", "Pass one of both.")
    if draw not in ("kept", "torch"):
        raise UsageError("C2A002", f"draw={draw!r} is neither 'kept' nor 'torch'", "Pass one of both.")
    if not isinstance(values, nn.Module) and values not in ("kept", "blind"):
        reason = f"values={values!r} is not 'kept', 'blind' or a convolution"
        raise UsageError("C2A002", reason, "Pass one of them.")
    if not isinstance(parts, Parts | None):
        raise UsageError("C2A006", f"parts={parts!r} is not a Parts(...)", "Pass conv2attn.networks.starts.Parts(...).")
    if not isinstance(network, nn.Module):
        raise UsageError("C2A006", f"{type(network).__name__} is not a torch.nn.Module", "Pass the network itself.")
    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
    with restored_on_failure(network):
        if draw == "torch":
            draw_as_torch(network, seed)
        reading = Reading(content == "drawn", values == "blind", values if isinstance(values, nn.Module) else None)
        return start_weights(
            network, kernel_size, float(alpha), seed, positions == "given", reading, example_input, parts
        )


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """What heads read beside the waves at the start.

    Args:
        content: queries and keys read the other channels as drawn.
        blind: values do not read the waves.
        convolution: its taps are the values and outputs.
    """

    content: bool
    blind: bool
    convolution: nn.Module | None

    @property
    def plain(self) -> bool:
        """Whether it says nothing that needs position channels of their own."""
        return not (self.content or self.blind) and self.convolution is None


def draw_as_torch(network: nn.Module, seed: int) -> None:
    """Draws linear layers within 1 / sqrt(inputs), and queries, keys and values of torch's attention by Glorot."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, math.sqrt(5), generator=generator)
            if module.bias is not None:
                reach = 1 / math.sqrt(module.in_features)
                nn.init.uniform_(module.bias, -reach, reach, generator=generator)
    for module in network.modules():
        if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            nn.init.xavier_uniform_(module.in_proj_weight, generator=generator)
            for bias in (module.in_proj_bias, module.out_proj.bias):
                if bias is not None:
                    nn.init.zeros_(bias)


@contextmanager
def restored_on_failure(network: nn.Module) -> Iterator[None]:
    """Within the block `network` is in evaluation mode, without autocast and fast paths; an error restores its weights.

    Raises:
        UsageError: its weights are in half precision, on meta, or cannot be written in place (C2A006).
    """
    weights = [*network.parameters()]
    dtypes = {str(value.dtype).removeprefix("torch.") for value in weights} - {"float32", "float64"}
    if dtypes:
        found = f"its parameters are {', '.join(sorted(dtypes))}"
        raise UsageError("C2A006", found, "Start the network in float32, and cast it afterwards.")
    if any(tensor.is_meta for tensor in weights):
        raise UsageError("C2A006", "its parameters are on meta", "Give them values first: network.to_empty(...).")
    if any(tensor.is_inference() for tensor in weights):
        raise UsageError("C2A006", "its parameters are of inference mode", "Build it outside of inference mode.")
    tensors = [tensor.detach() for tensor in (*network.parameters(), *network.buffers()) if not is_lazy(tensor)]
    state = [(tensor, tensor.clone()) for tensor in tensors]
    modes = {module: module.training for module in network.modules()}
    try:
        for tensor, value in state:
            tensor.copy_(value)
        network.eval()
    except (RuntimeError, NotImplementedError) as error:
        message = str(error).partition(".")[0]
        remedy = "Pass a module whose weights are its own, and that has code of its own."
        raise UsageError(
            "C2A006", f"it cannot be written in place or put in evaluation mode ({message})", remedy
        ) from error
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it would not call the modules that are watched
    try:
        with torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False):
            yield
    except BaseException:
        for tensor, value in state:
            tensor.copy_(value)
        raise
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, mode in modes.items():
            module.training = mode


def start_weights(
    network: nn.Module,
    kernel_size: int | Sequence[int] | Literal["image"],
    alpha: float,
    seed: int,
    keep_table: bool,
    reading: Reading,
    example_input: Any,
    parts: Parts | None,
) -> Start:
    """Sets the weights of a network in evaluation mode."""
    parts = parts or Parts()
    layers = attending_layers(network, parts.heads)
    inputs = start_inputs(network, example_input)
    trace = trace_run(network, layers, inputs)
    tables = tables_of(network, layers)
    if not reading.plain and (tables or keep_table):
        raise UsageError(
            "C2A004",
            "values='blind' or of a convolution, and content='drawn', need positions='waves' and a table of positions",
            "Pass positions='waves', or leave them out.",
        )
    if tables:
        windows = {sides_of_table(part) for part in tables.values()}
        if len(windows) > 1:
            raise UnsupportedError(
                "C2A604",
                f"its windows have {len(windows)} sizes",
                "Pass a larger image if the last windows are cut, or take another network.",
            )
        offsets = kernel_offsets(kernel_size, windows.pop())
        head_offsets = dict(
            zip(tables, deal_offsets(offsets, [layers[name].heads for name in tables], seed), strict=True)
        )
        notes = tuple(f"{name} is left alone: it has no table of biases" for name in sorted({*layers} - {*tables}))
        return Start(tuple(start_tables(network, inputs, tables, layers, head_offsets, alpha)), notes=notes)
    check_same_tokens(network, trace, trace_run(network, layers, inputs, OTHER_DRAW))
    layers, notes = layers_on_table(layers, trace)
    if not layers:
        raise UnsupportedError(
            "C2A604",
            f"no layer of {type(network).__name__} attends among (images, tokens, width)",
            "Name the parts with parts=Parts(...), or pass an example_input of that form.",
        )
    first = next(iter(layers.values()))
    tokens, width = trace.tokens[first.name].shape[1:]
    table_name, table = table_of(network, parts.positions, tokens, width)
    check_finite(first.name, trace.tokens[first.name])
    sides = token_sides(network, inputs, first.name, len(table), tokens, parts.sides)
    check_grid_tokens(network, layers, trace, inputs, math.prod(sides))
    offsets, heads = kernel_offsets(kernel_size, sides), [layer.heads for layer in layers.values()]
    if keep_table:
        head_offsets = dict(zip(layers, deal_offsets(offsets, heads, seed), strict=True))
        rows, residuals = start_on_table(network, inputs, [*layers.values()], head_offsets, sides, alpha)
        return Start(tuple(rows), notes=notes + residuals)
    writers = named_writers(network, parts.writers) or list(default_writers(network, layers, trace, width))
    writers = [name for name in writers if not table_name.startswith(f"{name}.")]
    narrowest = min(layers.values(), key=lambda layer: layer.width)
    if narrowest.width < 2 * len(sides):
        reason = f"{narrowest.name}: heads of {narrowest.width} numbers are narrower than {2 * len(sides)}"
        raise UnsupportedError("C2A604", reason, "Take fewer heads.")
    count = kernel.fitting_count(sides, alpha, min(narrowest.width, width // 2))
    channels = 2 * len(sides) * count
    if channels >= width:
        raise UnsupportedError(
            "C2A604",
            f"{channels} position channels leave none of {width} to content",
            "Take a wider network, or fewer waves.",
        )
    values = reading.convolution
    if values is not None:
        offsets = kernel_offsets(check_convolution(values, width - channels, len(sides)), sides)
    head_offsets = dict(zip(layers, deal_offsets(offsets, heads, seed), strict=True))
    if values is not None:
        take_values(network, layers, head_offsets, offsets, values)
    for name in writers:
        silence(network.get_submodule(name), channels)
    waves = kernel.waves(sides, count)
    write_positions(network, table, waves, tokens - len(waves))
    waves = waves * math.sqrt(SHARE / (1 - SHARE) / odds_of(network, inputs, first, waves))
    write_positions(network, table, waves, tokens - len(waves))
    if reading.blind:
        blind_values(network, layers, channels)
    started_rows = start_channels(
        network, inputs, [*layers.values()], head_offsets, waves, sides, count, alpha, content=reading.content
    )
    return Start(tuple(started_rows), channels, count, tuple(writers), notes)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no numbers yet."""
    return isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer)


def token_sides(
    network: nn.Module, inputs: Any, layer: str, rows: int, tokens: int, sides_argument: tuple[int, ...] | None
) -> tuple[int, ...]:
    """The sides of the grid of a layer's tokens: `sides_argument`, or read from a run.

    Raises:
        UsageError: nothing tells them, or the rows of the table or the tokens are not a grid and leading ones (C2A503).
        UnsupportedError: the run shows that the tokens are not leading tokens and a grid (C2A604).
    """
    sides = sides_argument or ()
    if sides_argument is None:
        (read,) = read_network(network, inputs, Selection((literally(layer),)))
        if read.tokens is None:
            raise UnsupportedError("C2A604", f"{layer}: {read.unread or read.unplaced}", "Take another network.")
        sides = read.tokens.sides
    if not sides or not all(0 <= count - math.prod(sides) <= MOST_LEADING for count in (rows, tokens)):
        grid = "x".join(map(str, sides)) or "no"
        reason = f"{rows} positions, {tokens} tokens, and {grid} tokens on a grid"
        raise UsageError("C2A503", reason, "Name it: parts=Parts(sides=...).")
    return tuple(sides)


def kernel_offsets(
    kernel_size: int | Sequence[int] | Literal["image"], sides: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """The offsets of a kernel's taps, or all between two tokens of the grid.

    Raises:
        UsageError: a size below 1, or whose taps lie off a grid with these sides (C2A001, C2A006, C2A007).
    """
    if kernel_size == "image":
        kernel_size = [2 * side - 1 for side in sides]
    sizes = [kernel_size] * len(sides) if isinstance(kernel_size, int) else kernel_size
    if not isinstance(sizes, Sequence) or not all(type(size) is int for size in sizes):
        raise UsageError(
            "C2A006",
            f"kernel_size={kernel_size!r} is not a whole number for each axis",
            "Pass a positive whole number, or one for each axis.",
        )
    if len(sizes) != len(sides):
        raise UsageError(
            "C2A007",
            f"kernel_size={kernel_size} is not one number for each of {len(sides)} axes",
            "Pass one number for each axis.",
        )
    if any(size < 1 or size // 2 >= side for size, side in zip(sizes, sides, strict=True)):
        grid = "x".join(map(str, sides))
        raise UsageError(
            "C2A001",
            f"kernel_size={kernel_size} does not fit a grid of {grid} tokens",
            f"Pass sizes of at least 1 and at most {'x'.join(str(2 * side - 1) for side in sides)}.",
        )
    return list(product(*(range(-((size - 1) // 2), size - (size - 1) // 2) for size in sizes)))


def deal_offsets(
    offsets: Sequence[tuple[int, ...]], heads: Sequence[int], seed: int
) -> Iterator[list[tuple[int, ...]]]:
    """The offsets of the heads of each layer: the least used ones first, in random order among equals."""
    generator = torch.Generator().manual_seed(seed)
    times = [0] * len(offsets)
    for count in heads:
        chosen_offsets: list[tuple[int, ...]] = []
        while len(chosen_offsets) < count:
            order = torch.randperm(len(offsets), generator=generator).tolist()
            for index in sorted(order, key=times.__getitem__)[: count - len(chosen_offsets)]:
                times[index] += 1
                chosen_offsets.append(offsets[index])
        yield chosen_offsets
