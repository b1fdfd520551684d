"""Licences of the geometry: sites, padding, strides, and heads that look beyond the grid."""

from itertools import product

import numpy as np
from licences.cases import Licence, exact, sides_of, sites_of

import proofs.L1 as L1
from conv2attn.theory.basis import AttentionGrid, Padding


def sites_read_the_keys(of_kernel, case):
    sides, kernel, stride, dilation = case
    grid = AttentionGrid(sides, of_kernel(kernel, stride, dilation))
    for axis, (side, k, s, d) in enumerate(zip(sides, kernel, stride, dilation, strict=True)):
        values = {"s": s, "d": d, "K": k, "P": side, "m": (k - 1) // 2}
        if grid.queries[axis] != int(exact(L1.last, **values)) // s + 1:
            return False
        offsets = [int(exact(L1.offset, t=t, **values)) for t in range(k)]
        for q, t in product(range(grid.queries[axis]), range(k)):
            if int(grid.site(axis)[q]) + offsets[t] != int(exact(L1.key, q=q, t=t, **values)):
                return False
    return True


MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_like_numpy(source, case):
    padding, side = case
    (before,), (after,), (spacing,) = padding.before, padding.after, padding.spacing
    stuffed = np.full((side - 1) * spacing + 1, -1)
    stuffed[::spacing] = np.arange(side)
    options = {"constant_values": -1} if padding.mode == "zeros" else {}
    placed = np.pad(stuffed, (max(before, 0), max(after, 0)), MODES[padding.mode], **options)
    return source(padding, 0, side).tolist() == placed[max(-before, 0) : len(placed) - max(-after, 0)].tolist()


def strided_sites_are_some(without_stride, case):
    sides, *geometry = case
    sites = sites_of(*geometry)
    every, some = AttentionGrid(sides, without_stride(sites)), AttentionGrid(sides, sites)
    return all(
        every.site(axis)[:: sites.stride[axis]].tolist() == some.site(axis).tolist()
        and every.queries[axis] == sides[axis] - sites.before[axis] - sites.after[axis]
        for axis in range(len(sides))
    )


def heads_read_the_clamp(continued, case):
    sides, sites, offsets = case
    padding, moved = continued(sites, sides, offsets)
    if moved.count(padding.sides(sides)) != sites.count(sides):
        return False
    for axis, side in enumerate(sides):
        source = padding.source(axis, side).tolist()
        for offset, q in product(offsets, range(sites.count(sides)[axis])):
            at = moved.before[axis] + moved.stride[axis] * q + offset[axis]
            target = sites.before[axis] + sites.stride[axis] * q + offset[axis]
            if not 0 <= at < len(source) or source[at] != min(max(target, 0), side - 1):
                return False
    return True


LICENCES = {
    ("L1", "theory.basis.Sites.of_kernel"): Licence(
        sites_read_the_keys,
        shape=lambda kernel, stride, dilation, spare: (sides_of(kernel, dilation, spare), kernel, stride, dilation),
    ),
    ("L1", "theory.basis.Padding.source"): Licence(
        padded_like_numpy,
        examples=120,
        shape=lambda mode, before, after, side, spacing: (Padding((before,), (after,), mode, (spacing,)), side),
    ),
    ("STR", "theory.basis.Sites.without_stride"): Licence(
        strided_sites_are_some,
        shape=lambda kernel, dilation, stride, spare: (sides_of(kernel, dilation, spare), kernel, stride, dilation),
    ),
    ("PAD", "layers.attention.engines.gather.continued"): Licence(
        heads_read_the_clamp,
        examples=100,
        shape=lambda kernel, stride, dilation, spare, offsets: (
            *(sides_of(kernel, dilation, spare), sites_of(kernel, stride, dilation), offsets),
        ),
    ),
}
