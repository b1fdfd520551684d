"""Heads that begin as shifts on an existing table of positions: queries and keys are fitted by least squares."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.arguments import call_network
from conv2attn.errors import UnsupportedError
from conv2attn.models.capture import capture
from conv2attn.models.starts import kernel
from conv2attn.models.starts.parts import StartLayer
from conv2attn.models.starts.position_channels import before_each
from conv2attn.models.starts.start_report import StartedHead, started_heads
from conv2attn.models.starts.start_tables import Offsets


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
