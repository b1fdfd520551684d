"""The values of a family of softmax operators as Python numbers, from which engines decide."""

import math
from dataclasses import dataclass
from typing import final

Center = tuple[float, ...]


@final
@dataclass(frozen=True)
class Numbers:
    """The centre and the sharpness of each head; none of either where scores are not distances."""

    centers: tuple[Center, ...] = ()
    alphas: tuple[float, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether every number is."""
        return all(map(math.isfinite, self.alphas)) and all(math.isfinite(x) for c in self.centers for x in c)

    @property
    def on_pixels(self) -> bool:
        """Whether every centre is a pixel."""
        return all(x.is_integer() for center in self.centers for x in center)
