"""Starts a transformer of stock modules with heads as soft shifts, on tokens that a run showed to be on a grid."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from conv2attn.arguments import Selection, check_choice, check_kind, check_network
from conv2attn.errors import AlphaError, UnsupportedError, UsageError
from conv2attn.networks.reading.phase import literally, read_network
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import Parts, StartLayer, attending_layers, table_of, writers_of
from conv2attn.networks.starts.shifts import KernelSize, Shifts, Start, StartedHead
from conv2attn.networks.starts.trial import Trial, restored_on_failure, start_inputs
from conv2attn.networks.starts.wave_heads import silence, start_on_waves, wave_count, write_waves
from conv2attn.torch_internals import tree_map_only

HARDEST = 128.0
"""The largest alpha: from there on, heads are one-hot in float32, and queries and keys have no gradient."""


@torch.no_grad()
def start_at_convolution(
    network: nn.Module,
    *,
    kernel_size: KernelSize = 3,
    alpha: float = 2.0,
    seed: int = 0,
    content: Literal["silent", "drawn"] = "silent",
    values: Literal["kept", "blind"] = "kept",
    example_input: Any = None,
    parts: Parts | None = None,
) -> Start:
    """Sets the weights of an ordinary transformer in place so that its heads begin as soft shifts; everything trains.

    The first channels of the table of positions become sines and cosines. Keys read them; queries read them rotated by
    the head's offset, so that scores depend on key - query and are largest at the offset. At the start no content is
    written into these channels: the rows of embeddings, attention outputs and MLP outputs for them are zero, and the
    other rows have mean zero, so that layer norms keep the waves up to one scale per token. Values and outputs are
    unchanged elsewhere. Leading tokens (class, registers) have zero in the position channels. Layers with a table of
    relative biases (Swin, BEiT) get exactly quadratic biases instead, and queries of zero.

    Args:
        network: a vision transformer of timm, transformers or torchvision, or of torch's own layers, whose positions
            are a table added to the tokens, freshly drawn.
        kernel_size: kernel size of the convolution whose offsets the heads take in turn, each equally often; "image"
            takes all offsets between two tokens of the grid.
        alpha: sharpness, in inverse squared tokens.
        seed: seed of the order in which heads take offsets.
        content: "silent": queries and keys begin with the waves alone; "drawn": their other weights stay, so attention
            at the offset depends on the tokens, and the bound is measured on the input.
        values: "blind": values begin without the waves; "kept": they are unchanged.
        example_input: arguments of a call, or the size of an image, (channels, *sides), for two images of noise; by
            default the size that the network states.
        parts: names of the parts of a custom network.
    Returns:
        A row for each head, with its attention at the offset as computed on tokens of noise.
    Raises:
        UnsupportedError: no table of positions, rotary ones, one table of biases for several layers, a layer that runs
            twice, tokens dropped or shuffled at random, heads narrower than two numbers per axis, or content that
            reaches the position channels (C2A604). The network is then unchanged.
        UsageError: an argument out of range or not understood (C2A001, C2A002, C2A006), drawn content or blind values
            with tables of biases (C2A004), weights in half precision or that cannot be written in place (C2A006), a
            network that does not run on the input (C2A009), or parts that cannot be found (C2A005, C2A008, C2A502,
            C2A503).
        AlphaError: alpha is not above 0 and at most 128 (C2A130).
    Examples:
        >>> import conv2attn, timm  # doctest: +SKIP
        >>> network = timm.create_model("vit_tiny_patch16_224")  # doctest: +SKIP
        >>> conv2attn.start_at_convolution(network, kernel_size=3)  # doctest: +SKIP
        <Start: 36 heads in 12 layers begin as shifts>

    Source: Zheng et al. 2025 (arXiv 2505.19985) for heads that begin as shifts; docs/theory.md for this construction.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= HARDEST:
        reason = f"alpha={alpha!r} is not a number above 0 and at most {HARDEST:g}"
        raise AlphaError("C2A130", reason, "Pass a number within these limits.")
    if type(seed) is not int or not 0 <= seed < 2**63:
        reason = f"seed={seed!r} is not a whole number from 0 to 2^63 - 1"
        raise UsageError("C2A001", reason, "Pass a whole number within these limits.")
    check_choice(content, "content", ("silent", "drawn"))
    check_choice(values, "values", ("kept", "blind"))
    check_kind(parts, "parts", Parts | None, "Pass conv2attn.networks.starts.Parts(...).")
    check_network(network)
    network = getattr(network, "_orig_mod", network)  # the module wrapped by torch.compile
    parts, alpha = parts or Parts(), float(alpha)
    with restored_on_failure(network):
        trial = Trial(network, attending_layers(network), start_inputs(network, example_input))
        tokens_of = trial.tokens()
        if tables := bias_tables(network, trial.layers):
            if (content, values) != ("silent", "kept"):
                reason = "values='blind' and content='drawn' need a table of positions"
                raise UsageError("C2A004", reason, "Take a network that has one, or leave them out.")
            without = sorted({*trial.layers} - {*tables})
            notes = tuple(f"{name} is unchanged: it has no table of biases" for name in without)
            trial = replace(trial, layers={name: trial.layers[name] for name in tables})
            window = tuple(next(iter(tables.values())).window_size)
            shifts = Shifts.dealt(trial, window, kernel_size, alpha, seed)
            return Start(start_on_biases(shifts, tables), notes=notes)
        layers, notes = layers_on_table(trial, tokens_of)
        trial = replace(trial, layers=layers)
        tokens = tokens_of[next(iter(layers))]
        number, width = tokens.shape[1:]
        table_name, table = table_of(network, parts.positions, number, width)
        sides = token_sides(trial, len(table), number, parts.sides)
        check_grid_tokens(trial, tokens, math.prod(sides))
        shifts = Shifts.dealt(trial, sides, kernel_size, alpha, seed)
        count = wave_count(shifts, width)
        channels = 2 * len(sides) * count
        writers = writers_of(network, layers, width, parts.writers)
        silenced = tuple(name for name in writers if not table_name.startswith(f"{name}."))
        for name in silenced:
            silence(network.get_submodule(name), channels)
        waves = write_waves(shifts, table, count, leading=number > shifts.tokens)
        rows = start_on_waves(shifts, waves, count, content == "drawn", values == "blind")
        return Start(rows, channels, count, silenced, notes)


