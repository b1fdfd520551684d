"""Responses of the queries, keys and values of each attention to small noise, one attention at a time."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import SEEK_END
from typing import IO, Any, final

import torch
from torch import Tensor, nn

from conv2attn.networks.reading.attended import Attended, Rule, Running
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.watch import Marked, Watch

ROLES = ("query", "key", "value")
WEIGHTS = "weights"
Shape = tuple[int, ...]
Call = tuple[str, int]
"""The name of an attention, and the number of one of its calls in a run."""
Key = tuple[Call, str]
"""A call and a role: one of `ROLES`, its weights, or the "channels" of its values."""
EPSILON = 1e-7
"""Size of the noise: far above float64 rounding, and small enough for a linear response.

Networks enlarge it some hundred times, and even then it must not cross the kinks of a hardswish.
"""
SILENT = 1e-13
"""A response counts as zero if its square is below this share of the largest."""
NONE, SEVERAL = -1, -2
"""Used instead of the number of a part: no part changes a target, or several do."""
OFF = 0.01
"""A deviation up to this share of the distance between two part numbers is rounding."""

NEAR_BLOCK = 0.05
"""A centre within this share of a block from the block's centre is in the block."""
NEAR_CELL = 0.25
"""A token may depend on one cell alone if its centre is within this share of a cell from the middle.
"""
WIDTH, FEW = 4, 16
"""Channels of a response that identify a block; with fewer, other images are needed.

With a single channel, every response has the same direction. With few, all may be zero after a relu, or belong to one
pixel after a maximum.
"""
WIDE = 0.1
"""A token that depends on a block of several cells has a spread of at least this share of a cell."""


def numbered(change: Tensor, ramped: Tensor, count: int, near: float = OFF) -> Tensor:
    """For each target (..., width), the number of the only part, of `count`, on which it depends, or SEVERAL.

    In one run all parts change; in another, part i of n changes (i + 1/2) / n times as much. With d and d' the changes
    of a target, its part has the factor `c = <d', d> / |d|^2`, and it is the only one if `d' - c d` is zero.
    """
    squares = change.pow(2).sum(-1).clamp_min(1e-300)
    centre = (ramped * change).sum(-1) / squares
    # If only one part changes a target, the second change is the part's factor times the first, and the difference
    # vanishes.
    spread = (ramped - centre[..., None] * change).pow(2).sum(-1).div(squares).sqrt()
    at = centre * count - 0.5
    alone = (spread * count < OFF) & ((at - at.round()).abs() < near)
    return torch.where(alone, at.round(), SEVERAL).to(torch.int16 if count < 2**15 else torch.int32)


