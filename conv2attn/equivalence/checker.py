"""Whether two layers, read from their files, are the same map: own code in exact arithmetic, without torch.nn.

The taps at each start must add up to the same real numbers, the biases must be equal, and alpha must leave other keys
no weight, or at most the roundoff. Rare forms are left undecided: encodings that are not quadratic, heads whose target
is no pixel, paddings of different modes, and soft heads of two attention layers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from secrets import token_bytes
from typing import Any, final

import torch
from torch import Tensor

FORM = ("spacing", "stride", "room", "before", "after")
MODES = ("zeros", "reflect", "replicate", "circular")
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}
DOUBT = 2.0**-19  # relative, of a threshold of alpha: next to it nothing is refuted

Pixel = tuple[int, ...]
Exact = Fraction | int


@final
@dataclass(frozen=True)
class Objection:
    """One sentence against a certificate; unless `sure`, it only leaves the certificate undecided."""

    sentence: str
    sure: bool = True


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """A layer as numbers: output o of head or tap t copies pixel `starts[t] + o * stride` of pixels `spacing` apart.

    `factors` are the matrices by which a pixel is multiplied, (terms, rows, columns of a group); a tap has one.
    `padding` is (before, after, mode). A head has an `alpha`, and is `apart` if its target can be no pixel.
    """

    groups: int
    spacing: Pixel
    stride: Pixel
    room: Pixel
    padding: tuple[Pixel, Pixel, str]
    starts: tuple[Pixel, ...]
    factors: tuple[Tensor, ...]
    bias: Tensor | None
    alpha: tuple[float, ...] = ()
    apart: tuple[bool, ...] = ()

    @staticmethod
    def of_form(form: Mapping[str, Any], held: Mapping[str, Tensor]) -> "Layer":
        """A convolution as the certificate has it, with the weights of the file."""
        weight, groups = held["weight"], form["groups"]
        if form["transposed"]:
            flipped = weight.flip(list(range(2, weight.ndim)))
            weight = flipped.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        taps, starts = weight.flatten(2).permute(2, 0, 1), tuple(map(tuple, form["starts"]))
        spacing, stride, room, before, after = (tuple(form[key]) for key in FORM)
        lengths = {len(each) for each in (spacing, stride, room, before, after, *starts)}
        if len(starts) != len(taps) or lengths != {weight.ndim - 2}:
            raise ValueError(f"a layer has {len(taps)} taps along {weight.ndim - 2} axes, and its form has not")
        return Layer(groups, spacing, stride, room, (before, after, form["mode"]), starts, (taps,), held.get("bias"))

    @staticmethod
    def of_plan(plan: Mapping[str, Any], held: Mapping[str, Tensor]) -> "Layer":
        """An attention layer with a quadratic encoding, as the plan and the tensors of its file have it."""
        factors = tuple(held[key].permute(2, 0, 1) for key in ("value", "output") if key in held)
        before, after, spacing = (tuple(plan["padding"][key]) for key in ("before", "after", "spacing"))
        first, last, stride = (tuple(plan["sites"][key]) for key in ("before", "after", "stride"))
        room = tuple(b + a - f - e for b, a, f, e in zip(before, after, first, last, strict=True))
        starts, apart = list[Pixel](), list[bool]()
        for center in held["encoding.center"].double().tolist():
            pixel = tuple(map(round, center))
            starts.append(tuple(f + x - b for f, x, b in zip(first, pixel, before, strict=True)))
            inside = all(-f <= x <= e for f, x, e in zip(first, pixel, last, strict=True))
            apart.append(not inside or pixel != tuple(center))
        numbers = factors, held.get("bias"), tuple(held["encoding.alpha"].tolist()), tuple(apart)
        padding = before, after, plan["padding"]["mode"]
        return Layer(plan["groups"], spacing, stride, room, padding, tuple(starts), *numbers)

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.factors[0].shape[2] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.factors[-1].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the factors."""
        return self.factors[-1].dtype

    @property
    def ratios(self) -> list[Fraction]:
        """By how many outputs a pixel is apart from the next along each axis."""
        return [Fraction(p, s) for p, s in zip(self.spacing, self.stride, strict=True)]

    @property
    def biases(self) -> Tensor:
        """The bias, zeros where there is none."""
        return torch.zeros(self.d_out, dtype=self.dtype) if self.bias is None else self.bias

    def working(self) -> list[int]:
        """The heads or taps that are not zero."""
        return [t for t in range(len(self.starts)) if all(factor[t].any() for factor in self.factors)]


def compare(first: Layer, second: Layer, *, bounded: bool) -> Iterator[Objection]:
    """The reasons why the second layer is not the first, or why a head leaks; roundoff may leak where `bounded`."""
    for what in ("d_in", "d_out", "dtype", "ratios", "spacing", "stride", "room"):
        ours, theirs = (getattr(layer, what) for layer in (first, second))
        if ours != theirs:
            yield Objection(f"{what} is {theirs}, not {ours}", sure=what != "spacing")
            return
    if not identical(first.biases, second.biases):
        yield Objection("bias differs")
    for start in dict.fromkeys((*first.starts, *second.starts)):
        if not same_at(start, first, second):
            heads = [head for head, each in enumerate(second.starts) if each == start]
            yield Objection(f"heads {heads} that start at {start} do something else")
    if first.padding != second.padding and (first.padding[2], second.padding[2]) != ("zeros", "zeros"):
        yield Objection(f"{second.padding[2]} padding in place of {first.padding[2]} is not checked again", sure=False)
    for layer in (first, second):
        yield from leaks(layer, bounded=bounded, sure=not first.alpha)


