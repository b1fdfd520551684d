"""Shaken copies of constants: each stored number moves by about a unit in its last place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import GAIN, MASKED

# Rows of a Hadamard matrix: the moves of the few numbers of a norm (weight, bias, mean, variance) never cancel in every
# copy, as independent signs do in one case of eight. Without them a correct ResNet-50 showed 6.9 units, with them 3.9.
HADAMARD = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
HALF = 2.0**-20  # units above it are those of half precision
# Moves drawn for one tensor. A larger tensor repeats them; the number is prime, so rows of a weight get other moves.
TILE = 100_003


def unit_of(dtype: torch.dtype) -> float | None:
    """Half the distance from 1 to the next number; None for dtypes that are not followed."""
    return UNITS.get(dtype.to_real() if dtype.is_complex else dtype)


def are_exact(t: Tensor, unit: float) -> Tensor:
    """The numbers that cannot result from rounding: masking integers, and numbers of at most 8 significant bits.

    In half precision only 0, 1 and -1: even a limit of 4 bits would accept one rounded number in 16 by chance.
    """
    if unit > HALF:
        exact = (t == 0) | (t.abs() == 1) | ~t.isfinite()
    else:
        whole, low = (torch.int64, 2**45 - 1) if t.dtype == torch.float64 else (torch.int32, 2**16 - 1)
        exact = t.view(whole) & low == 0
    masks = t < MASKED
    # Few tensors have masks, and rounding dominates the cost here.
    return exact | (masks & (t == t.round())) if bool(masks.any()) else exact


def shaken(copies: Sequence[Tensor], unit: float, seed: int, dtype: torch.dtype) -> list[Tensor]:
    """The copies; all but the first are rounded once more: inexact numbers move by 0.5 to 1.5 units times GAIN."""
    if len(copies) == 1:
        return [*copies]
    if copies[0].is_complex():
        parts = [torch.view_as_real(t.resolve_conj()).contiguous() for t in copies]
        return [torch.view_as_complex(t) for t in shaken(parts, unit, seed, dtype)]
    count, generator = copies[0].numel(), torch.Generator().manual_seed(seed)
    tile = max(1, min(count, TILE))

    def drawn() -> Tensor:
        return torch.rand(tile // 4 + 1, 4, generator=generator, device="cpu")

    signs = drawn().sub_(0.5).sign_().mul_(unit * GAIN[dtype])
    move, moves = signs, list[Tensor]()
    for i in range(len(copies) - 1):
        # Moves come in pairs around one unit, m and 2 - m, so every number has the same mean move.
        move = 2 - move if i % 2 else drawn().add_(0.5)
        moves.append((signs * move * HADAMARD[i].roll(seed)).flatten()[:tile].to(dtype))
    # Tile by tile, so that intermediate results stay in the cache.
    out = [torch.empty(copies[0].shape, dtype=dtype) for _ in moves]
    stored = copies[1].dtype == torch.float32 and copies[1] is copies[-1]
    tiles = [zip(*(t.flatten().split(tile) for t in several), strict=True) for several in (copies, out)]
    for (true, *olds), news in zip(*tiles, strict=True):
        exact, old, loose = are_exact(olds[0] if stored else true, unit), true, true
        for i, new in enumerate(news):
            if i == 0 or copies[i + 1] is not copies[i]:
                old = olds[i].to(dtype)
                loose = old.masked_fill(exact, 0.0)
            torch.addcmul(old, loose, moves[i][: len(old)], out=new)
    return [copies[0], *out]
