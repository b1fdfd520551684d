"""Shadows: random numbers that run in parallel with a tensor of a network, in several worlds.

In each world a shadow has one true copy in float64 and `SHAKES` shaken ones, in which every stored number moves by
about a unit in its last place. A constant has one group of copies, since no input changes it:

    constant   [true, shaken, shaken, shaken, shaken]
    others     [true, shaken, ... | true, shaken, ... | ...]     one group for each world
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard, final

import torch
from torch import Tensor

SHAKES = 4  # shaken copies: one per row of a Hadamard matrix of order 4
COPIES = 5  # these and the true copy
SCALES = (1.0, 2.0**-10)  # scales of alternating worlds: small numbers show an epsilon that is lost beside large ones
# Factor on the moves of shaken copies by dtype: in float32 their own rounding must be small compared with the move.
GAIN = {torch.float32: 2.0**7, torch.float64: 1.0}
MASKED = -5e3  # a score so far below the largest of its row counts as minus infinity
LEAST = -1e8  # a number below it counts as minus infinity in a maximum, and in an exp outside a softmax


class Unfollowed(Exception):
    """Raised if a network does something that shadows cannot follow; then nothing is decided."""


@final
class Shadow:
    """The shadow numbers of one tensor: COPIES for a constant, otherwise COPIES for each world.

    Tensors that code creates to write into (zeros, empty) have all copies from the start, so that views of them are
    views of every copy; they and their views share `state`, which says whether a number of the inputs has been written.
    """

    def __init__(self, copies: Iterable[Tensor], constant: bool = False, state: dict[str, bool] | None = None):
        self.copies, self.state = list(copies), state or {"constant": constant}
        self.record: int | None = None  # the number of its record, if tensors are recorded
        self.centring: tuple[Shadow, int, list[tuple[Tensor, int]], str] | None = None

    @property
    def constant(self) -> bool:
        """Whether it is independent of the inputs' numbers."""
        return self.state["constant"]

    def of(self, index: int) -> Tensor:
        """The copy with this index; those of a constant repeat."""
        if not self.copies:
            raise Unfollowed("a result is used that has no shadow")
        return self.copies[index % len(self.copies)]

    def centre(self, scores: "Shadow", axis: int, *plain: Tensor, by: str = "maximum") -> None:
        """Remembers that this is the maximum of scores along an axis, or the scores minus it.

        Args:
            by: one of `CENTRES`: "logsumexp" for the logarithm of the sum of their exponentials, or the scores minus
                it; "softmax" for their softmax.
        """
        # Tensors of inference mode have no version, so a later write to the scores could not be noticed.
        if not any(t.is_inference() for t in plain):
            self.centring = scores, axis, [(t, t._version) for t in plain], by

    def centred_scores(self, by: str = "maximum") -> "tuple[Shadow, int] | None":
        """The scores and the axis that `centre` remembered; None if one of the tensors was written to since."""
        if self.centring is None or self.centring[3] != by:
            return None
        return None if any(t._version != version for t, version in self.centring[2]) else self.centring[:2]


CENTRES = ("maximum", "logsumexp", "softmax")
"""The values of `by` in `Shadow.centre`: the operator that the scores came from."""


def is_number(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def is_shadow(value: Any) -> bool:
    """Whether a value is a shadow, which pytree treats as a leaf."""
    return isinstance(value, Shadow)


def cast(t: Tensor, i: int, dtype: torch.dtype) -> Tensor:
    """Copy i of a tensor: true ones are float64, shaken ones of the given dtype."""
    dtype = dtype if i % COPIES else torch.float64
    return t.to(dtype.to_complex() if t.is_complex() else dtype, copy=True)


def groups_of(copies: Sequence[Tensor]) -> Iterable[Sequence[Tensor]]:
    """The copies, world by world."""
    return (copies[start : start + COPIES] for start in range(0, len(copies), COPIES))


def repeated(copies: Sequence[Tensor]) -> list[Tensor]:
    """COPIES copies from fewer: the true one, then the shaken ones, if any, repeated.

    Operators compute repetitions only once.
    """
    true, *moved = copies
    return [true, *(moved or [true]) * SHAKES][:COPIES]
