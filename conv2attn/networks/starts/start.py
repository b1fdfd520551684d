"""A transformer of stock modules whose heads begin as soft shifts: nothing of its code or shapes changes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from conv2attn.arguments import check_choice, check_kind, check_network
from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.generators import devices_of, generators_kept
from conv2attn.networks.copies import evaluating
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import (
    Parts,
    StartLayer,
    attending_layers,
    default_writers,
    named_writers,
    table_of,
)
from conv2attn.networks.starts.shifts import Offset, Shifts, check_finite, dealt
from conv2attn.networks.starts.start_report import Start
from conv2attn.networks.starts.start_values import check_convolution, take_values
from conv2attn.networks.starts.table_heads import bias_tables, start_on_biases, start_on_positions
from conv2attn.networks.starts.trace import (
    Trial,
    check_grid_tokens,
    check_same_tokens,
    layers_on_table,
    start_inputs,
    token_sides,
)
from conv2attn.networks.starts.wave_heads import silence, start_on_waves, write_waves

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
        reason = f"alpha={alpha!r} is not a number above 0 and at most {HARDEST:g}"
        raise AlphaError("C2A130", reason, "Pass a number within these limits.")
    if type(seed) is not int or not 0 <= seed < 2**63:
        reason = f"seed={seed!r} is not a whole number from 0 to 2^63 - 1"
        raise UsageError("C2A001", reason, "Pass a whole number within these limits.")
    check_choice(positions, "positions", ("waves", "given"))
    check_choice(content, "content", ("silent", "drawn"))
    check_choice(draw, "draw", ("kept", "torch"))
    if not isinstance(values, nn.Module) and values not in ("kept", "blind"):
        reason = f"values={values!r} is not 'kept', 'blind' or a convolution"
        raise UsageError("C2A002", reason, "Pass one of them.")
    check_kind(parts, "parts", Parts | None, "Pass conv2attn.networks.starts.Parts(...).")
    check_network(network)
    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
    parts, alpha = parts or Parts(), float(alpha)

    def shifts_on(sides: tuple[int, ...], kernel_size: Any) -> Shifts:
        return Shifts(trial, dealt(kernel_offsets(kernel_size, sides), trial.layers, seed), sides, alpha)

    with restored_on_failure(network):
        if draw == "torch":
            draw_as_torch(network, seed)
        trial = Trial(network, attending_layers(network, parts.heads), start_inputs(network, example_input))
        trace = trial.trace()
        tables = bias_tables(network, trial.layers)
        if (content, values) != ("silent", "kept") and (tables or positions == "given"):
            reason = "values='blind' or of a convolution, and content='drawn', need positions='waves'"
            raise UsageError("C2A004", f"{reason} and a table of positions", "Pass that, or leave them out.")
        if tables:
            without = sorted({*trial.layers} - {*tables})
            notes = tuple(f"{name} is left alone: it has no table of biases" for name in without)
            trial = replace(trial, layers={name: trial.layers[name] for name in tables})
            window = tuple(next(iter(tables.values())).window_size)
            return Start(start_on_biases(shifts_on(window, kernel_size), tables), notes=notes)
        check_same_tokens(trial, trace)
        layers, notes = layers_on_table(trial, trace)
        trial = replace(trial, layers=layers)
        first = next(iter(layers))
        tokens, width = trace.tokens[first].shape[1:]
        table_name, table = table_of(network, parts.positions, tokens, width)
        check_finite(first, trace.tokens[first])
        sides = token_sides(trial, len(table), tokens, parts.sides)
        check_grid_tokens(trial, trace, math.prod(sides))
        if positions == "given":
            rows, residuals = start_on_positions(shifts_on(sides, kernel_size))
            return Start(rows, notes=notes + residuals)
        count = waves_of(layers, sides, alpha, width)
        channels = 2 * len(sides) * count
        if isinstance(values, nn.Module):
            kernel_size = check_convolution(values, width - channels, len(sides))
        shifts = shifts_on(sides, kernel_size)
        if isinstance(values, nn.Module):
            take_values(shifts, kernel_offsets(kernel_size, sides), values)
        writers = named_writers(network, parts.writers) or [*default_writers(network, layers, trace.order, width)]
        writers = [name for name in writers if not table_name.startswith(f"{name}.")]
        for name in writers:
            silence(network.get_submodule(name), channels)
        waves = write_waves(shifts, table, count, tokens > shifts.tokens)
        if values == "blind":
            for layer in layers.values():
                layer.value_and_output()[0].weight.data[:, :channels] = 0
        rows = start_on_waves(shifts, waves, count, content == "drawn")
        return Start(rows, channels, count, tuple(writers), notes)


def waves_of(layers: Mapping[str, StartLayer], sides: tuple[int, ...], alpha: float, width: int) -> int:
    """The waves of each axis, as many as the narrowest heads can read.

    Raises:
        UnsupportedError: heads are too narrow, or tokens (C2A604).
    """
    narrowest = min(layers.values(), key=lambda layer: layer.width)
    if narrowest.width < 2 * len(sides):
        reason = f"{narrowest.name}: heads of {narrowest.width} numbers are narrower than {2 * len(sides)}"
        raise UnsupportedError("C2A604", reason, "Take fewer heads.")
    count = kernel.fitting_count(sides, alpha, min(narrowest.width, width // 2))
    if (channels := 2 * len(sides) * count) >= width:
        reason = f"{channels} position channels leave none of {width} to content"
        raise UnsupportedError("C2A604", reason, "Take a wider network, or fewer waves.")
    return count


def draw_as_torch(network: nn.Module, seed: int) -> None:
    """Draws linear layers within 1 / sqrt(inputs), and queries, keys and values of torch's attention by Glorot."""
    with generators_kept(devices_of(network), seed):
        for module in network.modules():
            if isinstance(module, nn.Linear):
                nn.Linear.reset_parameters(module)
        for module in network.modules():
            if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
                nn.init.xavier_uniform_(module.in_proj_weight)
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
    for refused, reason, remedy in (
        (dtypes, ", ".join(sorted(dtypes)), "Start the network in float32, and cast it afterwards."),
        (any(each.is_meta for each in weights), "on meta", "Give them values first: network.to_empty(...)."),
        (any(each.is_inference() for each in weights), "of inference mode", "Build it outside of inference mode."),
    ):
        if refused:
            raise UsageError("C2A006", f"its parameters are {reason}", remedy)
    tensors = [each.detach() for each in (*weights, *network.buffers()) if not is_lazy(each)]
    state = [(tensor, tensor.clone()) for tensor in tensors]

    def restore() -> None:
        for tensor, value in state:
            tensor.copy_(value)

    device = tensors[0].device.type if tensors else "cpu"
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # it rounds otherwise than attention that is captured
        try:
            restore()
            stack.enter_context(evaluating(network))
        except (RuntimeError, NotImplementedError) as error:
            reason = f"it cannot be written in place or put in evaluation mode ({str(error).partition('.')[0]})"
            remedy = "Pass a module whose weights are its own, and that has code of its own."
            raise UsageError("C2A006", reason, remedy) from error
        try:
            with torch.autocast(device, enabled=False):
                yield
        except BaseException:
            restore()
            raise


