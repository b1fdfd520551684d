"""How the queries, keys and values of each attention respond to small noise, one attention at a time."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
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
EPSILON = 1e-7
"""Size of the noise: in float64, far above rounding, and so small that the response is linear: networks make it some
hundred times as large, and then it must not reach the kinks of a hardswish."""
SILENT = 1e-13
"""A response counts as zero if its square is below this share of the largest."""
NONE, SEVERAL = -1, -2
"""In place of the number of a part: no part changes it, or more than one."""
OFF = 0.01
"""What is off by this share of the distance between the numbers of two parts is off by rounding."""

NEAR_BLOCK = 0.05
"""A centre at most this share of a block from the centre of a block is in it."""
NEAR_CELL = 0.25
"""A centre at most this share of a cell from the centre of a cell may be of this cell alone."""
WIDTH, FEW = 4, 16
"""Channels of responses that tell a block: in one channel, one has the same direction whatever it depends on. Of few
channels all may be zero behind a relu, or those of one pixel behind a maximum, which another image tells."""
WIDE = 0.1
"""A token that depends on a block of several cells spreads at least over this share of a cell."""


def numbered(change: Tensor, ramped: Tensor, count: int, near: float = OFF) -> Tensor:
    """The one of `count` parts of 0..1 on which each target (..., width) depends, SEVERAL if on more than one.

    All parts change, then each a number of times as much. With d and d' the changes of a target, its part has the
    number `c = <d', d> / |d|^2`, and it is the only one if `d' - c d` is zero.
    """
    squares = change.pow(2).sum(-1).clamp_min(1e-300)
    centre = (ramped * change).sum(-1) / squares
    # If one part alone changes a target, the second change is its number times the first, so that nothing is left of
    # it.
    spread = (ramped - centre[..., None] * change).pow(2).sum(-1).div(squares).sqrt()
    at = centre * count - 0.5
    alone = (spread * count < OFF) & ((at - at.round()).abs() < near)
    return torch.where(alone, at.round(), SEVERAL).to(torch.int16 if count < 2**15 else torch.int32)


@final
@dataclass(eq=False)
class Response:
    """How one tensor responds to noise: which tokens are `live`; by axis the `centres` and `spreads` of all. `at_times`
    says that some are live on some images alone.

    `blocks` are by axis and side of a block how many there are, and of which each token is, where each is of one.
    Numbers are in float32, since they are kept of all layers.
    """

    live: Tensor
    at_times: bool = False
    centres: dict[int, Tensor] = field(default_factory=dict)
    spreads: dict[int, Tensor] = field(default_factory=dict)
    blocks: dict[int, dict[int, tuple[int, Tensor]]] = field(default_factory=dict)

    @staticmethod
    def of(own: Tensor, change: Tensor, ramped: Mapping[int, Tensor], shape: Shape, images: int = 1) -> "Response":
        """The response of a tensor by its changes under noise, and under noise times ramps along axes of the input.

        Args:
            images: how many of them give their changes, one behind the other along the channels.
        """
        squares = change.pow(2).sum(-1)
        # Rounding answers too: of tokens that nothing reaches, changes are some units of float64 of what they are.
        largest = max(
            float(squares.max()) if squares.numel() else 0.0, 1e-9 * EPSILON**2 * float(own.pow(2).sum(-1).mean())
        )
        parts = change.unflatten(-1, (images, -1)).pow(2).sum(-1) > SILENT * largest
        at_times = bool((parts.any(-1) & ~parts.all(-1)).any())
        response, squares = Response(squares > SILENT * largest, at_times), squares.clamp_min(1e-300)
        # Of a spread along one direction only what is across the response shows: (w - 1) / w of it in w channels.
        width = change.shape[-1]
        shown = max(width - 1, 1) / width
        for axis, each in ramped.items():
            centre = (each * change).sum(-1) / squares
            response.centres[axis] = centre.float()
            response.spreads[axis] = ((each.pow(2).sum(-1) / squares - centre**2) / shown).clamp_min(0).sqrt().float()
            response.fit(axis, 1, change, each, shape[axis])
        return response

    def fit(self, axis: int, block: int, change: Tensor, ramped: Tensor, side: int) -> None:
        """Notes of which block along an axis each token is, if each live one is of one.

        The ramp is constant within a block, so that such a token has spread 0 up to rounding, whatever its weights are.
        """
        at = numbered(change, ramped, side // block, NEAR_BLOCK)
        one_cell = block > 1 and self.is_of_cells(axis, side)
        if change.shape[-1] > 1 and not one_cell and bool((at[self.live] >= 0).all()):
            self.blocks.setdefault(axis, {})[block] = side // block, at

    def is_of_cells(self, axis: int, side: int) -> bool:
        """Whether each live token is of one cell along an axis, as far as responses tell that are not linear.

        Numbers are off there, and fit coarser blocks alone; but a token of one cell spreads over no block, and its
        centre is near that of a cell. Where queries have one direction, nothing spreads, and centres are anywhere.
        """
        spread, centre = (side * each[axis][self.live] for each in (self.spreads, self.centres))
        off = (centre - 0.5 - (centre - 0.5).round()).abs()
        return bool(spread.numel()) and float(spread.median()) < WIDE and float(off.max()) < NEAR_CELL

    def fitting(self, axis: int) -> tuple[int, Tensor] | None:
        """The number of the smallest blocks of which each live token is one, and which; None if there are none."""
        blocks = self.blocks.get(axis)
        return blocks[min(blocks)] if blocks else None

    def tells(self, axis: int, wide: bool = False) -> bool:
        """Whether tokens of a row, or of all rows where `wide`, are of several blocks along an axis."""
        count, at = self.fitting(axis) or (0, self.live.long())
        least, most = at.where(self.live, count).amin(-1), at.where(self.live, -1).amax(-1)
        return count > 0 and bool((least < (most.max() if wide else most)).any())

    def moments(self, axes: Sequence[int]) -> Tensor:
        """The centres (..., axes) and their squares."""
        centre = torch.stack([self.centres[axis] for axis in axes], -1).double()
        return torch.stack([centre, centre**2], -1)


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
        self.file.write(tensor.flatten().contiguous().numpy().data)

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

    They stand in a `file`, by their `keys`; `shapes` are those of the attention of each call. `narrowest` is the
    least number of channels of any, `FEW` at most.
    """

    def __init__(self, file: IO[bytes], perturbed: Perturbed, rule: Rule | None, base: Tensor | None = None):
        self.stored, self.perturbed, self.rule, self.base = Stored(file), perturbed, rule, base
        self.count, self.keys, self.shapes = 0, list[Key](), dict[Call, Shape]()
        self.maps = dict[Call, tuple[Shape, ...]]()
        self.narrowest, self.draws, self.others = FEW, 1, list[Tensor | None]()
        self.add(None)

    def beside(self, others: Sequence[Tensor | None]) -> None:
        """Runs on other bases: of each, the changes are more channels of those on the first from now on."""
        self.others = list(others)
        for number, base in enumerate(others, 1):
            self.run(f"base {number}", None, base, "")

    def add(self, *noises: Tensor | None) -> None:
        """A run with each of these noises on the input, and its base, of which the changes are stored as channels."""
        self.draws = len(noises)
        for number, (noise, base) in enumerate(zip(noises, (self.base, *self.others), strict=False)):
            own = f"base {number}" if number else "0"
            self.run(f"{self.count}", noise, base, own if self.count else "")
        self.count += 1

    def run(self, name: str, noise: Tensor | None, base: Tensor | None, own: str) -> None:
        """A run of which what has changed since the run `own` is stored by this name; all of it without such a run."""

        def keep(key: Key, tensor: Tensor) -> None:
            if name == "0":
                self.keys.append(key)
                self.narrowest = min(self.narrowest, max(1, tensor.shape[-1])) if key[1] in ROLES else self.narrowest
            # Only changes are compared. Their difference is taken here, in float64, before anything is rounded.
            change = tensor.double() - self.stored.get(own, key) if own else tensor.double()
            if own.startswith("base"):
                change = torch.cat([self.stored.get(name, key), change], -1)
            self.stored.put(name, key, change)

        def see(attended: Attended, _: Running) -> None:
            self.shapes[attended.call], self.maps[attended.call] = tuple(attended.attention.shape), attended.maps
            keep((attended.call, WEIGHTS), sums_of_rows(attended.attention)[..., None])
            for role in ROLES:
                tensor = getattr(attended, role)
                if tensor is not None and tensor.is_floating_point():
                    keep((attended.call, role), tensor)

        self.perturbed.run(Watch(self.perturbed.network, see, self.rule), noise, base)

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
                parts = [each.mT.unflatten(-2, (-1, tensors[-1].shape[-1] // self.draws)) for each in tensors]
                yield (call, "channels"), [torch.cat(each.unbind(-3), -1) for each in parts]


def sums_of_rows(attention: Tensor) -> Tensor:
    """A sum of each row, whose weights differ from key to key."""
    keys = torch.arange(1.0, attention.shape[-1] + 1, dtype=attention.dtype, device=attention.device).sqrt()
    return (attention.detach() @ keys).cpu()
