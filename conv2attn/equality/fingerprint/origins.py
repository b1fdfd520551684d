"""What numbers were made of, a few operators back, so that laws of exponentials and of maxima can be seen.

    exp(z - m) = exp(z) / exp(m)    exp(log w) = w    (e t) / (f t) = e / f    max(max(a, b), c) = max(a, b, c)

An example: `z - z.amax(-1, True)` is noted as the "difference" of both, and its exponential as e = exp(z), "scaled" by
t = 1 / exp(m). A sum along the row is scaled by the same t, which a quotient of both leaves out: the softmax of z.

The laws hold of real functions, so a formula that is rewritten by them is the same function, and the chance of a wrong
answer is that of the rewritten one.
"""

from collections import OrderedDict
from typing import Any, final

from conv2attn.equality.fingerprint.residues import Residues

MOST_NOTED = 8
"""The last numbers that are kept: the laws are about operators that follow one another."""


@final
class Origins:
    """The origins of the last numbers, by where their residues lie: equal questions have one answer, lying there."""

    def __init__(self) -> None:
        self.noted: OrderedDict[tuple[str, int], tuple[Residues, tuple[Any, ...]]] = OrderedDict()

    def note(self, made: Residues, kind: str, *parts: Any) -> Residues:
        """Notes of what numbers were made, unless some are not finite or they lie in another order; returns them."""
        if made.finite and made.mark is None and made.values.is_contiguous() and made.values.numel():
            self.noted[kind, made.values.data_ptr()] = made, parts
            if len(self.noted) > MOST_NOTED:
                self.noted.popitem(last=False)
        return made

    def about(self, numbers: Residues) -> list[Any]:
        """What is noted of numbers that lie where these do, to be noted again."""
        return [(key, entry) for key, entry in self.noted.items() if key[1] == numbers.values.data_ptr()]

    def renew(self, notes: list[Any]) -> None:
        """Notes once more what an operator noted of its result."""
        for (kind, _), (made, parts) in notes:
            self.note(made, kind, *parts)

    def of(self, kind: str, numbers: Residues) -> tuple[Any, ...] | None:
        """The parts of which these numbers were made; None where that is not known, and of a view in another order."""
        made, parts = self.noted.get((kind, numbers.values.data_ptr()), (None, ()))
        if made is None or numbers.mark is not None or not numbers.values.is_contiguous():
            return None
        if made.shape != numbers.shape and all(
            isinstance(each, Residues) and each.shape == made.shape for each in parts
        ):
            plain = [side for side in made.shape if side != 1] == [side for side in numbers.shape if side != 1]
            return tuple(each.laid(numbers.shape) for each in parts) if plain else None
        return parts if made.shape == numbers.shape else None
