"""How the queries, keys and values of each attention respond to small noise, one attention at a time."""

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
Call = tuple[str, int]
"""The name of an attention, and the number of its call in a run."""
Key = tuple[Call, str]
"""A call and a role: one of `ROLES`, its weights, or the "channels" of its values."""
LEAST = 1e-37
"""Near the least number of float32: in place of a square that is zero."""


@final
@dataclass(eq=False)
class Response:
    """Sums over draws of the responses of one tensor: `squares` (..., tokens); by axis `along` and `ramped`.

    `blocks` are by axis and side of a block which tokens fit one, and which; `images` are those of the tokens. Sums
    are in float32, since they are kept of all layers.
    """

    squares: Tensor
    along: dict[int, Tensor] = field(default_factory=dict)
    ramped: dict[int, Tensor] = field(default_factory=dict)
    blocks: dict[int, dict[int, tuple[Tensor, Tensor]]] = field(default_factory=dict)
    images: Tensor | None = None
    exact: bool = False
    of_draws: dict[int, Tensor] = field(default_factory=dict)

    def rows(self, lead: Shape, axis: int, rows: Tensor) -> "Response":
        """Some rows along an axis of what is in front of the tokens, as a response of their own."""

        def some(tensor: Tensor) -> Tensor:
            return tensor.reshape(*lead, -1).index_select(axis, rows)

        blocks = {a: {b: (some(fits), some(at)) for b, (fits, at) in each.items()} for a, each in self.blocks.items()}
        along, ramped = ({a: some(each) for a, each in sums.items()} for sums in (self.along, self.ramped))
        return Response(some(self.squares), along, ramped, blocks)

    def add(self, axis: int, change: Tensor, ramped: Tensor, several: bool) -> None:
        """Adds the responses to one noise, and to its ramp along an axis; `several` noises have own centres."""
        self.along[axis] = self.along.get(axis, 0) + (ramped * change).sum(-1).float()
        self.ramped[axis] = self.ramped.get(axis, 0) + (ramped * ramped).sum(-1).float()
        if not several:
            return
        own = (ramped * change).sum(-1) / (change * change).sum(-1).clamp_min(1e-300)
        self.of_draws[axis] = self.of_draws.get(axis, 0) + torch.stack([own, own * own], -1)

    def fit(self, axis: int, block: int, fits: tuple[Tensor, Tensor]) -> None:
        """Notes which tokens depend on one block of this side along an axis, and on which."""
        self.blocks.setdefault(axis, {})[block] = fits

    def keep_fitting(self, live: Tensor) -> None:
        """Keeps those blocks alone of which each live token depends on one."""
        for axis, blocks in self.blocks.items():
            self.blocks[axis] = {block: fits for block, fits in blocks.items() if bool(fits[0][live].all())}

    def fitting(self, axis: int, live: Tensor) -> tuple[int, Tensor] | None:
        """The smallest side of blocks of which each live token depends on one, and on which; None if there is none."""
        blocks = sorted(self.blocks[axis].items())
        return next(((block, at) for block, (fits, at) in blocks if fits[live].all()), None)

    def centre(self, axis: int) -> Tensor:
        """The centre of each token, in the side of the input."""
        return self.along[axis].double() / self.squares.double().clamp_min(LEAST)

    def spread(self, axis: int) -> Tensor:
        """The standard deviation of what each token depends on."""
        squares = self.ramped[axis].double() / self.squares.double().clamp_min(LEAST)
        return (squares - self.centre(axis) ** 2).clamp_min(0).sqrt()


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

    They stand in a `file`, by their `keys`; `shapes` are those of the attention of each call.
    """

    def __init__(self, file: IO[bytes], perturbed: Perturbed, rule: Rule | None, base: Tensor | None = None):
        self.stored, self.perturbed, self.rule, self.base = Stored(file), perturbed, rule, base
        self.count, self.keys, self.shapes = 0, list[Key](), dict[Call, Shape]()
        self.maps = dict[Call, tuple[Shape, ...]]()
        self.add(None)

    def add(self, noise: Tensor | None) -> None:
        """A run with this noise on the input, of which the changes are stored."""
        first = self.count == 0

        def keep(key: Key, tensor: Tensor) -> None:
            if first:
                self.keys.append(key)
            # Only changes are compared. Their difference is taken here, in float64, before anything is rounded.
            change = tensor.double() if first else tensor.double() - self.stored.get("0", key)
            self.stored.put(f"{self.count}", key, change)

        def see(attended: Attended, _: Running) -> None:
            self.shapes[attended.call], self.maps[attended.call] = tuple(attended.attention.shape), attended.maps
            keep((attended.call, WEIGHTS), sums_of_rows(attended.attention)[..., None])
            for role in ROLES:
                tensor = getattr(attended, role)
                if tensor is not None and tensor.is_floating_point():
                    keep((attended.call, role), tensor)

        self.perturbed.run(Watch(self.perturbed.network, see, self.rule), noise, self.base)
        self.count += 1

    def of(self, key: Key, *numbers: int) -> list[Tensor]:
        """The tensor of the first run, and its changes in others."""
        return [self.stored.get(f"{number}", key) for number in numbers]

    def tokens(self, *numbers: int) -> Iterator[tuple[Key, list[Tensor]]]:
        """What runs of these numbers have stored of queries, keys and values.

        Values come a second time, with their channels for tokens.
        """
        for call, role in self.keys:
            if role == WEIGHTS:
                continue
            tensors = self.of((call, role), *numbers)
            yield (call, role), tensors
            if role == "value":
                yield (call, "channels"), [each.mT for each in tensors]


def sums_of_rows(attention: Tensor) -> Tensor:
    """A sum of each row, whose weights differ from key to key."""
    keys = torch.arange(1.0, attention.shape[-1] + 1, dtype=attention.dtype, device=attention.device).sqrt()
    return (attention.detach() @ keys).cpu()