TABLE = "relative_position_bias_table"
CLASS = -10.0
"""The score of a class token for a query whose target has 0: less than 1e-4 of its attention if that is on the grid."""


def bias_tables(network: nn.Module, layers: Mapping[str, StartLayer]) -> dict[str, Any]:
    """The modules with a table of biases for each displacement in a window, by the layer that adds it.

    Swin's for windows of 7x7 tokens has 169 rows, one per displacement key - query from (6, 6) to (-6, -6), and a
    column per head. BEiT's has three more rows: a class token as query, as key, and as both.

    Raises:
        UnsupportedError: several layers add the same table, so that their heads cannot take offsets apart, or the
            windows of layers differ in size (C2A604).
    """
    tables: dict[str, Any] = {}
    for name, part in network.named_modules():
        if isinstance(table := getattr(part, TABLE, None), Tensor) and hasattr(part, "window_size"):
            around = name if name in layers else name.rpartition(".")[0]
            users = [each for each in layers if f"{each}.".startswith(f"{around}." if around else "")]
            if len(users) > 1 or not tables.keys().isdisjoint(users):
                reason = f"{name}: {len(users)} layers add the same table of biases"
                remedy = "Give each layer a table of its own, or take another network."
                raise UnsupportedError("C2A604", reason, remedy)
            if users and len(table) - math.prod(2 * side - 1 for side in part.window_size) in (0, 3):
                tables[users[0]] = part
    windows = {tuple(part.window_size) for part in tables.values()}
    if len(windows) > 1:
        reason = f"its windows have {len(windows)} sizes"
        remedy = "Pass a larger image if the last windows are cut, or take another network."
        raise UnsupportedError("C2A604", reason, remedy)
    return tables


