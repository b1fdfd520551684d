"""Whether two layers are the same map: code of its own in exact arithmetic, which `recheck` adds to certify's.

The taps at each start must add up to the same real numbers, the biases must be equal, and alpha must leave other keys
no weight, or at most the roundoff. Rare forms are left undecided: encodings that are not quadratic, heads whose target
is no pixel, paddings of different modes, and soft heads of two attention layers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from secrets import token_bytes
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention

CONVOLUTION_MODULES = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
UNIT_ROUNDOFFS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST_EXPONENTS = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}
ALPHA_DOUBT = 2.0**-19  # relative, of a threshold of alpha: next to it nothing is refuted

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
class LayerNumbers:
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
    def of(module: Any) -> "LayerNumbers | None":
        """A convolution or an attention with quadratic heads, as its attributes say; None for anything else."""
        if isinstance(module, MultiHeadSelfAttention):
            return LayerNumbers.of_attention(module)
        return LayerNumbers.of_convolution(module) if isinstance(module, CONVOLUTION_MODULES) else None

    @staticmethod
    def of_convolution(conv: Any) -> "LayerNumbers":
        """A convolution: output o reads pixel `o * stride + t * dilation` of the padded, or zero-stuffed, image."""
        reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        room: Any = [(p, p) for p in conv.padding] if isinstance(conv.padding, tuple) else None
        if conv.padding == "same":
            room = [(r // 2, r - r // 2) for r in reach]
        if conv.padding == "valid":
            room = [(0, 0) for _ in reach]
        if conv.transposed:
            each = zip(reach, conv.padding, conv.output_padding, strict=True)
            room = [(r - p, r - p + more) for r, p, more in each]
        before, after = (tuple(pair[side] for pair in room) for side in (0, 1))
        taps = product(*([d * t for t in range(k)] for d, k in zip(conv.dilation, conv.kernel_size, strict=True)))
        starts = tuple(tuple(x - b for x, b in zip(tap, before, strict=True)) for tap in taps)
        over = tuple(b + a - r for b, a, r in zip(before, after, reach, strict=True))
        ones = (1,) * len(reach)
        spacing, stride = (conv.stride, ones) if conv.transposed else (ones, conv.stride)
        matrices = taps_in(conv.weight.detach(), conv.groups, conv.transposed)
        padding = before, after, conv.padding_mode
        return LayerNumbers(conv.groups, spacing, stride, over, padding, starts, (matrices,), conv.bias)

    @staticmethod
    def of_attention(layer: Any) -> "LayerNumbers | None":
        """An attention whose heads are quadratic and read positions alone; None for another."""
        heads = layer.operators().isotropic
        if heads is None:
            return None
        factors = [each.detach().permute(2, 0, 1) for each in (layer.value, layer.output) if each is not None]
        if layer.weight is not None:
            factors = [taps_in(layer.weight.detach(), layer.groups, layer.transposed)]
        grid, (first, last, stride) = layer.image_padding, (layer.sites.before, layer.sites.after, layer.sites.stride)
        edges = zip(grid.before, grid.after, first, last, strict=True)
        room = tuple(b + a - f - e for b, a, f, e in edges)
        starts, apart = list[Pixel](), list[bool]()
        for center in heads.center.double().tolist():
            pixel = tuple(map(round, center)) if all(map(math.isfinite, center)) else (0,) * len(center)
            starts.append(tuple(f + x - b for f, x, b in zip(first, pixel, grid.before, strict=True)))
            inside = all(-f <= x <= e for f, x, e in zip(first, pixel, last, strict=True))
            apart.append(not inside or pixel != tuple(center))
        padding, alpha = (grid.before, grid.after, grid.mode), tuple(heads.alpha.tolist())
        numbers = tuple(starts), tuple(factors), layer.bias, alpha, tuple(apart)
        return LayerNumbers(layer.groups, grid.spacing, stride, room, padding, *numbers)

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
    def terms(self) -> int:
        """Products that are summed up for one output."""
        return max(1, len(self.starts) * self.factors[0].shape[2])

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


def taps_in(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The matrices of the taps in a convolution's weight, (taps, rows, columns of a group)."""
    if transposed:
        weight = weight.flip(list(range(2, weight.ndim))).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    return weight.flatten(2).permute(2, 0, 1)


def objections(first: nn.Module, second: nn.Module, *, bounded: bool) -> Iterator[Objection]:
    """The reasons why the second module is not the first, or why that is not checked; see `contradictions`."""
    with torch.no_grad():
        layers = [LayerNumbers.of(module) for module in (first, second)]
        ours, theirs = layers
        if ours is None or theirs is None:
            yield Objection("only convolutions and quadratic heads are checked twice", sure=False)
        elif not all(each.isfinite().all() for layer in (ours, theirs) for each in (*layer.factors, layer.biases)):
            yield Objection("a number is not finite")
        else:
            yield from dict.fromkeys(contradictions(ours, theirs, bounded=bounded))


def contradictions(first: LayerNumbers, second: LayerNumbers, *, bounded: bool) -> Iterator[Objection]:
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


def leaks(layer: LayerNumbers, *, bounded: bool, sure: bool) -> Iterator[Objection]:
    """The reasons why a head that adds anything is not hard or, where `bounded`, leaks more than the roundoff.

    With q = exp(-alpha) below 1/4 a head of n axes leaves other keys at most n (theta - 1) < 2.04 n q of its mass, and
    at least q / (1 + q). As computed that is 0 where alpha exceeds (1 - e) ln 2, with 2^e the smallest number.
    """
    heads = layer.working() if layer.alpha else []
    if any(layer.apart[head] for head in heads):
        yield Objection("a head whose target can be no pixel is not checked again", sure=False)
        return
    alpha = min((layer.alpha[head] for head in heads), default=math.inf)
    roundoff, axes = UNIT_ROUNDOFFS[layer.dtype], len(layer.stride)
    enough = least = (1 - SMALLEST_EXPONENTS[layer.dtype]) * math.log(2)
    if bounded:
        enough, least = math.log(2.04 * axes / roundoff), math.log((1 - roundoff) / roundoff)
    if not alpha >= enough:
        yield Objection(f"encoding.alpha is {alpha:g}", sure=sure and alpha < least * (1 - ALPHA_DOUBT))


def same_at(start: Pixel, first: LayerNumbers, second: LayerNumbers) -> bool:
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
