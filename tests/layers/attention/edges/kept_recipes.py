"""Recipes of a layer: those of the sizes that it met last, and no more."""

import torch
from torch import nn

from conv2attn import convert


def test_a_layer_keeps_the_recipes_of_the_sizes_that_it_met_last():
    layer = convert(nn.Conv2d(1, 1, 3, padding=1), alpha=5.0).requires_grad_(False)
    layer(torch.zeros(1, 1, 9, 5))
    (decided,) = layer._facts.values()
    (first,) = decided.recipes.values()
    for side in range(10, 10 + 32):
        layer(torch.zeros(1, 1, side, 5))
        layer(torch.zeros(1, 1, 9, 5))
    recipes = [*decided.recipes.values()]
    assert len(recipes) == 32
    assert recipes[-1] is first
