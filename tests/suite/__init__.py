"""Laws of operators and of attention layers, and hypothesis strategies of what they are asked of."""

from suite.convolution_strategies import convolutions, groupings, images_for, smallest_sides
from suite.operator_laws import LAWS, LAYER_LAWS
from suite.operator_strategies import grids, operators_on, paddings, shifts, sites_on, softmaxes
from suite.sum_strategies import polynomials, sparses, sums
from suite.tensor_strategies import budget_of, integer_tensors, wide_tensors

__all__ = [
    "LAWS",
    "LAYER_LAWS",
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
