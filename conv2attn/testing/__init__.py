"""Public means of testing: strategies of layers and images, laws, and a strict comparison of two modules.

Needs hypothesis: `pip install conv2attn[testing]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv2attn.testing.equivalence import assert_equivalent, assert_same_output
    from conv2attn.testing.laws import LAWS, LAYER_LAWS
    from conv2attn.testing.operators import grids, operators_on, paddings, shifts, sites_on, softmaxes
    from conv2attn.testing.same_networks import assert_same
    from conv2attn.testing.strategies import convolutions, groupings, images_for, smallest_sides
    from conv2attn.testing.structures import polynomials, sparses, sums
    from conv2attn.testing.tensor_strategies import budget_of, integer_tensors, wide_tensors

PARTS_OF_TESTING = (
    "equivalence",
    "same_networks",
    "laws",
    "tensor_strategies",
    "operators",
    "strategies",
    "structures",
)
__all__ = [
    "LAWS",
    "LAYER_LAWS",
    "assert_equivalent",
    "assert_same",
    "assert_same_output",
    "budget_of",
    "convolutions",
    "grids",
    "groupings",
    "images_for",
    "integer_tensors",
    "operators_on",
    "paddings",
    "polynomials",
    "shifts",
    "sites_on",
    "smallest_sides",
    "softmaxes",
    "sparses",
    "sums",
    "wide_tensors",
]


def __getattr__(name: str) -> Any:
    """Names, resolved on first use: those that need no hypothesis stand in the first parts."""
    for part in PARTS_OF_TESTING if name in __all__ else ():
        module = import_module(f"{__name__}.{part}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
