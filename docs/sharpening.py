"""Writes docs/heads.svg: the heads of the first 3x3 convolution of layer1 of ResNet18, while they sharpen."""

from html import escape
from itertools import product
from math import ceil
from pathlib import Path

import torch

from conv2attn import convert
from conv2attn.files import load
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.theory.basis import isotropic

ROOT = Path(__file__).parent.parent
LAYER = "layer1.0.conv1"

ALPHAS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0, 8.0)
CELL, GAP, SECONDS = 14, 16, 6
INK, FRAME = "#0b6e99", "#999"
PICTURE_STYLE = "text{font:12px system-ui,sans-serif;fill:#777}"


def moving_picture(layer: MultiHeadSelfAttention, name: str) -> str:
    """Where each head of a 2-D layer looks around a query, while all alphas rise from 0.05 to 8 and fall again.

    Rows and columns of heads are those of their centres, so that the heads stand as the taps of the kernel.
    """
    heads = isotropic(layer.positions)
    assert heads is not None
    centers = heads.center.detach().double()
    rows, columns = (sorted(set(axis)) for axis in centers.T.tolist())
    reach = ceil(centers.abs().max().item()) + 1
    side = (2 * reach + 1) * CELL
    width, height = len(columns) * (side + GAP) + GAP, len(rows) * (side + GAP) + GAP + 20
    parts = [f'<text x="{GAP}" y="14">{escape(name)}</text>']
    for center in centers:
        left = GAP + columns.index(center[1].item()) * (side + GAP)
        top = 20 + GAP + rows.index(center[0].item()) * (side + GAP)
        parts += head(center, reach, left, top)
    title = f"<title>The heads of {escape(name)} sharpen until each attends to one pixel</title>"
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{title}<style>{PICTURE_STYLE}</style>{"".join(parts)}</svg>\n'
    )


def head(center: torch.Tensor, reach: int, left: float, top: float) -> list[str]:
    """One head: a cell for each key around the query, whose ink is its share of the largest attention."""
    keys = torch.tensor(list(product(range(-reach, reach + 1), repeat=2))).double()
    squared = (keys - center).square().sum(1)
    attention = torch.stack([torch.softmax(-alpha * squared, 0) for alpha in ALPHAS])
    shares = (attention / attention.amax(1, keepdim=True)).T
    side = (2 * reach + 1) * CELL
    frame = f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="{FRAME}"/>'
    cells = []
    for (row, column), share in zip(keys.int().tolist(), shares.tolist(), strict=True):
        values = ";".join(f"{value:.2f}" for value in (*share, *reversed(share)))
        place = f'x="{left + (column + reach) * CELL}" y="{top + (row + reach) * CELL}"'
        moves = f'<animate attributeName="fill-opacity" dur="{SECONDS}s" repeatCount="indefinite" values="{values}"/>'
        cells.append(f'<rect {place} width="{CELL}" height="{CELL}" fill="{INK}" fill-opacity="0">{moves}</rect>')
    query = reach * CELL
    box = f'x="{left + query}" y="{top + query}" width="{CELL}" height="{CELL}"'
    return [*cells, frame, f'<rect {box} fill="none" stroke="#d55e00" stroke-width="1.5"/>']


if __name__ == "__main__":
    layer = convert(load(ROOT / "examples" / "resnet18.pt").get_submodule(LAYER), alpha=2)
    (ROOT / "docs" / "heads.svg").write_text(moving_picture(layer, LAYER))
