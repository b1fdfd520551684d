"""Softmax heads as far as their leak goes: sharpness, and how far each is centred from the key that it reads."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import final

from conv2attn.basis import (
    Basis,
    EnumeratedSoftmax,
    GeneralisedSoftmax,
    Offset,
    QuadraticSoftmax,
    Shift,
    Sites,
    offsets,
)
from conv2attn.bounds import computed_leak, leaked_mass_diagonal, sharpness_on_a_pixel
from conv2attn.errors import UnsupportedError

UNKNOWN = 1.0  # as the shift of a head: nothing is known of its leak


@final
@dataclass(frozen=True)
class SoftHead:
    """One head whose scores are `-alpha |key - centre|^2`; its target is the key nearest to the centre.

    Args:
        alpha: the sharpness.
        shifts: how far the centre is from the nearest pixel, along each axis of the scores; above 1/2 if
            nothing is known of its leak. An enumeration has one axis.
        distance: an upper bound on the squared distance from the centre to the nearest key, over queries and grids.
        outside: whether the target of some query of some grid is off the grid.
    """

    alpha: float
    shifts: tuple[float, ...]
    distance: float
    outside: bool

    @property
    def axes(self) -> int:
        """Axes along which the scores are a sum."""
        return len(self.shifts)

    def sharpness(self, format_name: str) -> float:
        """The alpha of a head on a pixel of the grid that leaks no less, as computed; 0 if there is none."""
        if max(self.shifts) > 0.5:
            return 0.0
        return sharpness_on_a_pixel(self.alpha, self.shifts, self.distance, format_name)

    def leak(self) -> float:
        """Upper bound on the mass off the target, in real arithmetic."""
        return 1.0 if max(self.shifts) > 0.5 else leaked_mass_diagonal([self.alpha] * self.axes, self.shifts)

    def computed_leak(self, format_name: str) -> float:
        """Upper bound on the mass off the target, as computed; exactly 0 where every other weight is 0."""
        sharpness = self.sharpness(format_name)
        return computed_leak(sharpness, self.axes, format_name) if sharpness > 0 else 1.0


def heads_of(basis: Basis) -> tuple[SoftHead, ...]:
    """The softmax heads of a basis whose centres are finite; a family of shifts has none."""
    return soft_heads(basis.operators, basis.sites)


def heads_out_of_bounds(basis: Basis) -> list[int]:
    """The heads whose target is off the padded grid for some query of some grid: they read the nearest key instead."""
    return [number for number, head in enumerate(heads_of(basis)) if head.outside]


@singledispatch
def soft_heads(operators: object, sites: Sites) -> tuple[SoftHead, ...]:
    """The heads of a family of operators for queries at `sites`."""
    raise UnsupportedError("C2A110", f"soft_heads has no rule for {type(operators).__name__}")


@soft_heads.register
def _(operators: Shift, sites: Sites) -> tuple[SoftHead, ...]:
    return ()


@soft_heads.register
def _(operators: QuadraticSoftmax, sites: Sites) -> tuple[SoftHead, ...]:
    heads = zip(operators.center.tolist(), offsets(operators), operators.alpha.tolist(), strict=True)
    return tuple(
        soft_head(alpha, [abs(x - round(x)) for x in center], distance_outside(sites, offset))
        for center, offset, alpha in heads
    )


@soft_heads.register
def _(operators: EnumeratedSoftmax, sites: Sites) -> tuple[SoftHead, ...]:
    """On one line its numbers are the pixels; of several axes nothing is known but of pixels inside the grid."""
    if operators.center.shape[1] == 1:
        return soft_heads(QuadraticSoftmax(operators.center, operators.alpha), sites)
    heads = zip(operators.center.tolist(), offsets(operators), operators.alpha.tolist(), strict=True)
    found = []
    for center, offset, alpha in heads:
        outside = any(distance_outside(sites, offset))
        known = center == list(offset) and not outside
        found.append(SoftHead(alpha, (0.0 if known else UNKNOWN,), 0.0 if known else math.inf, outside))
    return tuple(found)


@soft_heads.register
def _(operators: GeneralisedSoftmax, sites: Sites) -> tuple[SoftHead, ...]:
    """Nothing is said of their leak.

    A score is off by at most `(3 axes + 4) u |root|_F^2 |n|^2 / 2`, and one of `-alpha |n|^2` by `4 u alpha |n|^2`.
    """
    axes = operators.center.shape[1]
    steepest = (operators.root.double().square().sum((1, 2)) * (axes + 1) / 2).tolist()
    heads = zip(steepest, offsets(operators), strict=True)
    return tuple(soft_head(alpha, [UNKNOWN] * axes, distance_outside(sites, offset)) for alpha, offset in heads)


def soft_head(alpha: float, shifts: Iterable[float], outside: Iterable[float]) -> SoftHead:
    """The head with these shifts and distances off the grid, one of each per axis of its scores."""
    shifts, outside = tuple(shifts), tuple(outside)
    distance = sum((over + shift) ** 2 for over, shift in zip(outside, shifts, strict=True)) * (1 + 2.0**-40)
    return SoftHead(alpha, shifts, distance, any(outside))


def distance_outside(sites: Sites, offset: Offset) -> tuple[int, ...]:
    """How far off the grid the target of the outermost query is along each axis, on every grid."""
    return tuple(
        max(0, -before - o, o - after) for before, o, after in zip(sites.before, offset, sites.after, strict=True)
    )
