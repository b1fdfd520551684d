"""The values of a family of softmax operators as Python numbers, from which engines decide whether they apply.

Two quadratic heads of sharpness 5 at the pixels above and below the query are `HeadNumbers(centers=((-1.0, 0.0), (1.0,
0.0)), alphas=(5.0, 5.0))`. A generalised head has an ellipse instead. An ellipse at the query that is twice as wide
along the second axis as along the first is `ScoreEllipse(center=(0.0, 0.0), variances=(1.0, 4.0), sharpest=1.0)`.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

Center = tuple[float, ...]


@final
@dataclass(frozen=True)
class ScoreEllipse:
    """A head whose score is `-1/2 d^T P d` at a key that is d away from its `center`.

    Args:
        variances: the diagonal of the inverse of P; infinite where P has no inverse.
        sharpest: the largest eigenvalue of P.
    """

    center: Center
    variances: tuple[float, ...]
    sharpest: float

    def interval(self, axis: int, depth: float) -> tuple[float, float]:
        """The first and last displacement along `axis` at which a score may be within `depth` of its query's largest.

        Along each axis, the key nearest to the centre is at most half a pixel away or, at the border, as far away as
        the centre is from the query. So the largest score is at least `-1/2 sharpest` times the sum of the squares of
        these distances. The interval follows from `d_axis^2 <= variance d^T P d`, which holds for every d.
        """
        # The sum of both distances bounds either case, so the interval is the same for every query and every grid.
        gaps = sum((0.5 + abs(x)) ** 2 for x in self.center)
        # A score within `depth` has d^T P d <= 2 depth + sharpest * gaps; by Cauchy-Schwarz d_axis is at most `far`.
        far = math.sqrt(self.variances[axis] * (2 * depth + self.sharpest * gaps))
        return self.center[axis] - far, self.center[axis] + far


@final
@dataclass(frozen=True)
class HeadNumbers:
    """Numbers of the heads of a family. A field is empty or 0 if the scores of the family have no such number.

    Args:
        centers, alphas: centre and sharpness of every quadratic head.
        axes: number of axes of the grid, if scores are quadratic forms of the displacement.
        reach: the largest coordinate of a centre of such forms, in pixels.
        sharpness: an alpha for bounds on rounding. In a score of the family, the absolute values of the products sum to
            no more than in the score `-alpha |d|^2`.
        ellipses: the ellipse of every generalised head.
    """

    centers: tuple[Center, ...] = ()
    alphas: tuple[float, ...] = ()
    axes: int = 0
    reach: float = 0.0
    sharpness: float = 0.0
    ellipses: tuple[ScoreEllipse, ...] = ()

    @staticmethod
    def read(center: Tensor, alpha: Tensor) -> "HeadNumbers":
        """The numbers of heads with these centres (heads, axes) and sharpness (heads)."""
        return HeadNumbers(tuple(map(tuple, center.tolist())), tuple(alpha.tolist()))

    @property
    def finite(self) -> bool:
        """Whether every number is finite."""
        return all(map(math.isfinite, (*self.alphas, self.reach, self.sharpness))) and all(
            math.isfinite(x) for c in self.centers for x in c
        )

    @property
    def on_pixels(self) -> bool:
        """Whether every centre is a pixel."""
        return all(x.is_integer() for center in self.centers for x in center)


def widest(device: torch.device, otherwise: torch.dtype) -> torch.dtype:
    """float64, or `otherwise` on a device without it, such as MPS."""
    # A device without float64 raises a TypeError, so an empty tensor is made to find out.
    if device.type in ("cpu", "cuda", "meta"):
        return torch.float64
    try:
        return torch.empty((), dtype=torch.float64, device=device).dtype
    except TypeError:
        return otherwise
