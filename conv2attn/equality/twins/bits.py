"""Tensors bit for bit."""

import hashlib
from typing import Any

import torch
from torch import Tensor


def layout(tensor: Tensor) -> tuple[Any, ...]:
    """How a tensor lies in its memory."""
    return tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg()


def bytes_of(numbers: Tensor) -> Tensor:
    """The bytes of the numbers of a dense tensor, row by row, on the CPU."""
    whole = numbers.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)  # one number may have any stride


def sha256_of(numbers: Tensor) -> str:
    """The hash of the numbers of a dense tensor, as its dtype has them, row by row."""
    return hashlib.sha256(memoryview(bytes_of(numbers).numpy())).hexdigest()  # type: ignore[arg-type]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits: NaN and the sign of zero included."""
    # By bytes, as NaN is not equal to itself and the two zeros are equal.
    alike = first.shape == second.shape and first.dtype == second.dtype
    return alike and torch.equal(bytes_of(first), bytes_of(second))


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same numbers, the sign of zero included; any NaN is any other."""
    if same_bits(first, second):
        return True
    if first.shape != second.shape or not first.is_floating_point():
        return False
    known = ~first.isnan()
    return torch.equal(known, ~second.isnan()) and same_bits(first[known], second[known])
