"""Heads that begin as shifts: by waves in the table of positions, by a given table, or by tables of relative biases.

And values and outputs that begin as the taps of a convolution: the factors of Lemma 1, where heads are wide enough.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.arguments import call_network
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.capture import capture
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import StartLayer, tokens_in
from conv2attn.networks.starts.start_report import StartedHead, started_heads
from conv2attn.networks.values import value_and_output

SHARE = 2 / 3
"""The share of the waves in the squared norm of the first layer's tokens. With a smaller share, changes in the norm of
content blur the heads; with a larger one, a layer norm leaves little content. Chosen on a validation split of
Fashion-MNIST among 0.3, 2/3, 0.9."""
WRITTEN = 1e-3
"""The share of position channels that may come from elsewhere: rounding; content is at least a hundred times that."""
TABLE = "relative_position_bias_table"
CLASS = -10.0
"""The score of a class token for a query whose target has 0: less than 1e-4 of its attention if that is on the grid."""
Offsets = Mapping[str, Sequence[tuple[int, ...]]]


def write_positions(network: nn.Module, table: Tensor, waves: Tensor, leading: int) -> None:
    """Puts the waves into the last rows of a table; every row has mean zero, and leading tokens no waves."""
    tokens, channels = waves.shape
    table[-tokens:, :channels] = waves.to(table)
    table[-tokens:, channels:] = (-waves.sum(1, keepdim=True) / (table.shape[1] - channels)).to(table)
    leading_rows = [table[:-tokens]]
    leading_rows += [
        p.detach() for name, p in network.named_parameters() if "token" in name.rpartition(".")[2] and leading
    ]
    for rows in leading_rows:
        if rows.shape[-1] == table.shape[1]:
            rows[..., :channels] = 0
            rows[..., channels:] -= rows[..., channels:].mean(-1, keepdim=True)


def silence(module: Any, channels: int) -> None:
    """Zeroes what a module writes into the first channels, and centres what it writes into the others."""
    weight = module.weight.detach()
    weight = weight.T if isinstance(module, nn.Embedding) else weight
    for part in (weight, *([] if getattr(module, "bias", None) is None else [module.bias.detach()])):
        part[:channels] = 0
        part[channels:] -= part[channels:].mean(0)


def scale_of(tokens: Tensor, waves: Tensor) -> Tensor:
    """The amplitude of the waves in the position channels of each token, (images, tokens)."""
    return (tokens * waves).sum(-1) / waves.square().sum(-1)


@contextmanager
def before_each(
    layers: Sequence[StartLayer], tokens: int, action: Callable[[StartLayer, Tensor], None]
) -> Iterator[None]:
    """Calls `action` before each layer runs, with its last tokens in float64, (images, tokens, d).

    Raises:
        UsageError: they are none, or not finite (C2A009).
    """
    by_module = {layer.module: layer for layer in layers}

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        here = tokens_in(module, args, kwargs)[:, -tokens:].cpu().double()
        check_finite(by_module[module].name, here)
        action(by_module[module], here)

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in by_module]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_finite(name: str, tokens: Tensor) -> None:
    """Raises: UsageError: the tokens of a layer are none, or not finite (C2A009)."""
    if not tokens.numel() or not tokens.isfinite().all():
        reason = f"{name}: its tokens are not finite, or there are none"
        raise UsageError("C2A009", reason, "Pass a finite example_input.")


def odds_of(network: nn.Module, inputs: Any, first: StartLayer, waves: Tensor) -> float:
    """The squared norm of the waves in the tokens of a layer, over that of everything else."""
    odds = []

    def measure(layer: StartLayer, tokens: Tensor) -> None:
        part = scale_of(tokens[..., : waves.shape[1]], waves).square() * waves.square().sum(-1)
        odds.append(float(part.mean() / (tokens.square().sum(-1) - part).mean()))

    with before_each([first], len(waves), measure):
        call_network(network, inputs)
    return odds[0]


def start_channels(
    network: nn.Module,
    inputs: Any,
    layers: Sequence[StartLayer],
    head_offsets: Offsets,
    waves: Tensor,
    sides: tuple[int, ...],
    count: int,
    alpha: float,
    *,
    content: bool,
) -> list[StartedHead]:
    """Sets queries and keys layer by layer while the network runs; they keep what they read of `content`, or lose it.

    Returns:
        The attention that each head has on the inputs, beside the quadratic head's; with content the bound is
        measured on these inputs.
    Raises:
        UnsupportedError: a layer's position channels hold something else than scaled waves, or a head attends elsewhere
            than its queries and keys say (C2A604).
    """
    scales: dict[str, Tensor] = {}  # by which the waves of each token are scaled, (images, tokens), over their mean
    channels = waves.shape[1]
    size = float(waves[0].norm() / (channels / 2) ** 0.5)  # of one wave: a sine and its cosine have norm 1

    def set_heads(layer: StartLayer, tokens: Tensor) -> None:
        here = tokens[..., :channels]
        scale = scale_of(here, waves)
        strange = float((here - scale[..., None] * waves).norm() / here.norm())
        if not strange <= WRITTEN or not scale.min() > 0:
            reason = f"{layer.name}: {strange:.0%} of its position channels is not positions"
            raise UnsupportedError(
                "C2A604", reason, "Name the parts that write positions with parts=Parts(writers=[...])."
            )
        mean = float(scale.mean())
        scales[layer.name] = scale / mean
        gain = layer.width**0.25 / (mean * size)
        for bias in layer.biases:
            bias.zero_()
        for head, offset in enumerate(head_offsets[layer.name]):
            rows = slice(head * layer.width, (head + 1) * layer.width)
            query, key = kernel.readers(sides, count, offset, alpha)
            columns = slice(channels if content else None)
            layer.query[rows, columns] = 0
            layer.query[rows][:channels, :channels] = (gain * query).to(layer.query)
            layer.key[rows][:channels, columns] = 0
            layer.key[rows][:channels, :channels] = (gain * key).to(layer.key)

    with before_each(layers, len(waves), set_heads):
        call_network(network, inputs)
    attention, rows = capture(network, inputs), list[StartedHead]()
    for name, offsets in head_offsets.items():
        leading = maps.shape[-1] - len(waves) if isinstance(maps := attention[name], Tensor) else 0
        norm_factors = scales[name][:, :, None] * scales[name][:, None]
        scores = [norm_factors * kernel.scores(sides, count, offset, alpha) for offset in offsets]
        expected = [nn.functional.pad(each, (leading, 0)).softmax(-1) for each in scores]
        rows += started_heads(name, attention[name], offsets, alpha, sides, None if content else expected)
    return rows


def start_on_table(
    network: nn.Module,
    inputs: Any,
    layers: Sequence[StartLayer],
    head_offsets: Offsets,
    sides: tuple[int, ...],
    alpha: float,
) -> tuple[list[StartedHead], tuple[str, ...]]:
    """Sets queries and keys so that `q . k` is nearest to `-alpha |k - q - offset|^2` on the mean tokens of noise.

    Keys give `(k, |k|^2)` and queries `(2 alpha (q + offset), -alpha)`: axes + 1 numbers of each head. Where the mean
    tokens have full row rank both are met exactly; content that arrives with them is read as well.

    Returns:
        The attention that each head has on the inputs, with a bound that is measured, and for each layer a sentence
        with the largest error of such a score on the mean tokens, as a share of their spread.
    Raises:
        UnsupportedError: heads narrower than axes + 1 (C2A604).
    """
    notes = []
    positions = kernel.grid_positions(sides)
    positions = positions - positions.mean(0)

    def fit(layer: StartLayer, tokens: Tensor) -> None:
        if layer.width <= len(sides):
            reason = f"{layer.name}: heads of {layer.width} numbers are narrower than {len(sides) + 1}"
            raise UnsupportedError("C2A604", reason, "Take fewer heads.")
        mean = tokens.mean(0)
        keys = torch.cat([positions, positions.square().sum(1, keepdim=True)], 1)
        for bias in layer.biases:
            bias.zero_()
        worst = 0.0
        for head, offset in enumerate(head_offsets[layer.name]):
            shifted = positions + torch.tensor(offset)
            queries = torch.cat([2 * alpha * shifted, torch.full_like(shifted[:, :1], -alpha)], 1)
            balance = (queries.norm() / keys.norm()).sqrt()
            root = layer.width**0.25
            rows = slice(head * layer.width, (head + 1) * layer.width)
            products = []
            for weight, wanted in ((layer.query, root * queries / balance), (layer.key, root * keys * balance)):
                solution = torch.linalg.lstsq(mean, wanted, driver="gelsd").solution.T
                weight[rows] = 0
                weight[rows][: len(solution)] = solution.to(weight)
                products.append(mean @ solution.T)
            scores, wanted = products[0] @ products[1].T / root**2, queries @ keys.T
            error = scores - wanted
            error = error - error.mean(1, keepdim=True)  # a softmax does not see what depends on the query alone
            worst = max(worst, float(error.abs().max() / wanted.std()))
        notes.append(f"{layer.name}: scores on mean tokens are off by {worst:.2g}")

    with before_each(layers, len(positions), fit):
        call_network(network, inputs)
    attention = capture(network, inputs)
    rows = [
        row
        for name, offsets in head_offsets.items()
        for row in started_heads(name, attention[name], offsets, alpha, sides)
    ]
    return rows, tuple(notes)


def tables_of(network: nn.Module, layers: Mapping[str, StartLayer]) -> dict[str, Any]:
    """The modules with a table of biases for each displacement, (displacements, heads), by the layer that adds it.

    After the displacements BEiT's tables have three rows, for a class token as query, as key, and as both.

    Raises:
        UnsupportedError: several layers add the same table, so that their heads cannot take offsets apart (C2A604).
    """
    modules: dict[str, Any] = {}
    for name, part in network.named_modules():
        if isinstance(table := getattr(part, TABLE, None), Tensor):
            around = name if name in layers else name.rpartition(".")[0]
            layer_names = [each for each in layers if f"{each}.".startswith(f"{around}." if around else "")]
            if len(layer_names) > 1 or any(each in modules for each in layer_names):
                raise UnsupportedError(
                    "C2A604",
                    f"{name}: {len(layer_names)} layers add the same table of biases",
                    "Give each layer a table of its own, or take another network.",
                )
            if layer_names and len(table) - math.prod(2 * side - 1 for side in sides_of_table(part)) in (0, 3):
                modules[layer_names[0]] = part
    return modules


def sides_of_table(part: Any) -> tuple[int, ...]:
    """The sides of the window whose displacements a table has."""
    window = getattr(part, "window_size", None)
    side = (math.isqrt(len(getattr(part, TABLE))) + 1) // 2  # torchvision's MaxViT does not say it
    return tuple(window) if isinstance(window, Sequence) else (side, side)


def start_tables(
    network: nn.Module,
    inputs: Any,
    tables: Mapping[str, Any],
    layers: Mapping[str, StartLayer],
    head_offsets: Offsets,
    alpha: float,
) -> list[StartedHead]:
    """Sets each bias to `-alpha |displacement - offset|^2`, and queries to 0, so that content begins at nothing.

    Returns:
        The attention of each head in the first window, which no mask cuts, beside the quadratic head's.
    Raises:
        UnsupportedError: they differ by more than rounding (C2A604).
    """
    for name, holder in tables.items():
        sides, table = sides_of_table(holder), getattr(holder, TABLE).detach()
        displacements = torch.tensor(sides) - 1 - kernel.grid_positions([2 * side - 1 for side in sides])  # key - query
        for head, offset in enumerate(head_offsets[name]):
            distances = displacements - torch.tensor(offset)
            table[: len(distances), head] = (-alpha * distances.square().sum(-1)).to(table)
        if len(table) > len(displacements):
            table[-2] = CLASS
        layers[name].query.zero_()
        for bias in layers[name].biases[:1]:
            bias.zero_()
    attention, rows = capture(network, inputs), list[StartedHead]()
    for name, holder in tables.items():
        sides = sides_of_table(holder)
        leading = int(len(getattr(holder, TABLE)) > math.prod(2 * side - 1 for side in sides))
        scores = [kernel.quadratic(sides, offset, alpha) for offset in head_offsets[name]]
        expected = [nn.functional.pad(each, (leading, 0), value=CLASS).softmax(-1)[None] for each in scores]
        first_window = maps[:1] if isinstance(maps := attention[name], Tensor) else maps
        rows += started_heads(name, first_window, head_offsets[name], alpha, sides, expected)
    return rows


def blind_values(network: nn.Module, layers: Mapping[str, StartLayer], channels: int) -> None:
    """Lets the values of each layer begin without the position channels.

    Raises:
        UnsupportedError: the values of a layer are not known (C2A604).
    """
    for name in layers:
        value_of(network, name)[0].weight.data[:, :channels] = 0


def value_of(network: nn.Module, name: str) -> tuple[Any, Any]:
    """The linear maps of a layer to its values and to its outputs.

    Raises:
        UnsupportedError: they are not known (C2A604).
    """
    if (parts := value_and_output(network, name)) is None:
        reason = f"{name}: its values and outputs are not linear layers that are known"
        raise UnsupportedError("C2A604", reason, "Leave values out, or take another network.")
    return parts


def check_convolution(convolution: nn.Module, content: int, axes: int) -> Sequence[int]:
    """The kernel size of a convolution between the channels of content.

    Raises:
        UsageError: it is no such convolution (C2A007).
    """
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    if not isinstance(convolution, kinds) or convolution.weight.is_meta or len(convolution.kernel_size) != axes:
        raise UsageError(
            "C2A007",
            f"values={convolution} is no convolution of {axes} axes with weights",
            "Pass a convolution of as many axes as the grid, with weights.",
        )
    if convolution.groups != 1 or {*convolution.stride, *convolution.dilation} != {1}:
        reason = f"values={convolution} has groups, or a stride or dilation above 1"
        raise UsageError("C2A007", reason, "Pass a plain convolution.")
    if not convolution.in_channels == convolution.out_channels == content:
        reason = f"values: {convolution.in_channels} to {convolution.out_channels} channels, and {content} hold content"
        raise UsageError("C2A007", reason, f"Pass a convolution from {content} to {content} channels.")
    return convolution.kernel_size


def take_values(
    network: nn.Module,
    layers: Mapping[str, StartLayer],
    head_offsets: Mapping[str, Sequence[tuple[int, ...]]],
    offsets: Sequence[tuple[int, ...]],
    convolution: nn.Module,
) -> None:
    """Sets values and outputs so that the heads at an offset have its tap between them, on the last channels.

    Each tap is `U S V^T`; a head takes as many singular values as it is wide. The position channels are neither read
    nor written.

    Raises:
        UnsupportedError: a tap has a rank above the width of its heads, or no head (C2A604), or the values of a layer
            are not known.
    """
    taps: torch.Tensor = convolution.weight.detach()  # type: ignore[operator]
    weight, rounding = taps.double().flatten(2), len(taps) * torch.finfo(taps.dtype).eps
    for name, layer in layers.items():
        value, output = value_of(network, name)
        start = output.weight.shape[0] - weight.shape[0]
        for tap, offset in enumerate(offsets):
            heads = [head for head, head_offset in enumerate(head_offsets[name]) if head_offset == offset]
            left, sizes, right = torch.linalg.svd(weight[..., tap])
            rank = int((sizes > sizes[0] * rounding).sum())
            if rank > len(heads) * layer.width:
                reason = f"{name}: the tap at {offset} has rank {rank}, and {len(heads)} heads of {layer.width} numbers"
                raise UnsupportedError("C2A604", reason, "Take a convolution of lower rank, or wider or more heads.")
            for place, head in enumerate(heads):
                chosen = slice(place * layer.width, (place + 1) * layer.width)
                root = sizes[chosen].sqrt()
                rows = slice(head * layer.width, (head + 1) * layer.width)
                for matrix, factor in (
                    (value.weight.data[rows], root[:, None] * right[chosen]),
                    (output.weight.data[:, rows].T, root[:, None] * left[:, chosen].T),
                ):
                    matrix.zero_()
                    matrix[: len(factor), start:] = factor.to(matrix)
        for bias in (value.bias, output.bias):
            if bias is not None:
                bias.data.zero_()
        if output.bias is not None and convolution.bias is not None:
            output.bias.data[start:] = convolution.bias.detach().to(output.bias)  # type: ignore[operator]
