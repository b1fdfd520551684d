"""A bound on the difference of two orders of summation of one convolution, which shares no code with the product."""

from copy import deepcopy
from math import prod

import torch
from torch import Tensor, nn


def gamma(n: int, dtype: torch.dtype) -> float:
    """`n u / (1 - n u)`, u the unit roundoff: n roundings change a number by at most this factor (Higham 2002, 3.1)."""
    nu = n * torch.finfo(dtype).eps / 2
    return nu / (1 - nu)


def terms(layer: nn.Module) -> int:
    """Summands of one output at most: every tap of every input channel of its group, and the bias."""
    return layer.in_channels // layer.groups * prod(layer.kernel_size) + 1


@torch.no_grad()
def exact(layer: nn.Module, image: Tensor, absolute: bool = False) -> Tensor:
    """The output of `layer` in float64, or, if `absolute`, the sum of the absolute values of its terms."""
    oracle = deepcopy(layer).double()
    if absolute:
        for parameter in oracle.parameters():
            parameter.abs_()
    return oracle(image.double().abs() if absolute else image.double())


def rounding_bound(layer: nn.Module, image: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest `|y - exact(layer, image)|`, y summed in `dtype` in any order, each product rounded at most once.

    With n terms each is rounded at most n times (one product, n - 1 sums), so y is within `gamma_n` of the true sum,
    relative to the sum of absolute values, and so is the oracle with float64's u; products and sums that underflow lose
    at most the smallest normal number each. Two more roundings cover this bound's own evaluation and the difference.
    """
    n = terms(layer)
    relative = gamma(n, dtype) + gamma(n, torch.float64)
    underflow = 2 * n * torch.finfo(dtype).tiny
    return (relative * exact(layer, image, absolute=True) + underflow) / (1 - gamma(n + 2, torch.float64))


def within(layer: nn.Module, image: Tensor, answer: Tensor) -> bool:
    """Whether `answer` could be this layer's output up to rounding in its own dtype; NaN and other shapes are not."""
    truth = exact(layer, image)
    if answer.shape != truth.shape:
        return False
    return bool(((answer.double() - truth).abs() <= rounding_bound(layer, image, answer.dtype)).all())
