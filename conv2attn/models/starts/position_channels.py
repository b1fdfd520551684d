"""Heads that begin as shifts by position channels: waves in the table, which queries and keys read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from conv2attn.arguments import call_network
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.models.capture import capture
from conv2attn.models.starts import kernel
from conv2attn.models.starts.parts import StartLayer, tokens_in
from conv2attn.models.starts.start_report import StartedHead, started_heads
from conv2attn.models.starts.start_tables import Offsets

SHARE = 2 / 3
"""Of the squared norm of the first layer's tokens, for the waves. Less lets the norm of content blur the heads, more
leaves little of content behind a layer norm. Chosen on a validation split of Fashion-MNIST among 0.3, 2/3 and 0.9."""
WRITTEN = 1e-3
"""The share of position channels that may come from elsewhere: rounding; content is at least a hundred times that."""


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
        here = tokens_in(module, args, kwargs)[:, -tokens:].double().cpu()
        if not here.numel() or not here.isfinite().all():
            reason = f"{by_module[module].name}: its tokens are not finite, or there are none"
            raise UsageError("C2A009", reason, "Pass a finite example_input.")
        action(by_module[module], here)

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in by_module]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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
) -> list[StartedHead]:
    """Sets queries and keys layer by layer while the network runs.

    Returns:
        The attention that each head has on the inputs, beside the quadratic head's.
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
            layer.query[rows] = 0
            layer.query[rows][:channels, :channels] = (gain * query).to(layer.query)
            layer.key[rows][:channels] = 0
            layer.key[rows][:channels, :channels] = (gain * key).to(layer.key)

    with before_each(layers, len(waves), set_heads):
        call_network(network, inputs)
    attention, rows = capture(network, inputs), list[StartedHead]()
    for name, offsets in head_offsets.items():
        leading = attention[name].shape[-1] - len(waves) if isinstance(attention[name], Tensor) else 0
        norm_factors = scales[name][:, :, None] * scales[name][:, None]
        scores = [norm_factors * kernel.scores(sides, count, offset, alpha) for offset in offsets]
        expected = [nn.functional.pad(each, (leading, 0)).softmax(-1) for each in scores]
        rows += started_heads(name, attention[name], offsets, alpha, sides, expected)
    return rows
