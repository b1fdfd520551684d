"""The arithmetic of a device as its settings have it, and whether its convolutions are direct sums."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import nn

from conv2attn.attention.probes import float32_precisions, spread_of_spike
from conv2attn.basis import Basis, Sides
from conv2attn.bounds import RoundingBound, convolution_bound
from conv2attn.equivalence.differential import Measured, alone
from conv2attn.models.conversion.discovery import copy_network

CUT = {"bf16": "bf32", "tf32": "tf32"}  # what torch calls them: float32 multiplied in so few bits; the coarsest first


@final
@dataclass(frozen=True)
class Arithmetic:
    """The settings that decide how products are formed and summed, as recorded where a certificate was made.

    `convolution` and `product` are torch's `fp32_precision` of each: what is allowed counts as done, though not every
    kernel does it. `stored_sums` are the half types whose partial sums of products may be stored as such numbers, and
    `truncated_sums` those whose additions may truncate, as on tensor cores.
    """

    convolution: str
    product: str
    stored_sums: frozenset[str] = frozenset()
    truncated_sums: frozenset[str] = frozenset()

    @staticmethod
    def of(device: str) -> "Arithmetic":
        """The settings now."""
        cublas = torch.backends.cuda.matmul
        reduced = {
            "bfloat16": cublas.allow_bf16_reduced_precision_reduction,
            "float16": cublas.allow_fp16_reduced_precision_reduction or cublas.allow_fp16_accumulation,
        }
        stored = frozenset(name for name in reduced if device == "cuda" and reduced[name])
        return Arithmetic(*float32_precisions(device), stored, frozenset(reduced if device == "cuda" else ()))

    def format(self, stored: str) -> str:
        """The format whose rounding counts for numbers stored as `stored`: the coarsest allowed for float32."""
        allowed = {self.convolution, self.product}
        return next((CUT[each] for each in CUT if each in allowed), stored) if stored == "float32" else stored

    def rounding(self, kind: str, terms: int, added: int = 0) -> RoundingBound:
        """`convolution_bound` of so many products and a bias, of which `added` parts are stored and added up as stored.

        The product and the bias are cast apart; and every sum where that is allowed, twice since it may be truncated.
        """
        casts, truncating = 2 + added + (2 * terms if kind in self.stored_sums else 0), kind in self.truncated_sums
        return convolution_bound(terms, kind, casts=casts, stored=casts + added, truncating=truncating)

    def bounds_means(self, kind: str) -> bool:
        """Whether the rounding of the weighted means of heads is known: not where sums are stored or truncated."""
        return kind not in self.stored_sums | self.truncated_sums


@contextmanager
def gradual_underflow() -> Iterator[bool]:
    """Lets subnormal numbers count, as they do on paper; yields whether this thread flushed them, and will again."""
    smallest = torch.full((1,), torch.finfo(torch.float32).smallest_normal)
    flushing = not bool((smallest / 2).view(torch.int32).item())
    torch.set_flush_denormal(False)
    try:
        yield flushing
    finally:
        torch.set_flush_denormal(flushing)


def spread_of(layer: nn.Module, basis: Basis, measured: Measured) -> float:
    """The largest `spread_of_spike` of a convolution over the shapes of the inputs observed, on their device.

    0 also without inputs, and where the padding copies the middle of so small an image to the border.
    """
    if measured.like is None:
        return 0.0
    shapes = [shape for shape in dict.fromkeys((*measured.earlier, measured.shape)) if has_blind_outputs(basis, shape)]
    device = measured.like.device.type
    bare = partial(alone, copy_network(layer))
    found = [
        spread_of_spike(bare, torch.Size(s), basis.weights.stored.dtype, device, seeing(basis, s[2:])) for s in shapes
    ]
    return max((spread for spread in found if spread > 0), default=0.0)


def has_blind_outputs(basis: Basis, shape: Sequence[int]) -> bool:
    """Whether inputs of this shape have a batch, and a pixel in the middle that most outputs do not see."""
    return len(shape) == len(basis.form.stride) + 2 and not padding_copies_middle(basis, tuple(shape[2:]))


def seeing(basis: Basis, sides: Sequence[int]) -> tuple[slice, ...]:
    """For each axis, outputs among which are all that see the pixel in the middle."""
    form, starts, around = basis.form, basis.starts, list[slice]()
    for axis, side in enumerate(sides):
        at = form.spacing[axis] * (side // 2)
        outputs = [(at - start[axis]) // form.stride[axis] for start in starts]
        around.append(slice(max(0, min(outputs)), max(0, max(outputs) + 2)))
    return tuple(around)


def padding_copies_middle(basis: Basis, sides: Sides) -> bool:
    """Whether the padding may copy the pixel in the middle."""
    padding = basis.padding
    amounts = zip(padding.before, padding.after, sides, strict=True)
    return padding.mode != "zeros" and any(max(b, a) >= (side - 1) // 2 for b, a, side in amounts)
