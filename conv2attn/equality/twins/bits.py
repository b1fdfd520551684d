"""Compares tensors bit for bit."""

import hashlib
from typing import Any

import torch
from torch import Tensor


def layout(tensor: Tensor) -> tuple[Any, ...]:
    """The memory layout of a tensor: strides, offset, and lazy conjugation and negation."""
    return tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg()


def bytes_of(numbers: Tensor) -> Tensor:
    """The bytes of a dense tensor's numbers in row-major order, on the CPU."""
    whole = numbers.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)  # a single number may have any stride


def sha256_of(numbers: Tensor) -> str:
    """The SHA-256 of a dense tensor's bytes, in row-major order."""
    return hashlib.sha256(memoryview(bytes_of(numbers).numpy())).hexdigest()  # type: ignore[arg-type]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits: also for NaN and the sign of zero."""
    # Bytes are compared because NaN is unequal to itself, and -0.0 equals 0.0.
    alike = first.shape == second.shape and first.dtype == second.dtype
    return alike and torch.equal(bytes_of(first), bytes_of(second))


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have equal numbers and signs of zero; all NaNs count as equal."""
    if same_bits(first, second):
        return True
    if first.shape != second.shape or not first.is_floating_point():
        return False
    is_number = ~first.isnan()
    return torch.equal(is_number, ~second.isnan()) and same_bits(first[is_number], second[is_number])
