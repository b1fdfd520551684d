"""Evaluates heads of one sharpness whose centres form a lattice: the image is smoothed once, then heads are one-hot.

The weights of head h at query q depend only on the distance of keys from the point `q + center_h`. All these points are
pixels of one smoothed image v: `y = sum_h M_h v[q + center_h] + b` is a convolution of v, at every alpha and at the
border. So the layer is one product of matrices per axis, and the convolution.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.engines import compiled
from conv2attn.layers.attention.engines.mixing import Mixing
from conv2attn.layers.attention.recipe import Evaluation, Question
from conv2attn.layers.attention.storage import channels_are_last
from conv2attn.theory.basis import Basis, Padding, Sites


@final
@dataclass(frozen=True)
class Smoothing:
    """A smoothing of an image at a grid of points, and the sites that read it.

    Args:
        head: the head whose centre is the first point of the lattice.
        mixing: mixes the image by this head, with one query per point.
        queries: the layer's query sites on the grid of points.
    """

    head: int
    mixing: Mixing
    queries: Sites

    def profiles(self, basis: Basis, dtype: torch.dtype) -> list[Tensor]:
        """The weights of keys for all points: (1, tiles, points, keys) for each axis."""
        return self.mixing.profiles(basis.operators, slice(self.head, self.head + 1), dtype)


def decide_smoothed(question: Question) -> Evaluation | None:
    """The recipe for frozen heads that read one smoothed image."""
    basis, taps = question.basis, question.facts.taps
    if not question.is_smoothed or taps is None:
        return None
    axes, sites = len(basis.sites.stride), basis.sites
    # Heads step by the dilation and queries by the stride, so the points that they read step by the common divisor.
    steps = tuple(
        math.gcd(s, d) if k > 1 else s for s, d, k in zip(sites.stride, taps.dilation, taps.kernel_size, strict=True)
    )
    spans = [d * (k - 1) for d, k in zip(taps.dilation, taps.kernel_size, strict=True)]
    points = Sites(steps, sites.before, tuple(a - span for a, span in zip(sites.after, spans, strict=True)))
    dilation = tuple(max(1, d // step) for d, step in zip(taps.dilation, steps, strict=True))
    behind = tuple(d * (k - 1) for d, k in zip(dilation, taps.kernel_size, strict=True))
    stride = tuple(s // step for s, step in zip(sites.stride, steps, strict=True))
    queries = Sites(stride, (0,) * axes, behind)
    smoothing = Smoothing(taps.order[0], Mixing.of(question, points, taps.order[:1]), queries)
    # On the smoothed image the heads are one-hot shifts of a lattice, so the recipe is that of the convolution.
    lattice = replace(taps, first=(0,) * axes, dilation=dilation)
    facts = replace(question.facts, targets=lattice.offsets, lattice=lattice)
    shape = (*question.shape[:2], *smoothing.mixing.grid.queries)
    reader = replace(question, basis=read_by(smoothing, basis), facts=facts, shape=shape)
    read = compiled.decide(reader)
    assert not isinstance(read, str), read
    kept = None
    if question.keeps_profiles:
        with torch.no_grad():
            kept = smoothing.profiles(basis, question.dtype)
    return partial(run_smoothed, smoothing=smoothing, kept=kept, read=read)


def read_by(smoothing: Smoothing, basis: Basis) -> Basis:
    """The layer as one-hot heads on the grid of points."""
    return Basis(basis.operators, basis.weights, Padding.none(len(smoothing.queries.stride)), smoothing.queries)


def run_smoothed(
    basis: Basis, image: Tensor, smoothing: Smoothing, kept: list[Tensor] | None, read: Evaluation
) -> Tensor:
    """The layer as one-hot heads on the smoothed image, in the image's memory format."""
    profiles = [weights[0] for weights in kept or smoothing.profiles(basis, image.dtype)]
    mixing, last = smoothing.mixing, channels_are_last(image)
    smoothed = mixing.image_of(mixing.mixed(mixing.laid_out(image, last), profiles, last), last)
    return read(read_by(smoothing, basis), smoothed)
