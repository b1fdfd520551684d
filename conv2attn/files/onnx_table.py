"""The table of ONNX's operators as operators of torch, one row an operator: `onnx_operators` fills it.

A row gets the operands of its node: tensors; plain arrays where they are settings, such as shapes and axes, or have no
axes; None where the node has none. Its keyword-only parameters are the attributes that it honours, with the values of
`only` if not all. What no row honours is refused when the file is read, never at a call. Where onnx defines an operator
by others, a row stands here only if torch has it as one function. Source: https://onnx.ai/onnx/operators.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import UsageError

Plain = np.ndarray[Any, Any]
LARGEST_MADE = 1 << 26  # numbers that a node makes out of a shape alone


@final
@dataclass(frozen=True)
class OnnxOperator:
    """How an operator is computed.

    Args:
        compute: operands, and attributes by name -> the output, or a tuple of outputs.
        settings: positions of operands that are plain arrays.
        least: the first opset in which the operator has this meaning.
        outputs: how many of its outputs may be read.
        absent: positions of operands that no node may have.
        only: the values of attributes that are honoured, where not all are.
    """

    compute: Callable[..., Any]
    settings: Sequence[int] = ()
    least: int = 1
    outputs: int = 1
    absent: Sequence[int] = ()
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """The names of the keyword-only parameters."""
        kinds = inspect.signature(self.compute).parameters.values()
        return [each.name for each in kinds if each.kind is each.KEYWORD_ONLY]


OPERATORS: dict[str, OnnxOperator] = {}
"""All operators that are read, by name."""


def row(
    *names: str,
    settings: Sequence[int] = (),
    least: int = 1,
    outputs: int = 1,
    absent: Sequence[int] = (),
    **only: Sequence[Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function in the table, under each of the names."""

    def enter(compute: Callable[..., Any]) -> Callable[..., Any]:
        OPERATORS.update(dict.fromkeys(names, OnnxOperator(compute, settings, least, outputs, absent, only)))
        return compute

    return enter


def number(value: Any) -> Any:
    """A plain array without axes as a number of Python, which takes the dtype of the tensor beside it."""
    return value if isinstance(value, Tensor) or value is None else np.asarray(value).item()


def as_tensor(value: Any, like: Any = None) -> Tensor:
    """An operand as a tensor, also without axes."""
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value)).to(getattr(like, "device", None))


def sized(shape: Any) -> list[int]:
    """A shape of which numbers are made.

    Raises:
        UsageError: it has more than 2^26 numbers (C2A202).
    """
    sides = [int(each) for each in shape]
    if np.prod(np.array(sides, dtype=np.float64)) > LARGEST_MADE:
        reason = f"a node of the ONNX model makes {'x'.join(map(str, sides))} numbers, more than 2^26"
        raise UsageError("C2A202", reason, "Pass smaller images.")
    return sides
