"""The channel product that ends every engine: all heads in one matrix product."""

import math

import torch
from torch import Tensor

from conv2attn.attention.call import Weights


def project(mixed: Tensor, weights: Weights) -> Tensor:
    """`sum_h mixed_h W_val^h W_out^h + b` for mixed (batch, d_in, heads, *queries): (batch, d_out, *queries)."""
    batch, queries, groups = mixed.shape[0], mixed.shape[3:], weights.groups
    taps = weights.taps().permute(1, 2, 0)
    matrix = taps.reshape(groups, taps.shape[0] // groups, -1)
    columns = mixed.reshape(batch, groups, matrix.shape[2], math.prod(queries))
    if groups > 1:
        product = matrix @ columns
    elif weights.bias is not None:
        bias = weights.bias.reshape(1, -1, 1)
        return torch.baddbmm(bias, matrix.expand(batch, -1, -1), columns[:, 0]).unflatten(2, queries)
    else:
        product = torch.bmm(matrix.expand(batch, -1, -1), columns[:, 0])
    product = product.reshape(batch, taps.shape[0], *queries)
    return product if weights.bias is None else product + weights.bias.reshape(-1, *[1] * len(queries))
