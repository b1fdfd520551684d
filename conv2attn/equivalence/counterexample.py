"""Counterexamples: an input, and both outputs at the place where they differ most."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.equivalence.outputs import GRID, axis_names
from conv2attn.report import counted

NETWORK = "(network)"  # in place of a layer's name
OUTPUTS, STRUCTURE, TOLERANCE, CALL = PARTS = ("outputs", "structure", "tolerance", "call")


@final
@dataclass(frozen=True, eq=False)
class Witness:
    """An input on which two layers differ at `place` (output channel, then the query's coordinates).

    `allowed` is what may differ there: by rounding, or the tolerance asked for; None where nothing is known. `exact` is
    the difference in exact arithmetic, where the computed one does not exceed what is allowed and it is known. `count`
    numbers differ by more than is allowed, as computed.

    Where `part` is given, the input is one of the whole networks, `index` its number among the images. It shows what
    that part refutes: "outputs", "structure" or "tolerance" of the networks at `place` of the tensor at `output`, or
    "call", which differs at `place` as a layer does. `told` says what is not the same in kind, so that there may be no
    place and no numbers.
    """

    layer: str
    image: Tensor
    place: tuple[int, ...] = ()
    original: float = torch.nan
    converted: float = torch.nan
    allowed: float | None = None
    exact: float | None = None
    count: int = 0
    part: str = ""
    output: str = ""
    told: str = ""
    index: int | None = None

    @property
    def difference(self) -> float:
        """|converted - original| there; infinite if only the converted is not finite, NaN if the original is not."""
        off = abs(self.converted - self.original)
        return torch.inf if off != off and abs(self.original) < torch.inf else off

    @property
    def exceeds(self) -> bool:
        """Whether the difference as computed is more than may be."""
        return self.allowed is not None and self.difference > self.allowed

    @property
    def shows(self) -> bool:
        """Whether it refutes: by the numbers as computed, by the exact ones, or by what is not the same in kind."""
        return self.exceeds or bool(self.exact) or bool(self.told)

    @property
    def axes(self) -> dict[str, int]:
        """The coordinates of the place by the names of their axes; those of an output without its only image."""
        if self.output:
            return dict(list(zip(axis_names(len(self.place)), self.place, strict=True))[1:])
        names = ("output channel", *GRID[len(self.place) - 1]) if self.place else ()
        return dict(zip(names, self.place, strict=True))

    @property
    def where(self) -> str:
        """The place, its axes named."""
        return ", ".join(filter(None, [self.output, *(f"{name} {number}" for name, number in self.axes.items())]))

    @property
    def numbers(self) -> str:
        """Both numbers at the place, and how many differ; empty where there is no place."""
        if not self.where:
            return ""
        many = f" ({counted(self.count, 'number')} off)" if self.count else ""
        return f"{self.where} is {self.converted:.9g}, not {self.original:.9g}{many}"

    @property
    def premise(self) -> str:
        """The common part of the two networks in this comparison, as the beginning of a sentence."""
        return "with the layers of the first in both, " if self.part == STRUCTURE and self.allowed is not None else ""

    @property
    def fact(self) -> str:
        """The difference in words."""
        return self.premise + "; ".join(filter(None, [self.told, self.numbers]))

    def in_words(self) -> str:
        """The witness in a sentence."""
        sides = "x".join(map(str, self.image.shape[0 if self.part else 1 :]))
        largest = self.image.abs().max().item() if self.image.numel() else 0.0
        which = "" if self.index is None else f" (image {self.index})"
        exactly = "" if self.exceeds or not self.exact else f", and in exact arithmetic off by {self.exact:.3g}"
        return f"an input {sides} within +-{largest:g}{which} shows it: {self.fact}{exactly}"
