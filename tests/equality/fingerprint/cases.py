"""Pairs of networks written in two ways that are one function, and pairs that are not."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
IMAGE = torch.randn(2, 3, 8, 8)
CONV, BACK, SHUFFLED = nn.Conv2d(3, 4, 3, padding=1), nn.ConvTranspose2d(3, 4, 2, 2), nn.Conv2d(3, 16, 1)
with torch.no_grad():
    SHUFFLED.weight.copy_(BACK.weight.permute(1, 2, 3, 0).reshape(16, 3, 1, 1))
    SHUFFLED.bias.copy_(BACK.bias.repeat_interleave(4))


def unfolded(x):
    columns = F.unfold(x, 3, padding=1)
    return (CONV.weight.flatten(1) @ columns + CONV.bias[:, None]).view(len(x), 4, 8, 8)


def buffer(value):
    def fill(x):
        result = torch.full((2, 3, 8, 8), value)
        result[:, 0] = x[:, 0]
        return result

    return fill


EQUAL = {
    "unfold and a product": (CONV, unfolded),
    "a transposed convolution and a pixel shuffle": (BACK, lambda x: F.pixel_shuffle(SHUFFLED(x), 2)),
    "in place": (lambda x: F.relu(CONV(x)), lambda x: CONV(x).relu_()),
    "written through a view": (lambda x: x.clone().transpose(0, 1).add_(1).transpose(0, 1), lambda x: x + 1),
    "softmax by hand": (lambda x: x.softmax(1), lambda x: x.exp() / x.exp().sum(1, keepdim=True)),
    "two orders of a sum": (lambda x: (x + 1) + x * x, lambda x: x.square() + (1 + x)),
    "a binomial": (lambda x: (x + 1).square(), lambda x: x * x + 2 * x + 1),
    "cut to bytes": (lambda x: x.int().to(torch.int8), lambda x: (x * 1).int().to(torch.int8)),
    "equal sizes": (lambda x: x * torch.is_same_size(x, x), lambda x: x * 1),
    "half a mean": (lambda x: x.mean((2, 3)) / 2, lambda x: x.sum((2, 3)) / 128),
    "windows that do not overlap": (
        lambda x: F.avg_pool2d(x, 2),
        lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1)),
    ),
}
DIFFERENT = {
    "one unit in the last place": (CONV, lambda x: unfolded(x) + 1e-7),
    "a weight changed": (CONV, lambda x: F.conv2d(x, CONV.weight + 1e-6, CONV.bias, padding=1)),
    "the input is changed": (lambda x: x.mul_(2), lambda x: x * 2),
    "constants beside": (buffer(1.0), buffer(2.0)),
    "rounded to half": (lambda x: x.half().float(), lambda x: x),
    "divided by other numbers": (lambda x: x / torch.arange(1.0, 9.0), lambda x: x * 1),
    "cut to integers": (lambda x: x.int().float(), lambda x: x),
    "a mask of -inf": (
        lambda x: x.masked_fill(torch.eye(8).bool(), float("-inf")).softmax(-1),
        lambda x: x.masked_fill(torch.eye(8).bool(), -1e9).softmax(-1),
    ),
    "an axis kept": (lambda x: x.sum(1), lambda x: x.sum(1, keepdim=True)),
    "another constant": (lambda x: x * torch.ones(8), lambda x: x * torch.full((8,), 1 + 2.0**-20)),
    "another correction": (lambda x: x.var(1), lambda x: x.var(1, correction=0)),
    "a step that no sample shows": (lambda x: torch.relu(x - 50) + x, lambda x: x),
    "another way to approximate": (F.gelu, lambda x: F.gelu(x, approximate="tanh")),
    "other windows": (lambda x: F.max_pool2d(x, 3, 1, 1), lambda x: F.max_pool2d(x, 3, 1, 1, 1).relu()),
    "heads in another order": (
        lambda x: torch.cat([x[:, :1].tanh(), x[:, 1:].sigmoid()], 1),
        lambda x: torch.cat([x[:, :1].sigmoid(), x[:, 1:].tanh()], 1),
    ),
}


def added_by_scatter(x):
    """The sum of the first number and itself; without the refusal its index would be that of another number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the argument is deprecated
        return x.flatten()[:1].scatter(0, torch.tensor([0]), x.flatten(), reduce="add")


UNDECIDED = {
    "bits read as integers": lambda x: x.view(torch.int32).float(),
    "a pole": lambda x: x / x,
    "random numbers": lambda x: F.dropout(x),
    "complex numbers": lambda x: torch.fft.fft(x).real,
    "a number added where it is put": lambda x: x.index_put((torch.tensor([1]),), x[:1], accumulate=True),
    "a number added where it is scattered": added_by_scatter,
}