@final
@dataclass(eq=False)
class Response:
    """The response of one tensor to noise: its `live` tokens, and by axis the `centres` and `spreads` of all.

    `at_times` says that some tokens are live in some images only.

    `blocks` has, by axis and block side, the number of blocks and the block of each token, if every token is in one.
    Numbers are in float32, since they are kept for all layers.
    """

    live: Tensor
    at_times: bool = False
    centres: dict[int, Tensor] = field(default_factory=dict)
    spreads: dict[int, Tensor] = field(default_factory=dict)
    blocks: dict[int, dict[int, tuple[int, Tensor]]] = field(default_factory=dict)

    @staticmethod
    def of(own: Tensor, change: Tensor, ramped: Mapping[int, Tensor], shape: Shape, images: int = 1) -> "Response":
        """The response of a tensor, from its changes under noise, and under noise times ramps along axes of the input.

        Args:
            images: number of images, whose changes are concatenated along the channels.
        """
        squares = change.pow(2).sum(-1)
        # Rounding also responds: tokens that nothing reaches change by some float64 roundoffs of their values.
        largest = max(
            float(squares.max()) if squares.numel() else 0.0, 1e-9 * EPSILON**2 * float(own.pow(2).sum(-1).mean())
        )
        parts = change.unflatten(-1, (images, -1)).pow(2).sum(-1) > SILENT * largest
        at_times = bool((parts.any(-1) & ~parts.all(-1)).any())
        response, squares = Response(squares > SILENT * largest, at_times), squares.clamp_min(1e-300)
        # The component of the spread along the response itself is invisible: w channels show (w - 1) / w of it.
        width = change.shape[-1]
        shown = max(width - 1, 1) / width
        for axis, each in ramped.items():
            centre = (each * change).sum(-1) / squares
            response.centres[axis] = centre.float()
            response.spreads[axis] = ((each.pow(2).sum(-1) / squares - centre**2) / shown).clamp_min(0).sqrt().float()
            response.fit(axis, 1, change, each, shape[axis])
        return response

    def fit(self, axis: int, block: int, change: Tensor, ramped: Tensor, side: int) -> None:
        """Records the block of each token along an axis, if every live token is in one block.

        The ramp is constant within a block, so such a token has spread 0 up to rounding, whatever its weights are.
        """
        at = numbered(change, ramped, side // block, NEAR_BLOCK)
        one_cell = block > 1 and self.is_of_cells(axis, side)
        if change.shape[-1] > 1 and not one_cell and bool((at[self.live] >= 0).all()):
            self.blocks.setdefault(axis, {})[block] = side // block, at

    def is_of_cells(self, axis: int, side: int) -> bool:
        """Whether each live token depends on one cell along an axis, as far as nonlinear responses show it.

        A nonlinear response is inexact, so a token of one cell may fit coarser blocks only. Its spread is then still
        small beside a block, and its centre is near that of a cell. Queries whose responses have one common direction
        have no spread, and arbitrary centres.
        """
        spread, centre = (side * each[axis][self.live] for each in (self.spreads, self.centres))
        off = (centre - 0.5 - (centre - 0.5).round()).abs()
        return bool(spread.numel()) and float(spread.median()) < WIDE and float(off.max()) < NEAR_CELL

    def fitting(self, axis: int) -> tuple[int, Tensor] | None:
        """For the smallest blocks that fit every live token: their number, and the block of each token; None if none
        fit."""
        blocks = self.blocks.get(axis)
        return blocks[min(blocks)] if blocks else None

    def tells(self, axis: int, wide: bool = False) -> bool:
        """Whether tokens of one row, or of all rows if `wide`, are in several blocks along an axis."""
        count, at = self.fitting(axis) or (0, self.live.long())
        least, most = at.where(self.live, count).amin(-1), at.where(self.live, -1).amax(-1)
        return count > 0 and bool((least < (most.max() if wide else most)).any())

    def moments(self, axes: Sequence[int]) -> Tensor:
        """The centres (..., axes) and their squares."""
        centre = torch.stack([self.centres[axis] for axis in axes], -1).double()
        return torch.stack([centre, centre**2], -1)


@final
class Stored:
    """Queries, keys and values of all attentions of several runs, in a file, since they would fill the memory."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.at = dict[tuple[str, Hashable], tuple[int, tuple[int, ...]]]()

    def put(self, run: str, key: Hashable, tensor: Tensor) -> None:
        """Stores a float64 tensor in place of the run's earlier tensor of this key."""
        shape, old = tuple(tensor.shape), self.at.get((run, key))
        start = self.file.seek(old[0]) if old is not None and old[1] == shape else self.file.seek(0, SEEK_END)
        self.at[run, key] = start, shape
        self.file.write(tensor.flatten().contiguous().numpy().data)

    def get(self, run: str, key: Hashable) -> Tensor:
        """The tensor that a run stored last."""
        start, shape = self.at[run, key]
        tensor = torch.empty(shape, dtype=torch.float64)
        self.file.seek(start)
        reader: Any = self.file
        reader.readinto(tensor.flatten().numpy().data)
        return tensor


@final
class Runs:
    """The queries, keys, values and weights of each call of each attention in a run on a `base`, and their changes.

    They are in a `file`, by their `keys`; `shapes` are the attention shapes of the calls. `narrowest` is the least
    number of channels, at most `FEW`.
    """

    def __init__(self, file: IO[bytes], perturbed: Perturbed, rule: Rule | None, base: Tensor | None = None):
        self.stored, self.perturbed, self.rule, self.base = Stored(file), perturbed, rule, base
        self.count, self.keys, self.shapes = 0, list[Key](), dict[Call, Shape]()
        self.maps = dict[Call, tuple[Shape, ...]]()
        self.narrowest, self.draws, self.others = FEW, 1, list[Tensor | None]()
        self.add(None)

    def beside(self, others: Sequence[Tensor | None]) -> None:
        """Adds runs on other bases: from then on, their changes are further channels of those on the first base."""
        self.others = list(others)
        for number, base in enumerate(others, 1):
            self.run(f"base {number}", None, base, "")

    def add(self, *noises: Tensor | None) -> None:
        """Runs the network on the base and with each of these noises, and stores the changes as channels."""
        self.draws = len(noises)
        for number, (noise, base) in enumerate(zip(noises, (self.base, *self.others), strict=False)):
            own = f"base {number}" if number else "0"
            self.run(f"{self.count}", noise, base, own if self.count else "")
        self.count += 1

    def run(self, name: str, noise: Tensor | None, base: Tensor | None, own: str) -> None:
        """Runs the network and stores the changes since the run `own` under this name; without `own`, the values."""

        def keep(key: Key, tensor: Tensor) -> None:
            if name == "0":
                self.keys.append(key)
                self.narrowest = min(self.narrowest, max(1, tensor.shape[-1])) if key[1] in ROLES else self.narrowest
            # Only changes are compared. The difference is taken here, in float64, before anything is rounded to
            # float32.
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
        """The tensor of the first run, and its changes in the others."""
        return [self.stored.get(f"{number}", key) for number in numbers]

    def tokens(self, *numbers: int) -> Iterator[tuple[Key, list[Tensor]]]:
        """The queries, keys and values that the runs stored; values occur again with their channels as tokens."""
        for call, role in self.keys:
            if role == WEIGHTS:
                continue
            tensors = self.of((call, role), *numbers)
            yield (call, role), tensors
            if role == "value":
                parts = [each.mT.unflatten(-2, (-1, tensors[-1].shape[-1] // self.draws)) for each in tensors]
                yield (call, "channels"), [torch.cat(each.unbind(-3), -1) for each in parts]


def sums_of_rows(attention: Tensor) -> Tensor:
    """A weighted sum of each row, with a different weight for each key."""
    keys = torch.arange(1.0, attention.shape[-1] + 1, dtype=attention.dtype, device=attention.device).sqrt()
    return (attention.detach() @ keys).cpu()


def sums_of_run(network: nn.Module, run: Callable[[Watch], Any], marked: Marked | None = None) -> dict[Call, Tensor]:
    """The sums of rows of the attention of each call in a run of a watched network."""
    sums = dict[Call, Tensor]()

    def see(attended: Attended, _: Running) -> None:
        sums[attended.call] = sums_of_rows(attended.attention)

    run(Watch(network, see, marked=marked))
    return sums


def different_calls(
    first: Mapping[Call, Tensor], second: Mapping[Call, Tensor], same: Callable[[Tensor, Tensor], bool]
) -> set[Call]:
    """The calls whose sums are not the same in a second run, have another shape, or do not occur in it."""
    both = first.keys() & second.keys()
    alike = {call for call in both if first[call].shape == second[call].shape and same(first[call], second[call])}
    return (first.keys() | second.keys()) - alike
