"""A layer of a stored file as numbers: where each head or tap reads, and what it does there; read off by short code."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

Pixel = tuple[int, ...]
CONTENT = ("content", "content_position", "content_bias")
MODES = ("zeros", "reflect", "replicate", "circular")


@final
@dataclass(frozen=True)
class Objection:
    """What is wrong with a file, or if not `sure`, what cannot be told of it here."""

    sentence: str
    sure: bool = True


@final
@dataclass(frozen=True, eq=False)
class Form:
    """Output o of a head copies pixel `start + o * stride`, of pixels `spacing` apart, as many as there is `room` for.

    `padding` is (before, after, mode), and `beyond` says how far off the padded grid each head's target can lie along
    each axis. The factors are those of attention; a convolution is one with `output` alone.
    """

    channels: tuple[int, int]
    groups: int
    stride: Pixel
    room: Pixel
    spacing: Pixel
    padding: tuple[Pixel, Pixel, str]
    starts: tuple[Pixel, ...]
    beyond: tuple[Pixel, ...]
    value: Tensor | None
    output: Tensor | None
    bias: Tensor | None
    by_enumeration: bool = False

    @property
    def weights(self) -> list[Tensor]:
        """The factors that are not identities."""
        return [factor for factor in (self.value, self.output) if factor is not None]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the factors, or one that holds the numbers of both."""
        return functools.reduce(torch.promote_types, (factor.dtype for factor in self.weights))

    @property
    def working(self) -> Tensor:
        """Which heads do anything: one with a factor of zeros adds nothing, wherever it attends."""
        return torch.stack([factor.flatten(1).any(1) for factor in self.weights]).all(0)

    def reaches_out(self, start: Pixel) -> bool:
        """Whether some output copies what is beyond the pixels through this start."""
        return any(s < 0 or s + room > 0 for s, room in zip(start, self.room, strict=True))


def of_convolution(name: str, tensors: Mapping[str, Tensor], told: Mapping[str, Any]) -> Form:
    """The form of a convolution as the certificate has it, with the weights of the file.

    Raises:
        ValueError: the weights have not so many taps or channels.
    """
    weight, groups = tensors[f"{name}weight"], told["groups"]
    if told["transposed"]:
        flipped = weight.flip(list(range(2, weight.ndim)))
        weight = flipped.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    taps = weight.flatten(2).permute(2, 0, 1)
    axes = weight.ndim - 2
    stride, room, spacing, before, after = (
        tuple(told[key]) for key in ("stride", "room", "spacing", "before", "after")
    )
    starts = tuple(map(tuple, told["starts"]))
    if len(starts) != len(taps) or any(len(each) != axes for each in (stride, room, spacing, before, after, *starts)):
        raise ValueError(f"{name} has {len(taps)} taps along {axes} axes, and its form in the certificate has not")
    return Form(
        (weight.shape[1] * groups, weight.shape[0]),
        groups,
        stride,
        room,
        spacing,
        (before, after, told["mode"]),
        starts,
        ((0,) * axes,) * len(taps),
        None,
        taps,
        tensors.get(f"{name}bias"),
    )


def of_attention(plan: Mapping[str, Any], name: str, tensors: Mapping[str, Tensor]) -> Form:
    """The form of an attention layer."""
    center = tensors[f"{name}encoding.center"].double().round()
    pixels = [tuple(int(x) for x in pixel) for pixel in center.tolist()]
    before, after, spacing = (tuple(plan["padding"][key]) for key in ("before", "after", "spacing"))
    first, last = (tuple(plan["sites"][key]) for key in ("before", "after"))
    outside = [[max(0, -f - x, x - e) for f, x, e in zip(first, p, last, strict=True)] for p in pixels]
    starts = [[f + x - b for f, x, b in zip(first, pixel, before, strict=True)] for pixel in pixels]
    return Form(
        (plan["d_in"], plan["d_out"]),
        plan["groups"],
        tuple(plan["sites"]["stride"]),
        tuple(b + a - f - e for b, a, f, e in zip(before, after, first, last, strict=True)),
        spacing,
        (before, after, plan["padding"]["mode"]),
        tuple(map(tuple, starts)),
        tuple(map(tuple, outside)),
        heads_first(tensors.get(f"{name}value")),
        heads_first(tensors.get(f"{name}output")),
        tensors.get(f"{name}bias"),
        plan["encoding"] == "enumerated" and len(first) > 1,
    )


def heads_first(factor: Tensor | None) -> Tensor | None:
    """A stored factor, whose last axis is the heads, with the heads first."""
    return None if factor is None else factor.permute(2, 0, 1)


def misfit(plan: Mapping[str, Any], name: str, tensors: Mapping[str, Tensor]) -> str:
    """Which entry of a layer's plan its tensors do not have, so that no layer is rebuilt; empty if all fit."""
    heads, axes = tensors[f"{name}encoding.center"].shape
    d_in, d_out, d_head, groups = (plan[key] for key in ("d_in", "d_out", "d_head", "groups"))
    held = {key.removeprefix(name): tensor.shape for key, tensor in tensors.items() if key.startswith(name)}
    needed: dict[str, tuple[int, ...]] = {"encoding.center": (heads, axes), "encoding.alpha": (heads,)}
    if any(type(number) is not int or number < 1 for number in (d_in, d_out, d_head, groups)):
        return "d_in, d_out, d_head or groups"
    if d_in % groups or d_out % groups or d_head % groups:
        return "groups"
    needed |= {"value": (d_head, d_in // groups, heads)} if plan["value"] else {}
    needed |= {"output": (d_out, d_head // groups, heads)} if plan["output"] else {}
    needed |= {"bias": (d_out,)} if plan["bias"] else {}
    wrong = [key for key in sorted({*needed, *held}) if needed.get(key) != held.get(key)]
    if wrong:
        return wrong[0]
    if d_head != (d_head if plan["value"] else d_in) or d_head != (d_head if plan["output"] else d_out):
        return "d_head"
    if not (plan["value"] or plan["output"]) or any(plan[key] for key in CONTENT):
        return "content"
    if plan["stride_by"] not in ("queries", "pooling") or list(plan["positions"]) != [heads, axes]:
        return "stride_by or positions"
    amounts = [plan["padding"][key] for key in ("before", "after", "spacing")]
    amounts += [plan["sites"][key] for key in ("before", "after", "stride")]
    if any(len(each) != axes or any(type(x) is not int for x in each) for each in amounts):
        return "padding or sites"
    if min(*plan["padding"]["spacing"], *plan["sites"]["stride"]) < 1 or plan["padding"]["mode"] not in MODES:
        return "padding or sites"
    return ""
