"""A running error bound: what rounding may change in the outputs of a network at one input, operator by operator.

Every weight, constant, sum and product is rounded to the format, in any order of summation; variances are formed in two
passes. An operator without a rule, and without a decomposition into such, raises `NoRule`.
Source: Higham, Accuracy and Stability of Numerical Algorithms, Sec. 3.3.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.running_error.ball import RULES, Ball, NoRule
from conv2attn.equality.running_error.rounding_rules import LIPSCHITZ, ULPS

__all__ = ["LIPSCHITZ", "RULES", "ULPS", "Ball", "NoRule", "running"]


def running(network: Callable[..., Any], image: Tensor, roundoff: float, arguments: Sequence[Any] = ()) -> Any:
    """The result of a function on an image, as balls.

    Raises:
        NoRule: an operator has no rule, or code reads numbers.
    """
    with torch.no_grad():
        return network(Ball(image.clone(), torch.zeros_like(image), roundoff), *arguments)
