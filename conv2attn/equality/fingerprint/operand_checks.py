"""Checks that operators and their operands keep a run over a field sound."""

import math
import os
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules import RULES
from conv2attn.equality.fingerprint.tensors import PLAIN, FieldTensor


def refuse_unsound(func: Any, kwargs: Any, tensors: list[Tensor], targets: list[Tensor]) -> None:
    """Refuses operators that are not functions of their operands, or that change more than tensors of the run.

    Args:
        tensors: the operands that are tensors.
        targets: the operands that it writes to.
    Raises:
        Undecided: the operator draws random numbers, changes a shape, writes to the network, or is not torch's.
    """
    for each in tensors:
        check_operand(each)
    space, name = func._schema.name.split("::")
    seeded = torch.Tag.nondeterministic_seeded in func.tags and not (space == "aten" and name in RULES)
    if seeded or kwargs.get("generator") is not None:
        raise Undecided("random numbers")
    if torch.Tag.inplace_view in func.tags:
        raise Undecided("changes the shape of a tensor in place")
    if any(type(each) is not FieldTensor for each in targets):
        raise Undecided("writes to a tensor of the network")
    if space != "aten":
        raise Undecided("an operator that is not torch's")


def check_operand(tensor: Tensor) -> None:
    """Refuses operands that are not dense tensors of torch on the CPU.

    Raises:
        Undecided: the tensor is of another kind.
    """
    if type(tensor) is FieldTensor:
        return
    if type(tensor) not in PLAIN:
        raise Undecided(f"a tensor of type {type(tensor).__name__}")
    odd = tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_nested
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or odd:
        raise Undecided(f"a tensor that is {tensor.layout}, {tensor.dtype}, on {tensor.device}")


def check_bits(view: Tensor, dtype: torch.dtype) -> None:
    """Refuses a view that reinterprets the bits of its numbers.

    Raises:
        Undecided: the view has another dtype, or is conjugate or negated.
    """
    if view.dtype != dtype or view.is_conj() or view.is_neg():
        raise Undecided("bits read as another dtype")


def scramble(tensor: Tensor) -> None:
    """Fills an unwritten tensor with NaN or random integers, so that no formula can depend on its contents."""
    if tensor.is_floating_point():
        tensor.fill_(math.nan)
    elif tensor.numel():
        words = torch.frombuffer(bytearray(os.urandom(8 * tensor.numel())), dtype=torch.int64)
        tensor.copy_(words.reshape(tensor.shape).to(tensor.dtype))


def check_apart(target: FieldTensor, tensors: list[Tensor]) -> None:
    """Refuses operands that overlap the target of a write without being identical to it.

    Raises:
        Undecided: an operand overlaps the target.
    """
    count = target.field_store.numel()
    for each in tensors:
        if not isinstance(each, FieldTensor) or each.field_store is not target.field_store:
            continue
        if each.field_view == target.field_view:
            continue
        read = torch.zeros(count, dtype=torch.bool)
        read[torch.arange(count).as_strided(*each.field_view).flatten()] = True
        if bool(read[torch.arange(count).as_strided(*target.field_view).flatten()].any()):
            raise Undecided("a write that overlaps what is read")
