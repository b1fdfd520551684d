"""One layer of a stored certificate looked at again: short code that shares nothing with what wrote it."""

import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import torch
from torch import Tensor

ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}
GEOMETRY = ("padding", "sites", "groups", "d_in", "d_out", "encoding", "stride_by")


def of_layer(
    name: str, plan: dict[str, Any], ours: dict[str, Tensor], theirs: dict[str, Tensor], *, proved: bool = True
) -> Iterator[str]:
    """What of an attention layer is not its convolution."""
    weight, bias, other = ours[f"{name}weight"], ours.get(f"{name}bias"), theirs.get(f"{name}bias")
    if not (bias is other is None or (bias is not None and other is not None and identical(bias, other))):
        yield f"{name}bias differs"
    center = theirs[f"{name}encoding.center"]
    nearest = center.round() if plan["encoding"] == "quadratic" else center
    if plan["encoding"] not in ("quadratic", "enumerated"):
        yield f"{name}encoding is {plan['encoding']}"
    yield from of_alpha(name, plan, theirs, proved=proved)
    yield from of_geometry(name, plan, ours)
    centers = [tuple(pixel) for pixel in nearest.tolist()]
    value, output = theirs.get(f"{name}value"), theirs.get(f"{name}output")
    sides, offsets = weight.shape[2:], set()
    for tap in itertools.product(*map(range, sides)):
        offset = tuple(float(t - (k - 1) // 2) for t, k in zip(tap, sides, strict=True))
        offsets.add(offset)
        heads = [head for head, center in enumerate(centers) if center == offset]
        place: tuple[Any, ...] = (..., *tap)
        if not same_map(weight[place], heads, value, output, plan["groups"]):
            yield f"{name}: the tap at {offset} is not what heads {heads} do"
    if not offsets.issuperset(centers):
        yield f"{name}encoding.center is off the taps"


def of_alpha(name: str, plan: dict[str, Any], theirs: dict[str, Tensor], *, proved: bool) -> Iterator[str]:
    """What is wrong with the sharpness: other keys keep weights, or if not `proved`, more than the roundoff together.

    With q = exp(-alpha) below 1/4 a head of n axes leaves them n (theta - 1) <= n 2 (q + q^4 / (1 - q^5)) < 2.04 n q.
    """
    center = theirs[f"{name}encoding.center"]
    nearest = center.round() if plan["encoding"] == "quadratic" else center
    gaps = 1 - 2 * (center - nearest).abs().amax(1)  # from the nearest pixel to the next, in pixels squared
    alpha = theirs[f"{name}encoding.alpha"]
    least = (alpha * gaps).min().item()
    dtype = next(theirs[f"{name}{key}"].dtype for key in ("value", "output") if f"{name}{key}" in theirs)
    axes = center.shape[1] if plan["encoding"] == "quadratic" else 1
    enough = (1 - SMALLEST[dtype]) * math.log(2) if proved else math.log(2.04 * axes / ROUNDOFF[dtype])
    if not (least >= enough and bool(alpha.isfinite().all())):
        yield f"{name}encoding.alpha is {least:g}"


def of_geometry(name: str, plan: dict[str, Any], ours: dict[str, Tensor]) -> Iterator[str]:
    """What of an attention layer's paddings and strides is not that of the ResNet's convolution of this name."""
    sides = ours[f"{name}weight"].shape[2:]
    half = tuple(k // 2 for k in sides)
    once, stride = (1,) * len(sides), (stride_of(name, ours),) * len(sides)
    needed: dict[str, dict[str, Any]] = {
        "padding": {"before": half, "after": half, "mode": "zeros", "spacing": once},
        "sites": {"before": half, "after": half, "stride": stride},
    }
    for key, parts in needed.items():
        for part, wanted in parts.items():
            found = plan[key][part]
            if (found if isinstance(found, str) else tuple(found)) != wanted:
                yield f"{name}{key}: {part} is {found}, and a ResNet needs {wanted}"


def stride_of(name: str, ours: dict[str, Tensor]) -> int:
    """The stride of a convolution in a ResNet (v1.5): 2 in a stem of 7x7 and where a later stage begins, else 1."""
    if name == "conv1.":
        return 2 if ours["conv1.weight"].shape[-1] == 7 else 1
    begins = re.fullmatch(r"(layer[2-9]\d*\.0\.)(conv\d|downsample\.0)\.", name)
    if begins is None:
        return 1
    strided = "conv2" if f"{begins[1]}conv3.weight" in ours else "conv1"
    return 2 if begins[2] in (strided, "downsample.0") else 1


def same_map(tap: Tensor, heads: list[int], value: Tensor | None, output: Tensor | None, groups: int) -> bool:
    """Whether some heads do together what a tap does.

    One head with a plain factor is compared number for number. Otherwise both are applied to a vector of random 61-bit
    integers, in exact arithmetic: two different matrices agree on it with a chance of 2^-61 at most.
    """
    if len(heads) == 1 and (value is None or output is None):
        factor = output if value is None else value
        return factor is not None and identical(tap, factor[heads[0]])
    random = Random(0)
    vectors = [[Fraction(random.getrandbits(61)) for _ in range(tap.shape[1])] for _ in range(groups)]
    wanted = [applied(block, vector) for block, vector in zip(tap.chunk(groups), vectors, strict=True)]
    total = [[Fraction(0)] * len(block) for block in wanted]
    for head in heads:
        for group, vector in enumerate(vectors):
            for factor in (value, output):
                vector = vector if factor is None else applied(factor[head].chunk(groups)[group], vector)
            total[group] = [a + b for a, b in zip(total[group], vector, strict=True)]
    return total == wanted


def applied(matrix: Tensor, vector: list[Fraction]) -> list[Fraction]:
    """The exact product of a matrix of floats and a vector of rational numbers."""
    return [sum((Fraction(x) * y for x, y in zip(row, vector, strict=True)), Fraction(0)) for row in matrix.tolist()]


def identical(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and numbers."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
