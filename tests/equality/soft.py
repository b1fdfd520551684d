"""Soft attention layers that attend alike, and some that do not: changes, and whether the map is the same."""

from dataclasses import replace

import torch
from changes import changed, changing
from equality.planted import heads, permuted, taps, ulp
from torch import nn

import conv2attn

with torch.random.fork_rng():
    torch.manual_seed(0)
    LINE = nn.Conv1d(2, 3, 3, padding=1)
    LINE.weight.data.mul_(64).round_().div_(64)  # so that halves and quarters are exact


def line(alpha):
    """The attention of one sharpness, or the convolution."""
    return conv2attn.convert(LINE, alpha=alpha) if alpha else LINE


def split(layer):
    """Head 0 in two of the same scores that add up to it."""
    heads(layer, [0, *range(layer.heads)])
    taps(layer)[0] *= 0.25
    taps(layer)[1] *= 0.75


def more(alpha, number):
    """One more head of this sharpness, where head 0 is, that adds `number`."""

    def change(layer):
        heads(layer, [*range(layer.heads), 0])
        with changing(layer, "alpha") as numbers:
            numbers[-1] = alpha
        taps(layer)[-1] = number

    return change


def ringed(layer):
    """One more ring of zeros, which no query reads and soft heads see."""
    for name in ("image_padding", "sites"):
        part = getattr(layer, name)
        ends = {end: tuple(number + 1 for number in getattr(part, end)) for end in ("before", "after")}
        setattr(layer, name, replace(part, **ends))


SOFT = {
    "nothing": (lambda layer: None, True),
    "heads permuted": (permuted, True),
    "a head in two": (split, True),
    "a head of zeros that is softer": (more(0.5, 0.0), True),
    "a head that is softer": (more(0.5, 2.0**-20), False),
    "a sharpness by one ulp": (lambda layer: changed(layer, "alpha", lambda numbers: ulp(numbers, (1,))), False),
    "a centre by one ulp": (lambda layer: changed(layer, "center", lambda numbers: ulp(numbers, (2, 0))), False),
    "a weight by one ulp": (lambda layer: ulp(taps(layer), (1, 0, 0)), False),
    "one tap alone moved": (lambda layer: changed(layer, "center", lambda numbers: numbers[2].add_(1)), False),
    "padding": (lambda layer: setattr(layer, "image_padding", layer.image_padding.extended((1,))), False),
    "more padding under the same queries": (ringed, False),
    "twice as precise": (lambda layer: layer.double(), False),
}
