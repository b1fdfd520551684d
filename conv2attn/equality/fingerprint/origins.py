"""Records how numbers were computed, a few operators back, so that laws of exponentials and maxima can be applied.

    exp(z - m) = exp(z) / exp(m)    exp(log w) = w    (e t) / (f t) = e / f    max(max(a, b), c) = max(a, b, c)

An example: `z - z.amax(-1, True)` is noted as the "difference" of both, and its exponential as e = exp(z), "scaled" by
t = 1 / exp(m). A sum along the row is scaled by the same t, which cancels in the quotient: the softmax of z.

The laws hold for real functions, so a rewritten formula is the same function, and the error probability is that of the
rewritten formula.
"""

from collections import OrderedDict
from typing import Any, final

from conv2attn.equality.fingerprint.residues import Residues

MOST_NOTED = 8
"""Origins are kept for this many recent results: the laws concern consecutive operators."""


@final
class Origins:
    """The origins of recent results, by the address of their residues; equal operations share one cached result."""

    def __init__(self) -> None:
        self.noted: OrderedDict[tuple[str, int], tuple[Residues, tuple[Any, ...]]] = OrderedDict()

    def note(self, made: Residues, kind: str, *parts: Any) -> Residues:
        """Records how `made` was computed, unless some numbers are not finite or it is reordered; returns it."""
        if made.finite and made.mark is None and made.values.is_contiguous() and made.values.numel():
            self.noted[kind, made.values.data_ptr()] = made, parts
            if len(self.noted) > MOST_NOTED:
                self.noted.popitem(last=False)
        return made

    def about(self, numbers: Residues) -> list[Any]:
        """The records for residues at this address, to be recorded again."""
        return [(key, entry) for key, entry in self.noted.items() if key[1] == numbers.values.data_ptr()]

    def renew(self, notes: list[Any]) -> None:
        """Records an operator's origins of its result again."""
        for (kind, _), (made, parts) in notes:
            self.note(made, kind, *parts)

    def of(self, kind: str, numbers: Residues) -> tuple[Any, ...] | None:
        """The parts from which these numbers were computed; None if unknown, or for a reordered view."""
        made, parts = self.noted.get((kind, numbers.values.data_ptr()), (None, ()))
        if made is None or numbers.mark is not None or not numbers.values.is_contiguous():
            return None
        if made.shape != numbers.shape and all(
            isinstance(each, Residues) and each.shape == made.shape for each in parts
        ):
            plain = [side for side in made.shape if side != 1] == [side for side in numbers.shape if side != 1]
            return tuple(each.laid(numbers.shape) for each in parts) if plain else None
        return parts if made.shape == numbers.shape else None
