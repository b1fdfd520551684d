"""Heads that are one-hot in this dtype: read each head's target through a strided view, and multiply once."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from conv2attn.layers.attention.engines.channels import joined, project, rows_per_slab, with_flat_positions
from conv2attn.layers.attention.hardness import within_margins
from conv2attn.layers.attention.recipe import Evaluation, Question
from conv2attn.theory.basis import Basis, Offset, Padding, Sides, Sites

CACHED = 4 * 2**20  # measured on ResNet-18: slabs of 2 to 8 MiB are fastest, and take a fraction of the memory


def decide(question: Question) -> Evaluation | str:
    """The recipe if the attention is position-only and bitwise one-hot, otherwise why not."""
    offsets = question.offsets()
    if isinstance(offsets, str):
        return offsets
    if stray := question.stray(offsets):
        if not question.basis.operators.reads_nearest:
            return f"{stray}, where heads of this family may not read the nearest key"
        if question.traced:
            return stray
    limit = min(question.memory_limit, CACHED) if question.device.type == "cpu" else question.memory_limit
    return partial(
        run, offsets=offsets, direct=question.facts.indirect is None, limit=None if question.traced else limit
    )


def run(basis: Basis, image: Tensor, offsets: tuple[Offset, ...], direct: bool, limit: int | None) -> Tensor:
    """The layer with every softmax replaced by the key with all its weight, in slabs under the limit."""
    keys, sites = basis.padding.pad(image), basis.sites
    if not within_margins(sites, offsets):
        sides = tuple(keys.shape[2:])  # at least a side away, the nearest key is the last
        offsets = tuple(tuple(max(-n, min(x, n)) for x, n in zip(each, sides, strict=True)) for each in offsets)
        overshoot, sites = continued(sites, sides, offsets)
        keys = overshoot.pad(keys)
    # Each head is a strided view of the keys, so nothing is copied before the slabs are stacked.
    views = [keys[sites.view(tuple(keys.shape[2:]), offset)] for offset in offsets]
    if limit is None:
        result = project(torch.stack(views, 2), basis.weights, direct)
    else:
        # Slabs of rows stay in the cache: stacking all heads of the whole image would take K^2 times its memory.
        rows, slab = views[0].shape[2], rows_per_slab(basis, image.shape, image.element_size(), len(offsets), limit)
        pieces = [
            project(torch.stack([view.narrow(2, at, min(slab, rows - at)) for view in views], 2), basis.weights, direct)
            for at in range(0, rows, slab)
        ]
        result = joined(pieces, 2)
    return with_flat_positions(result, basis.operators)


def continued(sites: Sites, keys: Sides, offsets: tuple[Offset, ...]) -> tuple[Padding, Sites]:
    """The replicate padding that puts every target on the grid, and the sites on the padded grid.

    Without padding, a hard head with quadratic encoding reads the nearest key: claim PAD of proofs/.
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
