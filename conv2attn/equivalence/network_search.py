"""Images on which whole networks differ: each is looked at by itself, and shows what is refuted or shows nothing.

Two right networks round differently, so a difference of their outputs is not a fault yet. What is one:

- outputs: something is missing, new, of another shape or dtype, not finite, or the second does not run;
- tolerance: a number differs by more than the tolerance;
- structure: the second computes other numbers than the first though it has the first's layers, so that nothing is left
  that could round differently;
- a functional call: it differs by more than rounding allows, or in exact arithmetic, as a layer would.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equivalence.compared import Compared, compare_layers
from conv2attn.equivalence.counterexample import CALL, NETWORK, STRUCTURE, TOLERANCE, Witness
from conv2attn.equivalence.exchanged import run_exchanged
from conv2attn.equivalence.layer_search import at_worst, rounding_allowed
from conv2attn.equivalence.outputs import judge, most_different, widest_gap
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.report import counted
from conv2attn.verdicts import Verdict

TRIED = 4  # images, those first whose outputs differ most: each takes as long as one in the certificate


@final
@dataclass(frozen=True, eq=False)
class Look:
    """Two networks compared on one image (channels, *sides)."""

    original: nn.Module
    network: nn.Module
    image: Tensor
    compared: Compared

    @staticmethod
    def at(original: nn.Module, network: nn.Module, image: Tensor, described: str) -> "Look":
        """Runs both on the image.

        Raises:
            UsageError: the original does not run on it.
        """
        return Look(original, network, image, compare_layers(original, network, image[None], described, exactly=True))

    def witness(self, part: str, tolerance: float | None = None) -> Witness:
        """The counterexample for a refuted `part` of the networks, or for the functional call of that name."""
        if part in self.compared.calls:
            return self.of_call(part)
        first, second, failure = self.compared.first, self.compared.second, self.compared.failure
        if part != STRUCTURE:
            allowed = tolerance if part == TOLERANCE else None
            return self.of_outputs(part, first, second, failure, allowed, self.compared.overflow())
        exchanged = run_exchanged(self.image[None], self.original, self.network, self.compared.pairs)
        if exchanged is None:
            return replace(self.of_outputs(part, first, second, failure), told="")
        return self.of_outputs(part, *exchanged, 0.0)

    def of_outputs(
        self, part: str, first: Any, second: Any, failure: str, allowed: float | None = None, overflow: str = ""
    ) -> Witness:
        """The counterexample of two outputs that may differ by `allowed`; None if that is not known."""
        found = judge(first, second, failure, overflow)
        told = found.sentence if found.verdict is Verdict.REFUTED else ""
        gap = widest_gap(first, second, sys.float_info.max if allowed is None else allowed)
        shown = Witness(NETWORK, self.image, part=part, told=told, allowed=allowed)
        return shown if gap is None else replace(shown, **vars(gap))

    def of_call(self, name: str) -> Witness:
        """The counterexample for a functional call: where it differs most beyond what rounding allows."""
        call = self.compared.calls[name]
        shown = Witness(name, self.image, part=CALL, told=call.seen.trouble)
        if call.worst is None:
            return shown
        given, first, second = call.worst
        try:
            pair = call.pair()
            limits = rounding_allowed(call.convolution, pair, given) or [torch.inf] * len(first)
        except Conv2AttnError:
            return shown
        place = tuple(int(i) for i in torch.unravel_index((second - first).abs().argmax(), first.shape))
        found = at_worst(name, (first, second), pair, given, place, limits, by_rounding=True)
        return replace(found, image=self.image, part=CALL, told=call.seen.trouble)


def search(
    original: nn.Module,
    network: nn.Module,
    images: Tensor,
    compared: Compared,
    parts: Iterable[str],
    tolerance: float | None = None,
) -> tuple[tuple[Witness, ...], tuple[str, ...]]:
    """For each refuted part an image of `images`, on which both were `compared`, that shows it, or that none does."""
    wanted, found, tried = list(dict.fromkeys(parts)), dict[str, Witness](), 0
    if not wanted:
        return (), ()
    for index, look in looks(original, network, images, compared):
        tried += 1
        for part in wanted:
            if part not in found and (shown := look.witness(part, tolerance)).shows:
                found[part] = replace(shown, index=index)
        if len(found) == len(wanted):
            break
    why = f"no output shows it on the {counted(tried, 'image')} tried" if tried else "the first takes no single image"
    unshown = tuple(f"{part}: {why}" for part in wanted if part not in found)
    return tuple(found[part] for part in wanted if part in found), unshown


def looks(original: nn.Module, network: nn.Module, images: Tensor, compared: Compared) -> Iterator[tuple[int, Look]]:
    """The images to look at with their numbers; a single one was looked at already."""
    if len(images) == 1:
        yield 0, Look(original, network, images[0], compared)
        return
    for index in most_different(compared.first, compared.second, len(images))[:TRIED]:
        with contextlib.suppress(UsageError):
            yield index, Look.at(original, network, images[index], "an image by itself")
