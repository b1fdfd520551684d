"""Public means of testing: strategies of layers and images, laws, and a strict comparison of two modules.

Needs hypothesis: `pip install conv2attn[testing]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv2attn.testing.equivalence import assert_equivalent, assert_same
    from conv2attn.testing.laws import LAWS
    from conv2attn.testing.layer_laws import LAYER_LAWS
    from conv2attn.testing.operators import grids, operators_on, paddings, shifts, sites_on, softmaxes
    from conv2attn.testing.strategies import convolutions, groupings, images_for, smallest_sides
    from conv2attn.testing.structures import diagonals, kroneckers, low_ranks, polynomials, sparses, sums
    from conv2attn.testing.tensor_strategies import budget_of, integer_tensors, wide_tensors

TESTING_HOMES = {
    "LAWS": "laws",
    "LAYER_LAWS": "layer_laws",
    "assert_equivalent": "equivalence",
    "assert_same": "equivalence",
    "budget_of": "tensor_strategies",
    "convolutions": "strategies",
    "diagonals": "structures",
    "grids": "operators",
    "groupings": "strategies",
    "images_for": "strategies",
    "integer_tensors": "tensor_strategies",
    "kroneckers": "structures",
    "low_ranks": "structures",
    "operators_on": "operators",
    "paddings": "operators",
    "polynomials": "structures",
    "shifts": "operators",
    "sites_on": "operators",
    "smallest_sides": "strategies",
    "softmaxes": "operators",
    "sparses": "structures",
    "sums": "structures",
    "wide_tensors": "tensor_strategies",
}
__all__ = [
    "LAWS",
    "LAYER_LAWS",
    "assert_equivalent",
    "assert_same",
    "budget_of",
    "convolutions",
    "diagonals",
    "grids",
    "groupings",
    "images_for",
    "integer_tensors",
    "kroneckers",
    "low_ranks",
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
    """Names, resolved on first use: `assert_equivalent` needs no hypothesis."""
    if name not in TESTING_HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{TESTING_HOMES[name]}"), name)