def start_on_biases(shifts: Shifts, tables: Mapping[str, Any]) -> tuple[StartedHead, ...]:
    """Sets each bias to `-alpha |displacement - offset|^2`, and queries to 0, so that content begins with score 0.

    Returns:
        A row for each head in the first window, which no mask cuts.
    Raises:
        UnsupportedError: its attention differs from the formula by more than rounding (C2A604).
    """
    places = kernel.grid_of([2 * side - 1 for side in shifts.sides]).key_coordinates().double()
    displacements = torch.tensor(shifts.sides) - 1 - places  # key - query
    for name, holder in tables.items():
        table, layer = getattr(holder, TABLE).detach(), shifts.trial.layers[name]
        for head, offset in enumerate(shifts.offsets[name]):
            distances = (displacements - torch.tensor(offset)).square().sum(-1)
            table[: len(distances), head] = (-shifts.alpha * distances).to(table)
        if len(table) > len(displacements):
            table[-2] = CLASS
        for part in (layer.query, *layer.biases[:1]):
            part.zero_()
    return shifts.rows(lambda _, offset: kernel.quadratic(shifts.sides, offset, shifts.alpha)[None], CLASS, images=1)


MOST_LEADING = 16
"""Most class tokens and registers before the pixels."""


def check_grid_tokens(trial: Trial, tokens: Tensor, count: int) -> None:
    """Checks that the last `count` tokens of the first layer are on the grid, so that they depend on the images.

    Raises:
        UnsupportedError: a token does not (C2A604).
    """
    # The seed differs from that of `start_inputs`.
    generator = torch.Generator().manual_seed(1)

    def with_noise(tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator, device="cpu")
        return tensor + noise.to(tensor) if tensor.is_floating_point() and tensor.ndim > 2 else tensor

    name = next(iter(trial.layers))
    other = replace(trial, inputs=tree_map_only(Tensor, with_noise, trial.inputs)).tokens()[name]
    changed = (tokens != other).any(2).any(0)
    if changed.any() and not changed[-count:].all():
        reason = f"{name}: {int((~changed[-count:]).sum())} of its last {count} tokens do not depend on the images"
        raise UnsupportedError("C2A604", reason, "Take a network whose last tokens are its grid, row by row.")


def layers_on_table(trial: Trial, tokens: Mapping[str, Tensor]) -> tuple[dict[str, StartLayer], tuple[str, ...]]:
    """The layers whose tokens have the most common shape, and a sentence for each other layer.

    Raises:
        UnsupportedError: there is no such layer (C2A604).
    """
    layers = trial.layers
    shapes = {
        name: tuple(each.shape[1:])
        for name, each in tokens.items()
        if each.ndim == 3 and each.shape[2] == layers[name].query.shape[1]
    }
    if not shapes:
        reason = f"no layer of {type(trial.network).__name__} attends among (images, tokens, width)"
        remedy = "Name the parts with parts=Parts(...), or pass an example_input of that form."
        raise UnsupportedError("C2A604", reason, remedy)
    usual, _ = Counter(shapes.values()).most_common(1)[0]
    notes = []
    for name in sorted(name for name in layers if shapes.get(name) != usual):
        shape = "x".join(map(str, tokens[name].shape[1:])) if name in tokens else ""
        notes.append(f"{name} is unchanged: " + (f"its queries have {shape} numbers" if shape else "it did not run"))
    return {name: layer for name, layer in layers.items() if shapes.get(name) == usual}, tuple(notes)


def token_sides(trial: Trial, rows: int, tokens: int, sides_argument: tuple[int, ...] | None) -> tuple[int, ...]:
    """The sides of the grid of the first layer's tokens: `sides_argument`, or read from a run.

    Raises:
        UsageError: the sides are unknown, or the rows of the table or the tokens are not a grid and leading ones
            (C2A503).
        UnsupportedError: the run shows that the tokens are not leading tokens and a grid (C2A604).
    """
    sides = sides_argument or ()
    if sides_argument is None:
        layer = next(iter(trial.layers))
        (read,) = read_network(trial.network, trial.inputs, Selection((literally(layer),)))
        if read.tokens is None:
            raise UnsupportedError("C2A604", f"{layer}: {read.unread or read.unplaced}", "Take another network.")
        sides = read.tokens.sides
    if not sides or not all(0 <= count - math.prod(sides) <= MOST_LEADING for count in (rows, tokens)):
        grid = "x".join(map(str, sides)) or "no"
        reason = f"{rows} positions, {tokens} tokens, and {grid} tokens on a grid"
        raise UsageError("C2A503", reason, "Name it: parts=Parts(sides=...).")
    return tuple(sides)
