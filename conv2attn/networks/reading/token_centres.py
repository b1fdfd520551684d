"""The centres of the tokens of each call of an attention, from a noise and its ramps, with attention silenced."""

from dataclasses import dataclass
from math import prod
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import EPSILON, IN_MEMORY, SILENT, Kind, Places
from conv2attn.networks.reading.responses import Answer, Runs, Shape

Ramp = tuple[int, int]
"""An axis of the input, and the number of blocks within which the ramp is constant: 0 for one pixel each."""


@final
@dataclass(frozen=True, eq=False)
class Centres:
    """Sums of the responses of the tokens of a call: `squares` (..., tokens), and those times each `Ramp`, in float32.

    `lead` is what is in front of the queries and keys of its attention.
    """

    lead: Shape
    squares: Tensor
    along: dict[Ramp, Tensor]

    def numbers(self, place: Places) -> list[Tensor]:
        """Which tokens respond, and their centres in the sides of the input along the axes of a place."""
        live = self.squares > SILENT * float(self.squares.max())
        # The ratio of two inner products: the mean place of what a token depends on, weighted by how much.
        centres = (self.along[each] / self.squares.clamp_min(1e-37) for each in ramps_of(place))
        return [live.double(), *(torch.where(live, each, 0) for each in centres)]


def centres_known(place: Places) -> list[Tensor]:
    """The same of a place, whose tokens respond that are somewhere."""
    assert place.centre is not None
    return [(place.kind != Kind.NONE).double(), *place.centre.nan_to_num().unbind(-1)]


def is_exact(place: Places) -> bool:
    """Whether all tokens that have a place are known to be of one block of the input each."""
    return bool(((place.kind == Kind.EXACT) | (place.kind == Kind.NONE)).all())


def ramps_of(place: Places) -> list[Ramp]:
    """The ramps that tell the cells of a place: constant within the blocks of tokens that are one block each."""
    return [(axis, side if is_exact(place) else 0) for axis, side in zip(place.axes, place.sides, strict=False)]


def as_rows(tensor: Tensor, lead: Shape) -> Tensor | None:
    """A tensor (..., *lead of a query, key or value) with the axes of the attention; None where these do not fit."""
    front, own = tensor.shape[:1], tuple(tensor.shape[1:])
    if prod(own) == prod(lead):
        return tensor.reshape(*front, *lead)
    try:
        return tensor.reshape(*front, *[1] * (len(lead) - len(own)), *own).expand(*front, *lead)
    except RuntimeError:
        return None


def centres_of(together: Perturbed, ramps: set[Ramp]) -> dict[Answer, Centres]:
    """The centres of the tokens of each call, with attention silenced."""
    shape = together.shape
    if shape is None or not ramps:
        return {}
    # All images have the same noise, so that their centres differ by their places alone.
    generator, of_one = torch.Generator().manual_seed(3), list(shape)
    of_one[together.batch] = 1
    noise = torch.randn(of_one, generator=generator, device="cpu", dtype=torch.float64).expand(shape) * EPSILON
    found, asked = dict[Answer, Centres](), sorted(ramps)
    with SpooledTemporaryFile(IN_MEMORY) as file:
        runs = Runs(file, together, Silence())
        runs.add(noise)
        for axis, blocks in asked:
            count = blocks or shape[axis]
            ramp = (torch.arange(shape[axis]) * count // shape[axis] + 0.5).double() / count
            runs.add(noise * ramp.reshape([-1 if each == axis else 1 for each in range(len(shape))]))
        for answer, lead in runs.leads.items():
            change, *ramped = runs.of(answer, *range(1, runs.count))
            along = {ramp: (each * change).sum(-1).float() for ramp, each in zip(asked, ramped, strict=True)}
            found[answer] = Centres(lead, (change * change).sum(-1).float(), along)
    return found
