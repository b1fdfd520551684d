"""Which key each head of an encoding attends to, and how far from it the head is centred."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch

from conv2attn.attention import EnumeratedEncoding, QuadraticEncoding
from conv2attn.basis import Offset, Sites
from conv2attn.bounds import computed_leak, leaked_mass_diagonal, sharpness_on_a_pixel
from conv2attn.errors import UnsupportedError

LONGEST_RADIX = 2.0**25  # of an enumeration, per axis behind: twice a side, and sides are below 2^24


@final
@dataclass(frozen=True)
class Positions:
    """Heads that attend to the key nearest to `site + offset`, with scores -alpha |key - centre|^2.

    `shifts` says how far each centre is from the offset, along each axis of the scores, of which an enumeration has
    one; `distances` bounds the square of how far any query's nearest key is from the centre. `strays` are the heads
    whose target is no key for some query of some grid. `centers` are the numbers that scores are computed from.
    """

    offsets: tuple[Offset, ...]
    alphas: tuple[float, ...]
    shifts: tuple[tuple[float, ...], ...]
    distances: tuple[float, ...]
    strays: tuple[int, ...]
    by_enumeration: bool
    centers: tuple[tuple[float, ...], ...]

    @staticmethod
    def of(
        encoding: QuadraticEncoding | EnumeratedEncoding, sites: Sites, dtype: torch.dtype, name: str
    ) -> "Positions":
        """The positions of the heads of a layer, as its scores are computed for numbers of `dtype`.

        Raises:
            UnsupportedError: a centre is not finite (C2A408).
        """
        wide = dtype == torch.float64 or isinstance(encoding, EnumeratedEncoding)
        centers = encoding.center.detach().to(torch.float64 if wide else torch.float32).tolist()
        if not all(math.isfinite(x) for center in centers for x in center):
            raise UnsupportedError("C2A408", f"{name}: a centre is not finite")
        by_enumeration = isinstance(encoding, EnumeratedEncoding) and encoding.dimensions > 1
        offsets = [tuple(round(x) for x in center) for center in centers]
        beyond: list[tuple[float, ...]] = [beyond_the_grid(sites, offset) for offset in offsets]
        shifts = [tuple(abs(x - round(x)) for x in center) for center in centers]
        if by_enumeration:
            shifts = [(shift_of_enumeration(center),) for center in centers]
            beyond = [(enumerated(overs),) for overs in beyond]
        distances = [
            sum((over + shift) ** 2 for over, shift in zip(overs, each, strict=True)) * (1 + 2.0**-40)
            for overs, each in zip(beyond, shifts, strict=True)
        ]
        strays = tuple(head for head, overs in enumerate(beyond) if any(overs))
        alphas = tuple(encoding.alpha.tolist())
        exact = tuple(map(tuple, centers))
        return Positions(tuple(offsets), alphas, tuple(shifts), tuple(distances), strays, by_enumeration, exact)

    @property
    def axes(self) -> int:
        """Axes along which the scores are a sum."""
        return len(self.shifts[0]) if self.shifts else 0

    @property
    def scores(self) -> tuple[tuple[float, ...], ...]:
        """For each head what its scores are made of: the centre and the sharpness."""
        return tuple((*center, alpha) for center, alpha in zip(self.centers, self.alphas, strict=True))

    def distinct(self, among: Iterable[int]) -> list[int]:
        """Of some heads the first of all that leak alike."""
        alike = list(zip(self.alphas, self.shifts, self.distances, strict=True))
        first: dict[object, int] = {}
        for head in among:
            first.setdefault(alike[head], head)
        return list(first.values())

    def sharpness(self, head: int, format_name: str) -> float:
        """The sharpness of a head on a pixel and on the grid that leaks no less, as computed; 0 if there is none."""
        if max(self.shifts[head]) > 0.5:
            return 0.0
        return sharpness_on_a_pixel(self.alphas[head], self.shifts[head], self.distances[head], format_name)

    def leak(self, head: int) -> float:
        """Upper bound on the mass of a head off its target, in real arithmetic."""
        if max(self.shifts[head]) > 0.5:
            return 1.0
        return leaked_mass_diagonal([self.alphas[head]] * self.axes, self.shifts[head])

    def computed_leak(self, head: int, format_name: str) -> float:
        """Upper bound on the same as computed; exactly 0 where every other weight is 0."""
        sharpness = self.sharpness(head, format_name)
        return computed_leak(sharpness, self.axes, format_name) if sharpness > 0 else 1.0


def beyond_the_grid(sites: Sites, offset: Offset) -> tuple[int, ...]:
    """How far beyond the grid's border the target of the outermost query is, along each axis, on every grid."""
    return tuple(
        max(0, -before - o, o - after) for before, o, after in zip(sites.before, offset, sites.after, strict=True)
    )


def shift_of_enumeration(center: list[float]) -> float:
    """How far t of a centre is from t of its pixel at most, on grids with sides below 2^24.

    An enumeration adds up the axes, each times a radix that grows with the grid: 2^25 an axis behind it at most. Unless
    the centre is a pixel, where all is exact, t of the centre is rounded in float64.
    """
    shift = enumerated(abs(x - round(x)) for x in center)
    return shift + enumerated(map(abs, center)) * 2.0**-50 if shift else 0.0


def enumerated(numbers: Iterable[float]) -> float:
    """The sum of the numbers, one an axis, each times the largest radix that its axis can have."""
    return reduce(lambda total, number: total * LONGEST_RADIX + number, numbers, 0.0)
