"""The centres of the tokens of each call of an attention, from a noise and its ramps, with attention silenced."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Attended, Rule, Running, Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import EPSILON, IN_MEMORY, SILENT, Kind, Places
from conv2attn.networks.reading.responses import ROLES, Stored
from conv2attn.networks.reading.watch import Watch

Shape = tuple[int, ...]
Ramp = tuple[int, int]
"""An axis of the input, and the number of blocks within which the ramp is constant: 0 for one pixel each."""
Answer = tuple[str, int, str]
"""The name of an attention, the number of a call of it in a run, and a role: one of `ROLES`, or its weights."""
WEIGHTS = "weights"


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


def each_call(
    perturbed: Perturbed, rule: Rule, use: Callable[[Answer, Tensor, Shape], None], noise: Tensor | None = None
) -> None:
    """Passes on the queries, keys, values and weights of each call of each attention, with the axes in front."""
    calls = Counter[str]()

    def see(attended: Attended, _: Running) -> None:
        name, lead = attended.name, tuple(attended.attention.shape[:-2])
        weights = attended.attention.detach().double()
        keys = torch.arange(1.0, weights.shape[-1] + 1, dtype=torch.float64, device=weights.device).sqrt()
        use((name, calls[name], WEIGHTS), (weights @ keys)[..., None], lead)
        for role in ROLES:
            tensor = getattr(attended, role)
            if tensor is not None and tensor.is_floating_point():
                use((name, calls[name], role), tensor.double(), lead)
        calls[name] += 1

    perturbed.run(Watch(perturbed.network, see, rule), noise)


def centres_of(together: Perturbed, ramps: set[Ramp]) -> dict[Answer, Centres]:
    """The centres of the tokens of each call, with attention silenced."""
    shape = together.shape
    if shape is None or not ramps:
        return {}
    # All images have the same noise, so that their centres differ by their places alone.
    generator, of_one = torch.Generator().manual_seed(3), list(shape)
    of_one[together.batch] = 1
    noise = torch.randn(of_one, generator=generator, device="cpu", dtype=torch.float64).expand(shape) * EPSILON
    found = dict[Answer, Centres]()
    with SpooledTemporaryFile(IN_MEMORY) as file:
        stored = Stored(file)

        def keep(answer: Answer, tensor: Tensor, _: Shape) -> None:
            stored.put("base", (f"{answer[0]} {answer[1]}", answer[2]), tensor)

        def move(answer: Answer, tensor: Tensor, lead: Shape) -> None:
            key = (f"{answer[0]} {answer[1]}", answer[2])
            change = tensor - stored.get("base", key)
            stored.put("moved", key, change)
            found[answer] = Centres(lead, (change * change).sum(-1).float(), {})

        each_call(together, Silence(), keep)
        each_call(together, Silence(), move, noise)
        for asked_ramp in sorted(ramps):
            axis, blocks = asked_ramp
            count = blocks or shape[axis]
            ramp = (torch.arange(shape[axis]) * count // shape[axis] + 0.5).double() / count
            ramp = ramp.reshape([-1 if each == axis else 1 for each in range(len(shape))])

            def along(answer: Answer, tensor: Tensor, _: Shape, key: Ramp = asked_ramp) -> None:
                of_call = (f"{answer[0]} {answer[1]}", answer[2])
                change = tensor - stored.get("base", of_call)
                found[answer].along[key] = (change * stored.get("moved", of_call)).sum(-1).float()

            each_call(together, Silence(), along, noise * ramp)
    return found