def kernel_offsets(kernel_size: int | Sequence[int] | Literal["image"], sides: tuple[int, ...]) -> list[Offset]:
    """The offsets of a kernel's taps, or all between two tokens of the grid.

    Raises:
        UsageError: a size below 1, or whose taps lie off a grid with these sides (C2A001, C2A006, C2A007).
    """
    largest = [2 * side - 1 for side in sides]
    sizes = largest if kernel_size == "image" else kernel_size
    sizes = [sizes] * len(sides) if isinstance(sizes, int) else sizes
    if not isinstance(sizes, Sequence) or not all(type(size) is int for size in sizes):
        reason = f"kernel_size={kernel_size!r} is not a whole number for each axis"
        raise UsageError("C2A006", reason, "Pass a positive whole number, or one for each axis.")
    if len(sizes) != len(sides):
        reason = f"kernel_size={kernel_size} is not one number for each of {len(sides)} axes"
        raise UsageError("C2A007", reason, "Pass one number for each axis.")
    if not all(1 <= size <= most for size, most in zip(sizes, largest, strict=True)):
        reason = f"kernel_size={kernel_size} does not fit a grid of {'x'.join(map(str, sides))} tokens"
        raise UsageError("C2A001", reason, f"Pass sizes of at least 1 and at most {'x'.join(map(str, largest))}.")
    return list(product(*(range(-((size - 1) // 2), size - (size - 1) // 2) for size in sizes)))
