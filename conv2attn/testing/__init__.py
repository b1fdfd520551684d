"""Public means of testing: strategies of layers and images, laws, and a strict comparison of two modules.

Needs hypothesis: `pip install conv2attn[testing]`.
"""

from conv2attn.testing.equivalence import assert_equivalent, assert_same
from conv2attn.testing.laws import LAWS
from conv2attn.testing.layer_laws import LAYER_LAWS
from conv2attn.testing.numbers import budget_of, integer_tensors, wide_tensors
from conv2attn.testing.operators import grids, operators_on, paddings, shifts, sites_on, softmaxes
from conv2attn.testing.strategies import convolutions, groupings, images_for, smallest_sides
from conv2attn.testing.structures import diagonals, kroneckers, low_ranks, polynomials, sparses, sums

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
