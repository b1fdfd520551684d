"""Bounds: plain numbers in, plain numbers out, every upper bound rounded up, every lower bound rounded down.

No function here takes a tensor. Formats are named as torch names its dtypes, plus tf32 and bf32.
"""

from conv2attn.theory.bounds.by_key import Head, soft_mixing_bound, soft_reading
from conv2attn.theory.bounds.by_key import any_mean_bound as any_mean_bound
from conv2attn.theory.bounds.by_key import heads_of_row as heads_of_row
from conv2attn.theory.bounds.by_key import score_errors as score_errors
from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed, claims_of, down, up
from conv2attn.theory.bounds.dyadic import integer_matrix as integer_matrix
from conv2attn.theory.bounds.dyadic import over_power_of_two as over_power_of_two
from conv2attn.theory.bounds.formats import EXP_ULPS, FORMATS, Format, format_of
from conv2attn.theory.bounds.formats import accumulator_of as accumulator_of
from conv2attn.theory.bounds.formats import storage_of as storage_of
from conv2attn.theory.bounds.hard import (
    auto_alpha,
    computed_leak,
    hard_mixing_bound,
    one_hot_threshold,
    target_rounds_to_one_threshold,
)
from conv2attn.theory.bounds.leak import is_positive_definite as is_positive_definite
from conv2attn.theory.bounds.leak import leak_reached, leaked_mass, leaked_mass_diagonal, smallest_eigenvalue_at_least
from conv2attn.theory.bounds.premises import Arithmetic, worst
from conv2attn.theory.bounds.premises import ArithmeticPremises as ArithmeticPremises
from conv2attn.theory.bounds.premises import CentredPremises as CentredPremises
from conv2attn.theory.bounds.premises import HeadPremises as HeadPremises
from conv2attn.theory.bounds.premises import Missing as Missing
from conv2attn.theory.bounds.premises import claims_under as claims_under
from conv2attn.theory.bounds.row import Setting as Setting
from conv2attn.theory.bounds.row import SoftHeads as SoftHeads
from conv2attn.theory.bounds.sum_rounding import (
    RoundingBound,
    absolute_score_error,
    convolution_bound,
    difference_bound,
    exact_absolute_features,
    gamma,
    mixing_effect,
)

__all__ = [
    "EXP_ULPS",
    "FORMATS",
    "WITHOUT_THEOREM",
    "Arithmetic",
    "Claimed",
    "Format",
    "Head",
    "RoundingBound",
    "absolute_score_error",
    "auto_alpha",
    "claims_of",
    "computed_leak",
    "convolution_bound",
    "difference_bound",
    "down",
    "exact_absolute_features",
    "format_of",
    "gamma",
    "hard_mixing_bound",
    "leak_reached",
    "leaked_mass",
    "leaked_mass_diagonal",
    "mixing_effect",
    "one_hot_threshold",
    "smallest_eigenvalue_at_least",
    "soft_mixing_bound",
    "soft_reading",
    "target_rounds_to_one_threshold",
    "up",
    "worst",
]
