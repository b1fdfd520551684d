"""Convolutions that compute their weight, by each parametrisation of torch."""

import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, tensor):
        return 2 * tensor


def doubled(conv):
    nn.utils.parametrize.register_parametrization(conv, "weight", Doubled())
    return nn.utils.parametrize.register_parametrization(conv, "bias", Doubled())


def pruned(conv):
    conv.register_buffer("weighted", torch.ones(1))
    prune.l1_unstructured(conv, "weight", 0.5)
    return prune.l1_unstructured(conv, "bias", 0.5)


def quietly(function: Callable[[nn.Module], nn.Module]) -> Callable[[nn.Module], nn.Module]:
    """`function` without its warning that it is deprecated."""

    def quiet(conv):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(conv)

    return quiet


PARAMETRISATIONS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "weight and bias": doubled,
    "old weight_norm": quietly(nn.utils.weight_norm),
    "old spectral_norm": quietly(nn.utils.spectral_norm),
    "pruned": pruned,
    "pruned twice": lambda conv: prune.random_unstructured(prune.ln_structured(conv, "weight", 1, 2, 0), "weight", 1),
}


def parametrised(kind: str) -> nn.Module:
    """A convolution that computes its weight, at random."""
    torch.manual_seed(0)
    return nn.Sequential(PARAMETRISATIONS[kind](nn.Conv2d(3, 4, 3)), nn.ReLU())


def sharing_an_original() -> nn.Module:
    first, second = (parametrizations.weight_norm(nn.Conv2d(3, 3, 3)) for _ in range(2))
    second.parametrizations.weight.original1 = first.parametrizations.weight.original1
    return nn.Sequential(first, second)
