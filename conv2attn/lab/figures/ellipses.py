"""The numbers behind the pictures of heads: ellipses that hold a share of a head, the order of heads, attention."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.networks.layers import attention_layers, layer_inputs

FloatArray = NDArray[np.float64]
LONGEST_AXIS = 1e4
"""Semi-axes are cut here, in pixels, so that heads that attend to everything can be drawn."""


@final
@dataclass(frozen=True)
class HeadEllipse:
    """The region that holds a share of a Gaussian head.

    Args:
        semi_axes: in pixels, the longer one first.
        angle: of the longer axis in degrees, from the axis of columns towards the axis of rows.
    """

    semi_axes: tuple[float, float]
    angle: float


def ellipse(precision: FloatArray, share: float) -> HeadEllipse:
    """Where the density proportional to `exp(-1/2 d^T precision d)`, `d` from the centre, has `share` of its mass.

    In the plane this is `d^T precision d <= -2 ln(1 - share)`: for a quadratic head, whose precision is `2 alpha`
    times the identity, a circle of squared radius `-ln(1 - share) / alpha`.
    """
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    reach = -2 * math.log1p(-share)
    long, short = (min(LONGEST_AXIS, math.sqrt(reach / value)) if value > 0 else LONGEST_AXIS for value in values)
    down, right = vectors[:, 0]
    angle = math.degrees(math.atan2(down, right)) % 180
    return HeadEllipse((long, short), angle)


def reading_order(places: FloatArray) -> list[int]:
    """The heads in the order in which a square of their places is read: rows from the top, each from the left.

    Args:
        places: (heads, 2), the row and column that each head attends to.
    """
    heads = len(places)
    width = math.ceil(math.sqrt(heads))
    by_row = sorted(range(heads), key=lambda head: places[head][0])
    rows = [by_row[start : start + width] for start in range(0, heads, width)]
    return [head for row in rows for head in sorted(row, key=lambda head: places[head][1])]


def mean_places(attention: FloatArray, query: tuple[int, int]) -> FloatArray:
    """The mean displacement of each head, (heads, 2), for attention (heads, rows, columns) that sums to 1."""
    rows, columns = (np.arange(side) - place for side, place in zip(attention.shape[1:], query, strict=True))
    return np.stack([attention.sum(2) @ rows, attention.sum(1) @ columns], 1)


@torch.no_grad()
def attention_of_query(network: nn.Module, images: Tensor, query: tuple[int, int] | None) -> dict[str, FloatArray]:
    """The attention of one query in every layer: (images, heads, rows, columns) by layer.

    Args:
        images: as the network takes them.
        query: row and column of the token that asks; by default the one in the middle.
    Raises:
        UsageError: there is no such token (C2A002).
    """
    layers, inputs = attention_layers(network), layer_inputs(network.eval(), images)
    return {name: attention_rows_of(layers[name], image, query) for name, image in inputs.items()}


def attention_rows_of(layer: nn.Module, image: Tensor, query: tuple[int, int] | None) -> FloatArray:
    """The attention of one query of a layer: (images, heads, rows, columns)."""
    rows, columns = image.shape[2:]
    row, column = query or (rows // 2, columns // 2)
    if not (0 <= row < rows and 0 <= column < columns):
        raise UsageError(
            "C2A002", f"query {row},{column} is none of {rows}x{columns} tokens", "Pass a --query on the grid."
        )
    query_index, attention_rows = row * columns + column, []
    for single_image in image.split(1):
        for queries, attention in layer.attention_chunks(single_image):  # type: ignore[operator]
            if queries.start <= query_index < queries.stop:
                attention_rows.append(attention[:, :, query_index - queries.start])
    return torch.cat(attention_rows).unflatten(-1, (rows, columns)).cpu().double().numpy()


def snapshots(epochs: int, count: int) -> list[int]:
    """Epochs to show, the first and the last among them, evenly spread.

    >>> snapshots(300, 4), snapshots(2, 6)
    ([0, 100, 200, 300], [0, 1, 2])
    """
    return sorted({round(epochs * part / max(1, count - 1)) for part in range(count)})
