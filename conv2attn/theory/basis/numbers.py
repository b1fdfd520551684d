"""The values of a family of softmax operators as Python numbers, from which engines decide."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

Center = tuple[float, ...]


@final
@dataclass(frozen=True)
class ScoreEllipse:
    """Scores of a head are `-1/2 d^T P d` at a key that is d away from its `center`.

    Args:
        variances: the diagonal of the inverse of P; infinite where there is none.
        sharpest: the largest eigenvalue of P.
    """

    center: Center
    variances: tuple[float, ...]
    sharpest: float

    def reach(self, axis: int, depth: float) -> tuple[float, float]:
        """The displacements along `axis` beyond which scores are below the largest of any query by more than `depth`.

        A key is at most half a pixel from the target along each axis, or as far as the centre is from the grid beside
        it; along an axis, d is at most sqrt(variance times the square form of d).
        """
        gaps = sum((0.5 + abs(x)) ** 2 for x in self.center)
        far = math.sqrt(self.variances[axis] * (2 * depth + self.sharpest * gaps))
        return self.center[axis] - far, self.center[axis] + far


@final
@dataclass(frozen=True)
class HeadNumbers:
    """The centre and the sharpness of each head; none of either where scores are not distances to a pixel.

    Args:
        axes, reach, sharpness: of heads whose scores are quadratic forms in that many axes, the largest coordinate of
            a centre, and an alpha whose isotropic scores are at least as large; 0 otherwise.
        ellipses: one for each of these heads.
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
        """Whether every number is."""
        return all(map(math.isfinite, (*self.alphas, self.reach, self.sharpness))) and all(
            math.isfinite(x) for c in self.centers for x in c
        )

    @property
    def on_pixels(self) -> bool:
        """Whether every centre is a pixel."""
        return all(x.is_integer() for center in self.centers for x in center)


def widest(device: torch.device, otherwise: torch.dtype) -> torch.dtype:
    """float64, or `otherwise` on a device that has none, as MPS."""
    if device.type in ("cpu", "cuda", "meta"):
        return torch.float64
    try:
        return torch.empty((), dtype=torch.float64, device=device).dtype
    except TypeError:
        return otherwise
