"""Heads that begin as shifts by sines and cosines in the table of positions, the waves.

With 64 numbers per token, 8 heads of 8 numbers and 7x7 tokens: 2 waves per axis, so `channels` is 8. These numbers of a
token hold the waves alone, and the other 56 its content.
"""

import math
from typing import Any

from torch import Tensor, nn

from conv2attn.errors import UnsupportedError
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.shifts import Offset, Shifts, StartedHead
from conv2attn.networks.values import projections_of

SHARE = 2 / 3
"""The share of the waves in the squared norm of the first layer's tokens. With a smaller share, changes in the norm of
content blur the heads; with a larger one, a layer norm leaves little content. Chosen on a validation split of
Fashion-MNIST among 0.3, 2/3, 0.9."""
WRITTEN = 1e-3
"""The share of position channels that may come from elsewhere: rounding; content is at least a hundred times that."""


def wave_count(shifts: Shifts, width: int) -> int:
    """The number of waves per axis: as many as the narrowest heads can read in tokens of this width.

    Raises:
        UnsupportedError: heads or tokens are too narrow (C2A604).
    """
    axes, narrowest = len(shifts.sides), min(shifts.trial.layers.values(), key=lambda layer: layer.width)
    if narrowest.width < 2 * axes:
        reason = f"{narrowest.name}: heads of {narrowest.width} numbers are narrower than {2 * axes}"
        raise UnsupportedError("C2A604", reason, "Take fewer heads.")
    count = kernel.fitting_count(shifts.sides, shifts.alpha, min(narrowest.width, width // 2))
    if 2 * axes * count >= width:
        reason = f"{2 * axes * count} position channels leave none of {width} to content"
        raise UnsupportedError("C2A604", reason, "Take a wider network.")
    return count


def silence(module: Any, channels: int) -> None:
    """Zeroes a module's output in the first channels, and centres it in the others."""
    weight = module.weight.detach()
    weight = weight.T if isinstance(module, nn.Embedding) else weight
    for part in (weight, *([] if getattr(module, "bias", None) is None else [module.bias.detach()])):
        part[:channels] = 0
        part[channels:] -= part[channels:].mean(0)


def write_waves(shifts: Shifts, table: Tensor, count: int, leading: bool) -> Tensor:
    """Puts waves of `SHARE` of the first layer's tokens into the last rows of a table of positions, and returns them.

    Every row has mean zero. Leading tokens get no waves.
    """
    waves = kernel.waves(shifts.sides, count)
    write_positions(shifts.trial.network, table, waves, leading)
    odds = list[float]()

    def measure(layer: StartLayer, tokens: Tensor) -> None:
        part = scale_of(tokens[..., : waves.shape[1]], waves).square() * waves.square().sum(-1)
        odds.append(float(part.mean() / (tokens.square().sum(-1) - part).mean()))

    shifts.run(measure)
    waves = waves * math.sqrt(SHARE / (1 - SHARE) / odds[0])
    write_positions(shifts.trial.network, table, waves, leading)
    return waves


def write_positions(network: nn.Module, table: Tensor, waves: Tensor, leading: bool) -> None:
    """Puts the waves into the last rows of a table; every row has mean zero, and leading tokens no waves."""
    tokens, channels = waves.shape
    table[-tokens:, :channels] = waves.to(table)
    table[-tokens:, channels:] = (-waves.sum(1, keepdim=True) / (table.shape[1] - channels)).to(table)
    named = [p.detach() for name, p in network.named_parameters() if leading and "token" in name.rpartition(".")[2]]
    for rows in (table[:-tokens], *named):
        if rows.shape[-1] == table.shape[1]:
            rows[..., :channels] = 0
            rows[..., channels:] -= rows[..., channels:].mean(-1, keepdim=True)


def scale_of(tokens: Tensor, waves: Tensor) -> Tensor:
    """The amplitude of the waves in the position channels of each token, (images, tokens)."""
    return (tokens * waves).sum(-1) / waves.square().sum(-1)


def start_on_waves(shifts: Shifts, waves: Tensor, count: int, content: bool, blind: bool) -> tuple[StartedHead, ...]:
    """Sets queries and keys to read the waves, layer by layer.

    Args:
        content: queries and keys read the other channels with their random weights; the bound of a row is then measured
            on the inputs.
        blind: values do not read the waves.
    Raises:
        UnsupportedError: a layer's position channels are not scaled waves, a head attends elsewhere than its queries
            and keys imply, or the values are not a linear layer, which `blind` needs (C2A604).
    """
    scales = dict[str, Tensor]()  # factors on the waves of each token, (images, tokens), relative to their mean
    channels = waves.shape[1]
    size = float(waves[0].norm() / (channels / 2) ** 0.5)  # of one wave: a sine and its cosine have norm 1

    def set_heads(layer: StartLayer, tokens: Tensor) -> None:
        here = tokens[..., :channels]
        scale = scale_of(here, waves)
        strange = float((here - scale[..., None] * waves).norm() / here.norm())
        if not strange <= WRITTEN or not scale.min() > 0:
            reason = f"{layer.name}: {strange:.0%} of its position channels is not positions"
            remedy = "Name what writes to tokens with parts=Parts(writers=[...])."
            shuffled = "For tokens that are shuffled, as ViTMAE's are, pass an example_input that keeps their order."
            raise UnsupportedError("C2A604", reason, f"{remedy} {shuffled}")
        mean = float(scale.mean())
        scales[layer.name] = scale / mean
        gain = layer.width**0.25 / (mean * size)
        for bias in layer.biases:
            bias.zero_()
        columns = slice(channels if content else None)
        for offset, query_rows, key_rows in shifts.heads(layer):
            query, key = kernel.readers(shifts.sides, count, offset, shifts.alpha)
            query_rows[:, columns] = 0
            query_rows[:channels, :channels] = (gain * query).to(query_rows)
            key_rows[:channels, columns] = 0  # other rows stay random, which gives the queries' rows a gradient
            key_rows[:channels, :channels] = (gain * key).to(key_rows)
        if blind:
            maps = projections_of(layer.module)
            if "value" not in maps:
                reason = f"{layer.name}: its values are not a linear layer that is known"
                raise UnsupportedError("C2A604", reason, "Leave values out, or take another network.")
            maps["value"].weight.detach()[:, :channels] = 0

    def scores(name: str, offset: Offset) -> Tensor:
        norm_factors = scales[name][:, :, None] * scales[name][:, None]
        return norm_factors * kernel.scores(shifts.sides, count, offset, shifts.alpha)

    shifts.run(set_heads)
    return shifts.rows(None if content else scores)
