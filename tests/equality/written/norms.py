"""Norms as people write them; a norm of stored statistics, written by hand or folded, has other numbers."""

import torch
import torch.nn.functional as F
from equality.written.pair import Pair
from torch import nn

TOKENS, IMAGES = (2, 5, 8), (2, 4, 6, 6)


def with_factors(norm):
    """A norm whose factors and statistics are no ones and zeros."""
    for name, numbers in norm.state_dict().items():
        if numbers.is_floating_point():
            nn.init.uniform_(numbers, 0.5 if name.endswith(("weight", "var")) else -0.5, 1.5)
    return {"norm": norm}


def layer_norm(m, x):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + m.norm.eps) * m.norm.weight + m.norm.bias


def over_channels(m, x):
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    x = (x - mean) * torch.rsqrt(variance + m.norm.eps)
    return m.norm.weight[:, None, None] * x + m.norm.bias[:, None, None]


def over_all(m, x):
    return F.layer_norm(x, x.shape[1:]) * m.norm.weight.view(-1, 1, 1) + m.norm.bias.view(-1, 1, 1)


def group_norm(m, x):
    groups = x.reshape(len(x), 2, -1)
    variance, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
    x = ((groups - mean) / (variance + m.norm.eps).sqrt()).view_as(x)
    return x * m.norm.weight.view(1, -1, 1, 1) + m.norm.bias.view(1, -1, 1, 1)


def mean_square_norm(m, x):
    return m.norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def channels_last(m, x):
    return m.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def stored_norm(m, x):
    mean, variance = (each[None, :, None, None] for each in (m.norm.running_mean, m.norm.running_var))
    x = (x - mean) / torch.sqrt(variance + m.norm.eps)
    return x * m.norm.weight[None, :, None, None] + m.norm.bias[None, :, None, None]


def folded(m, x):
    factor = m.norm.weight / (m.norm.running_var + m.norm.eps).sqrt()
    bias = (m.layer.bias - m.norm.running_mean) * factor + m.norm.bias
    return F.conv2d(x, m.layer.weight * factor.view(-1, 1, 1, 1), bias)


NORMS = {
    "layer norm": Pair(TOKENS, lambda m, x: m.norm(x), layer_norm, lambda: with_factors(nn.LayerNorm(8))),
    "layer norm over channels": Pair(IMAGES, channels_last, over_channels, lambda: with_factors(nn.LayerNorm(4))),
    "one group, all of an image": Pair(
        IMAGES, lambda m, x: m.norm(x), over_all, lambda: with_factors(nn.GroupNorm(1, 4))
    ),
    "group norm": Pair(IMAGES, lambda m, x: m.norm(x), group_norm, lambda: with_factors(nn.GroupNorm(2, 4))),
    "RMS norm": Pair(TOKENS, lambda m, x: m.norm(x), mean_square_norm, lambda: with_factors(nn.RMSNorm(8, eps=1e-6))),
    "instance norm, a group for each channel": Pair(
        IMAGES, lambda m, x: F.instance_norm(x), lambda m, x: F.group_norm(x, 4)
    ),
    "log softmax": Pair(TOKENS, lambda m, x: x.log_softmax(-1), lambda m, x: x - torch.logsumexp(x, -1, keepdim=True)),
    "unit length": Pair(
        TOKENS, lambda m, x: F.normalize(x, dim=-1), lambda m, x: x / (x * x).sum(-1, True).sqrt().clamp(min=1e-12)
    ),
    "batch norm by hand": Pair(IMAGES, lambda m, x: m.norm(x), stored_norm, lambda: with_factors(nn.BatchNorm2d(4))),
    "batch norm folded": Pair(
        IMAGES,
        lambda m, x: m.norm(m.layer(x)),
        folded,
        lambda: {"layer": nn.Conv2d(4, 4, 1), **with_factors(nn.BatchNorm2d(4))},
    ),
}
