"""How the queries, keys and values of each attention respond to small noise, one attention at a time."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from os import SEEK_END
from typing import IO, Any, final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Attended, Running, Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.watch import Watch

ROLES = ("query", "key", "value")
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


def each_operand(
    perturbed: Perturbed,
    rule: Silence,
    use: Callable[[Key, Tensor], None],
    noise: Tensor | None = None,
    base: Tensor | None = None,
) -> None:
    """Passes on the queries, keys and values of each attention, in float64, as a silenced run comes to them."""
    passed = set[Key]()

    def see(attended: Attended, _: Running) -> None:
        for role in ROLES:
            tensor, key = getattr(attended, role), (attended.name, role)
            if tensor is not None and tensor.is_floating_point() and key not in passed:
                passed.add(key)
                use(key, tensor.double())

    perturbed.run(Watch(perturbed.network, see, rule), noise, base)


def by_role(key: Key, *tensors: Tensor) -> Iterator[tuple[Key, tuple[Tensor, ...]]]:
    """Numbers of each token; of values a second time, with their channels for tokens."""
    yield key, tensors
    if key[1] == "value":
        yield (key[0], "channels"), tuple(each.mT for each in tensors)