def leaks(layer: Layer, *, bounded: bool, sure: bool) -> Iterator[Objection]:
    """The reasons why a head that adds anything is not hard or, where `bounded`, leaks more than the roundoff.

    With q = exp(-alpha) below 1/4 a head of n axes leaves other keys at most n (theta - 1) < 2.04 n q of its mass, and
    at least q / (1 + q). As computed that is 0 where alpha exceeds (1 - e) ln 2, with 2^e the smallest number.
    """
    heads = layer.working() if layer.alpha else []
    if any(layer.apart[head] for head in heads):
        yield Objection("a head whose target can be no pixel is not checked again", sure=False)
        return
    alpha = min((layer.alpha[head] for head in heads), default=math.inf)
    roundoff, axes = ROUNDOFF[layer.dtype], len(layer.stride)
    enough = least = (1 - SMALLEST[layer.dtype]) * math.log(2)
    if bounded:
        enough, least = math.log(2.04 * axes / roundoff), math.log((1 - roundoff) / roundoff)
    if not alpha >= enough:
        yield Objection(f"encoding.alpha is {alpha:g}", sure=sure and alpha < least * (1 - DOUBT))


def misfit(plan: Mapping[str, Any], held: Mapping[str, Tensor]) -> str:
    """Which entry of a layer's plan its tensors do not have, so that no layer is rebuilt; empty if all fit."""
    heads, axes = held["encoding.center"].shape
    d_in, d_out, d_head, groups = widths = [plan[key] for key in ("d_in", "d_out", "d_head", "groups")]
    if any(type(width) is not int or width < 1 for width in widths) or any(width % groups for width in widths):
        return "a width"
    shapes: dict[str, tuple[int, ...]] = {"encoding.center": (heads, axes), "encoding.alpha": (heads,)}
    shapes |= {"value": (d_head, d_in // groups, heads)} if plan["value"] else {}
    shapes |= {"output": (d_out, d_head // groups, heads)} if plan["output"] else {}
    shapes |= {"bias": (d_out,)} if plan["bias"] else {}
    if shapes != {key: tuple(tensor.shape) for key, tensor in held.items()}:
        return "a shape"
    if not (plan["value"] or plan["output"]) or any(plan[key] for key in ("content", "content_position")):
        return "content"
    if (not plan["value"] and d_head != d_in) or (not plan["output"] and d_head != d_out):
        return "d_head"
    if plan["stride_by"] not in ("queries", "pooling") or list(plan["positions"]) != [heads, axes]:
        return "stride_by or positions"
    amounts = [plan["padding"][key] for key in ("before", "after", "spacing")]
    amounts += [plan["sites"][key] for key in ("before", "after", "stride")]
    whole = all(len(each) == axes and all(type(x) is int for x in each) for each in amounts)
    positive = whole and min(*plan["padding"]["spacing"], *plan["sites"]["stride"]) >= 1
    return "" if positive and plan["padding"]["mode"] in MODES else "padding or sites"


def same_at(start: Pixel, first: Layer, second: Layer) -> bool:
    """Whether the heads that start at a pixel have the same sum of taps in both layers.

    One tap a side is compared number by number. Otherwise both sums are applied to a vector of random 256-bit integers,
    in exact arithmetic: two different matrices agree on it with a chance of 2^-256 at most.
    """
    sides = [(layer, [t for t, each in enumerate(layer.starts) if each == start]) for layer in (first, second)]
    if all(len(terms) == 1 and len(layer.factors) == 1 for layer, terms in sides) and first.groups == second.groups:
        return identical(*(layer.factors[0][terms] for layer, terms in sides))
    vector = [int.from_bytes(token_bytes()) for _ in range(first.d_in)]
    sums = []
    for layer, terms in sides:
        total: Sequence[Exact] = [0] * layer.d_out
        for term in terms:
            passed: Sequence[Exact] = vector
            for factor in layer.factors:
                passed = times(factor[term], passed, layer.groups)
            total = [a + b for a, b in zip(total, passed, strict=True)]
        sums.append(total)
    return sums[0] == sums[1]


def times(matrix: Tensor, vector: Sequence[Exact], groups: int) -> Sequence[Exact]:
    """The exact product of the diagonal blocks of a matrix of floats and a vector of rational numbers."""
    rows, width = [[Fraction(x) for x in row] for row in matrix.tolist()], matrix.shape[1]
    parts = [vector[width * (place * groups // len(rows)) :][:width] for place in range(len(rows))]
    return [sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(rows, parts, strict=True)]


def identical(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and numbers."""
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
