"""Shadows of the numbers that a network stores or writes in its code: these are shaken."""

from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.questions import SAMPLE
from conv2attn.equality.worlds.shadows import COPIES, Shadow, Unfollowed, cast, repeated
from conv2attn.equality.worlds.shaking import HALF, UNITS, are_exact, shaken, unit_of
from conv2attn.equality.worlds.steps import has_large_numbers

KEPT = 10**5  # copies of constants up to this size are kept, not drawn again at each use
SECOND = 10**6  # added to the second network's seeds, so that its constants move independently


def stored_tensors(network: Any) -> list[Tensor]:
    """The parameters and buffers of a network; plain functions have none."""
    return [*network.parameters(), *network.buffers()] if isinstance(network, nn.Module) else []


def moving_numbers(network: Any) -> int:
    """The count of stored numbers in tensors of more than one value, unlike the tensor of ones in a folded norm."""
    # The first numbers are enough: they only decide which network is shaken.
    dense = [t for t in stored_tensors(network) if t.layout is torch.strided]
    return sum(t.numel() for t in dense if len(t.flatten()[:SAMPLE].unique()) > 1)


@final
class StoredNumbers:
    """The stored numbers of one network. `coarsest` is the largest unit of rounding among them so far."""

    def __init__(self, oracles: Oracles, second: bool):
        self.oracles, self.seeds, self.coarsest = oracles, SECOND * second, 0.0
        # By id; the tensor itself is kept, so that no other tensor gets its id.
        self.tensors: dict[int, tuple[Tensor, int, Shadow | None, int]] = {}
        self.scalars: dict[float, Shadow] = {}

    def seed(self) -> int:
        """The seed for the moves of the next constant."""
        self.seeds += 1
        return self.seeds

    def moved(self, made: Tensor | Shadow, unit: float, seed: int = 0) -> Shadow:
        """The shadow of a constant, with copies that move by about a unit; one computed by code is a shadow already."""
        dtype, shakes = self.oracles.dtype, self.oracles.shakes
        if isinstance(made, Shadow):
            copies = made.copies[: 1 + shakes]
        else:
            copies = [cast(made.detach(), 0, dtype)] + [made.detach().resolve_conj()] * shakes
        return Shadow(repeated(shaken(copies, unit, seed or self.seed(), dtype)), constant=True)

    def shadow(self, t: Tensor) -> Shadow:
        """The shadow of a tensor that no operator created."""
        if t.layout is not torch.strided:
            raise Unfollowed(f"numbers of layout {t.layout}")
        if id(t) not in self.tensors or self.tensors[id(t)][3] != t.data_ptr():  # new, or replaced through .data
            self.tensors[id(t)] = (t, self.seed(), None, t.data_ptr())
        _, seed, shadow, _ = self.tensors[id(t)]
        if shadow is not None:
            return shadow
        unit = unit_of(t.dtype)
        if unit is None:
            raise Unfollowed(f"numbers of type {t.dtype}")
        self.coarsest = max(self.coarsest, unit)
        if unit > HALF or (self.oracles.dtype == torch.float32 and unit < UNITS[torch.float32]):
            self.oracles.refuse_quick(f"numbers of type {t.dtype}")
        if has_large_numbers(t.detach()):
            self.oracles.refuse_quick("large numbers that may be exact")
        shadow = self.moved(t, unit, seed)
        if t.numel() < KEPT:
            self.tensors[id(t)] = (t, seed, shadow, t.data_ptr())
        return shadow

    def scalar(self, value: float) -> Shadow:
        """A Python number with shaken copies, rounded to float32 as in exported files."""
        value = float(value)
        if value not in self.scalars:
            number, unit = torch.tensor(value, dtype=torch.float64), UNITS[torch.float32]
            if not bool(are_exact(number, 0.0)):
                self.coarsest = max(self.coarsest, unit)
            self.scalars[value] = self.moved(number, unit)
        return self.scalars[value]

    def rounded(self, shadow: Shadow, dtype: torch.dtype) -> Shadow:
        """Numbers of the input stored in fewer bits: the shaken copies move by a unit of that format."""
        self.oracles.refuse_quick("numbers of half precision")
        unit, seed, out = UNITS[dtype], self.seed(), list[Tensor]()
        self.coarsest = max(self.coarsest, unit)
        for w in range(self.oracles.worlds):
            copies = [shadow.of(w * COPIES + i).clone() for i in range(COPIES)]
            out += shaken(copies, unit, seed + 10**5 * w, self.oracles.dtype)
        return Shadow(out)
