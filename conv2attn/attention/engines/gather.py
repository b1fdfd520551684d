"""Heads that are one-hot in this dtype: read each head's target through a strided view, and multiply once."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.attention.call import Call
from conv2attn.attention.encodings import QuadraticEncoding
from conv2attn.attention.engines.channels import project
from conv2attn.attention.hardness import first_stray, hard_offsets, with_flat_positions
from conv2attn.basis import Offset, Padding, Sides, Sites

CACHED = 4 * 2**20  # measured on ResNet-18: slabs of 2 to 8 MiB are fastest, and take a fraction of the memory


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run if the attention is position-only and bitwise one-hot, else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    offsets = hard_offsets(call.layer.encoding, call.image.dtype)
    if isinstance(offsets, str):
        return offsets
    stray = None if isinstance(call.layer.encoding, QuadraticEncoding) else first_stray(call.grid, offsets)
    if stray is not None:
        return f"head {stray} leaves the grid at offset {offsets[stray]}, where this encoding wraps around"
    return lambda: with_flat_positions(run(call, offsets), call.layer.encoding)


def run(call: Call, offsets: tuple[Offset, ...]) -> Tensor:
    """The layer with every softmax replaced by the key that it puts all its weight on, in slabs under the limit."""
    overshoot, sites = continued(call.sites, call.grid.keys, offsets)
    keys = overshoot.pad(call.padded)
    views = [keys[sites.view(tuple(keys.shape[2:]), offset)] for offset in offsets]
    rows, *others = call.grid.queries
    slab = rows_per_slab(call, math.prod(others) * len(offsets))
    pieces = [
        project(torch.stack([view.narrow(2, start, min(slab, rows - start)) for view in views], 2), call.weights)
        for start in range(0, rows, slab)
    ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def continued(sites: Sites, keys: Sides, offsets: tuple[Offset, ...]) -> tuple[Padding, Sites]:
    """The replication that puts every target on the grid, and the same sites on the grid so continued.

    Without padding a hard head of a quadratic encoding reads its nearest key there is: claim PAD of proofs/.
    """
    last = [b + (n - 1) * s for b, n, s in zip(sites.before, sites.count(keys), sites.stride, strict=True)]
    axes: list[tuple[Any, ...]] = list(zip(*offsets, strict=True))
    before = tuple(max(0, -b - min(axis)) for b, axis in zip(sites.before, axes, strict=True))
    after = tuple(max(0, end + max(axis) - side + 1) for end, axis, side in zip(last, axes, keys, strict=True))
    moved = Sites(
        sites.stride,
        tuple(b + more for b, more in zip(sites.before, before, strict=True)),
        tuple(a + more for a, more in zip(sites.after, after, strict=True)),
    )
    return Padding(before, after, "replicate"), moved


def rows_per_slab(call: Call, columns_per_row: int) -> int:
    """How many rows of queries at once keep the gathered columns under the memory limit, and a CPU's caches; at least
    one.
    """
    row = call.image.element_size() * call.image.shape[0] * call.image.shape[1] * columns_per_row
    limit = min(call.memory_limit, CACHED) if call.image.device.type == "cpu" else call.memory_limit
    return max(1, limit // max(1, row))
