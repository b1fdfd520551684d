"""Licences of the geometry: sites, padding, strides, and heads that look beyond the grid."""

from dataclasses import replace
from itertools import product

import numpy as np
import torch
from licences.cases import Licence, exact, sides_of, sites_of

import proofs.L1 as L1
from conv2attn.layers.attention.engines import gather
from conv2attn.theory.basis import AttentionGrid, Padding, Sites


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


def even_before(kernel, stride, dilation):
    sites = Sites.of_kernel(kernel, stride, dilation)
    before = tuple(d * (k // 2) for k, d in zip(kernel, dilation, strict=True))
    return replace(
        sites, before=before, after=tuple(d * (k - 1) - d * (k // 2) for k, d in zip(kernel, dilation, strict=True))
    )


def one_query_more(kernel, stride, dilation):
    sites = Sites.of_kernel(kernel, stride, dilation)
    return replace(sites, after=tuple(max(0, a - 1) for a in sites.after))


def axes_reversed(kernel, stride, dilation):
    return Sites.of_kernel(kernel[::-1], stride[::-1], dilation[::-1])


MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_like_numpy(source, case):
    padding, side = case
    (before,), (after,), (spacing,) = padding.before, padding.after, padding.spacing
    stuffed = np.full((side - 1) * spacing + 1, -1)
    stuffed[::spacing] = np.arange(side)
    options = {"constant_values": -1} if padding.mode == "zeros" else {}
    placed = np.pad(stuffed, (max(before, 0), max(after, 0)), MODES[padding.mode], **options)
    return source(padding, 0, side).tolist() == placed[max(-before, 0) : len(placed) - max(-after, 0)].tolist()


def only_in(mode, wrong):
    """`source` with a mistake in one mode."""

    def source(padding, axis, side):
        right = padding.source(axis, side)
        return wrong(padding, right, side) if padding.mode == mode else right

    return source


def beyond_the_end(padding, right, side):
    return torch.where(right == -1, side - 1, right)


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


def changed(change):
    """`continued` whose padding and sites are changed afterwards."""
    return lambda sites, keys, offsets: change(*gather.continued(sites, keys, offsets))


LICENCES = {
    ("L1", "theory.basis.Sites.of_kernel"): Licence(
        sites_read_the_keys,
        {
            "stride and dilation exchanged": lambda k, s, d: Sites.of_kernel(k, d, s),
            "even kernels centred behind": even_before,
            "a query more": one_query_more,
            "axes reversed": axes_reversed,
            "kernels above 5": lambda k, s, d: Sites.of_kernel(tuple(min(side, 5) for side in k), s, d),
        },
        shape=lambda kernel, stride, dilation, spare: (sides_of(kernel, dilation, spare), kernel, stride, dilation),
    ),
    ("L1", "theory.basis.Padding.source"): Licence(
        padded_like_numpy,
        {
            **{f"{mode} moved by one": only_in(mode, lambda p, right, side: right.roll(1)) for mode in MODES},
            "zeros copy the last pixel": only_in("zeros", beyond_the_end),
            "reflect repeats the border": only_in("reflect", lambda p, right, side: right.clamp(1, side - 1)),
            "replicate is circular": only_in(
                "replicate", lambda p, right, side: (torch.arange(len(right)) - p.before[0]) % side
            ),
            "circular is replicate": only_in(
                "circular", lambda p, right, side: (torch.arange(len(right)) - p.before[0]).clamp(0, side - 1)
            ),
            "spacing ignored": lambda padding, axis, side: replace(padding, spacing=(1,)).source(axis, side),
            "no cropping": lambda padding, axis, side: replace(
                padding, before=(max(padding.before[0], 0),), after=(max(padding.after[0], 0),)
            ).source(axis, side),
            "before and after exchanged": lambda padding, axis, side: replace(
                padding, before=padding.after, after=padding.before
            ).source(axis, side),
            "sides above 6": lambda padding, axis, side: padding.source(axis, min(side, 6)),
        },
        examples=120,
        shape=lambda mode, before, after, side, spacing: (Padding((before,), (after,), mode, (spacing,)), side),
    ),
    ("STR", "theory.basis.Sites.without_stride"): Licence(
        strided_sites_are_some,
        {
            "stride kept": lambda sites: sites,
            "from the first key": lambda sites: Sites((1,) * len(sites.stride), (0,) * len(sites.before), sites.after),
            "to the last key": lambda sites: Sites((1,) * len(sites.stride), sites.before, (0,) * len(sites.after)),
        },
        shape=lambda kernel, dilation, stride, spare: (sides_of(kernel, dilation, spare), kernel, stride, dilation),
    ),
    ("PAD", "layers.attention.engines.gather.continued"): Licence(
        heads_read_the_clamp,
        {
            "zeros": changed(lambda padding, sites: (replace(padding, mode="zeros"), sites)),
            "sites not moved": changed(
                lambda p, s: (p, replace(s, before=tuple(b - m for b, m in zip(s.before, p.before, strict=True))))
            ),
            "nothing behind": changed(
                lambda p, s: (replace(p, after=(0,) * len(p.after)), replace(s, after=(0,) * len(s.after)))
            ),
            "the pixel next to the border": changed(lambda padding, sites: (replace(padding, mode="reflect"), sites)),
            "the first head only": lambda sites, keys, offsets: gather.continued(sites, keys, offsets[:1]),
            "offsets beyond 6": lambda sites, keys, offsets: gather.continued(
                sites, keys, tuple(tuple(max(-6, min(x, 6)) for x in offset) for offset in offsets)
            ),
        },
        examples=100,
        shape=lambda kernel, stride, dilation, spare, offsets: (
            *(sides_of(kernel, dilation, spare), sites_of(kernel, stride, dilation), offsets),
        ),
    ),
}
