"""Public helpers for tests: comparisons of two modules, and of two networks with a certificate.

Inputs are tensors, or strategies of hypothesis: `pip install conv2attn[testing]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv2attn.testing.equivalence import assert_equivalent, assert_same, assert_same_output

__all__ = ["assert_equivalent", "assert_same", "assert_same_output"]


def __getattr__(name: str) -> Any:
    """Names, resolved on first use: pytest imports the plugin before its tests import torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.equivalence"), name)
