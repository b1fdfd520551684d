"""The inputs of a followed call: random numbers in place of the caller's."""

from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.shadows import Shadow, is_number
from conv2attn.networks.specimens import Arguments, map_tensors, masks_among


def with_random_numbers(args: Any, kwargs: Any, seed: int, oracles: Oracles) -> tuple[Any, Any]:
    """Inputs with shadows: numbers become random in each world, ids are marked, masks and other values stay."""
    generator = torch.Generator().manual_seed(seed + 1)
    masks = masks_among((args, dict(kwargs)))

    def with_marks(given: Tensor) -> Tensor:
        t = given.detach().clone()
        if is_number(t) and id(given) not in masks:
            t._shadow = random_input(t, generator, oracles)  # type: ignore[attr-defined]
        elif not is_number(t) and t.dtype != torch.bool:
            t._ids = True  # type: ignore[attr-defined]
        return t

    mended: tuple[Any, Any] = map_tensors(with_marks, Arguments(tuple(args), dict(kwargs)))
    return mended


def random_input(t: Tensor, generator: torch.Generator, oracles: Oracles) -> Shadow:
    """Random numbers of the size of the input's, exact in float32."""
    size = t.abs().double().nan_to_num(1.0, 1.0).clamp(min=1.0)
    dtype = torch.complex128 if t.is_complex() else torch.float64
    stored = torch.complex64 if t.is_complex() else torch.float32
    drawn = [s * size * torch.randn(t.shape, generator=generator, device="cpu", dtype=dtype) for s in oracles.scales]
    # In float32 first, so that copies of both dtypes hold the same input, and its rounding is nobody's.
    return oracles.spread([world.to(stored) for world in drawn])
