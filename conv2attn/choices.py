"""The choices of callers, as type checkers and the command line read them, with checks, without torch."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, TypeVar

from conv2attn.errors import UsageError

Name = TypeVar("Name", bound=str)
EncodingName = Literal["quadratic", "enumerated"]
"""The families of `basis.FAMILIES` that sharpen: a convolution converts into them."""
StrideBy = Literal["queries", "pooling"]
"""How a strided layer skips outputs: by fewer queries, or by a pooling layer after the attention."""


def only_one(candidates: Mapping[Name, Any]) -> Name:
    """The name of the only argument that is passed, that is, neither None nor False.

    Raises:
        UsageError: none or several are passed (C2A004).
    """
    passed = [name for name, value in candidates.items() if value is not None and value is not False]
    if len(passed) != 1:
        names = f"{', '.join([*candidates][:-1])} and {[*candidates][-1]}"
        reason = f"{len(passed)} of {names} are passed" if passed else f"none of {names} is passed"
        raise UsageError("C2A004", reason, "Pass one of them.")
    return passed[0]


def check_distilling(max_loss: Any, kernel_size: Any) -> None:
    """Refuses a loss that is not positive and finite, and a kernel that is not odd (C2A001)."""
    number = isinstance(max_loss, Real) and not isinstance(max_loss, bool)
    if not number or not 0 < float(max_loss) < float("inf"):
        raise UsageError("C2A001", f"max_loss={max_loss!r} is not a positive finite number", "Pass 0.01, say.")
    if type(kernel_size) is not int or kernel_size < 1 or kernel_size % 2 == 0:
        raise UsageError("C2A001", f"kernel_size={kernel_size!r} is not an odd number from 1", "Pass 7, say.")
