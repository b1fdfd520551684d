"""How the queries, keys and values of each attention respond to small noise, one attention at a time."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from os import SEEK_END
from typing import IO, Any, final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Attended, Rule, Running
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.watch import Watch

ROLES = ("query", "key", "value")
WEIGHTS = "weights"
Shape = tuple[int, ...]
Answer = tuple[str, int, str]
"""The name of an attention, the number of a call of it in a run, and a role: one of `ROLES`, or its weights."""
Key = tuple[str, str]
"""The name of an attention and a role: one of `ROLES`, or "channels" of its values."""


@final
@dataclass(eq=False)
class Response:
    """Sums over draws of the responses of one tensor: `squares` (..., tokens); by axis `along` and `ramped`.

    `blocks` are by axis and side of a block which tokens fit one, and which.
    """

    squares: Tensor
    along: dict[int, Tensor] = field(default_factory=dict)
    ramped: dict[int, Tensor] = field(default_factory=dict)
    blocks: dict[int, dict[int, tuple[Tensor, Tensor]]] = field(default_factory=dict)

    def add(self, axis: int, change: Tensor, ramped: Tensor) -> None:
        """Adds the responses to one noise, and to its ramp along an axis."""
        self.along[axis] = self.along.get(axis, 0) + (ramped * change).sum(-1)
        self.ramped[axis] = self.ramped.get(axis, 0) + (ramped * ramped).sum(-1)

    def fit(self, axis: int, block: int, fits: tuple[Tensor, Tensor]) -> None:
        """Notes which tokens depend on one block of this side along an axis, and on which."""
        self.blocks.setdefault(axis, {})[block] = fits

    def fitting(self, axis: int, live: Tensor) -> tuple[int, Tensor] | None:
        """The smallest side of blocks of which each live token depends on one, and on which; None if there is none."""
        blocks = sorted(self.blocks[axis].items())
        return next(((block, at) for block, (fits, at) in blocks if fits[live].all()), None)

    def centre(self, axis: int) -> Tensor:
        """The centre of each token, in the side of the input."""
        return self.along[axis] / self.squares.clamp_min(1e-300)

    def spread(self, axis: int) -> Tensor:
        """The standard deviation of what each token depends on."""
        return (self.ramped[axis] / self.squares.clamp_min(1e-300) - self.centre(axis) ** 2).clamp_min(0).sqrt()


@final
class Stored:
    """Queries, keys and values of all attentions of several runs, in a file: in memory they would grow with layers."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.at = dict[tuple[str, Hashable], tuple[int, tuple[int, ...]]]()

    def put(self, run: str, key: Hashable, tensor: Tensor) -> None:
        """Stores a tensor of float64, in place of one of this shape that the run has stored."""
        shape, old = tuple(tensor.shape), self.at.get((run, key))
        start = self.file.seek(old[0]) if old is not None and old[1] == shape else self.file.seek(0, SEEK_END)
        self.at[run, key] = start, shape
        self.file.write(tensor.flatten().numpy().data)

    def get(self, run: str, key: Hashable) -> Tensor:
        """What a run has stored last."""
        start, shape = self.at[run, key]
        tensor = torch.empty(shape, dtype=torch.float64)
        self.file.seek(start)
        reader: Any = self.file
        reader.readinto(tensor.flatten().numpy().data)
        return tensor


@final
class Runs:
    """The queries, keys, values and weights of each call of each attention in a run on a `base`, and how they change.

    They stand in a `file`, by their `leads`: what is in front of the queries and keys of their attention.
    """

    def __init__(self, file: IO[bytes], perturbed: Perturbed, rule: Rule, base: Tensor | None = None):
        self.stored, self.perturbed, self.rule, self.base = Stored(file), perturbed, rule, base
        self.count, self.leads = 0, dict[Answer, Shape]()
        self.add(None)

    def add(self, noise: Tensor | None) -> None:
        """A run with this noise on the input, of which the changes are stored."""
        calls, first = Counter[str](), self.count == 0

        def keep(answer: Answer, tensor: Tensor, lead: Shape) -> None:
            if first:
                self.leads[answer] = lead
            # Only changes are compared. Their difference is taken here, in float64, before anything is rounded.
            change = tensor.double() if first else tensor.double() - self.stored.get("0", answer)
            self.stored.put(f"{self.count}", answer, change)

        def see(attended: Attended, _: Running) -> None:
            name, lead = attended.name, tuple(attended.attention.shape[:-2])
            keep((name, calls[name], WEIGHTS), sums_of_rows(attended.attention)[..., None], lead)
            for role in ROLES:
                tensor = getattr(attended, role)
                if tensor is not None and tensor.is_floating_point():
                    keep((name, calls[name], role), tensor, lead)
            calls[name] += 1

        self.perturbed.run(Watch(self.perturbed.network, see, self.rule), noise, self.base)
        self.count += 1

    def of(self, answer: Answer, *numbers: int) -> list[Tensor]:
        """The tensor of the first run, and its changes in others."""
        return [self.stored.get(f"{number}", answer) for number in numbers]


def sums_of_rows(attention: Tensor) -> Tensor:
    """A sum of each row, whose weights differ from key to key."""
    keys = torch.arange(1.0, attention.shape[-1] + 1, dtype=attention.dtype, device=attention.device).sqrt()
    return (attention.detach() @ keys).cpu()


def first_calls(runs: Runs, *numbers: int) -> Iterator[tuple[Key, list[Tensor]]]:
    """What runs of these numbers have stored of the first call of each attention, by role.

    Values come a second time, with their channels for tokens.
    """
    for name, call, role in runs.leads:
        if call or role == WEIGHTS:
            continue
        tensors = runs.of((name, call, role), *numbers)
        yield (name, role), tensors
        if role == "value":
            yield (name, "channels"), [each.mT for each in tensors]
