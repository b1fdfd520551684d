"""Tensors bit for bit."""

from typing import Any

import torch
from torch import Tensor

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def layout(tensor: Tensor) -> tuple[Any, ...]:
    """How a tensor lies in its memory."""
    return tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg()


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits: NaN and the sign of zero included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    ours, theirs = (each.detach().resolve_conj().resolve_neg().cpu() for each in (first, second))
    if ours.is_complex():
        ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
    return torch.equal(ours.view(BITS[ours.itemsize]), theirs.view(BITS[theirs.itemsize]))
