"""The optimiser of a recipe; sharpness is trained by its width, as the paper's authors did."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from conv2attn.lab.training_recipe import TrainingRecipe
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.conversion import encodings_of
from conv2attn.theory.basis import isotropic


@final
class Widths:
    """The inverse widths w of quadratic heads, with `alpha = w^2 / 2`, which are trained in place of alpha.

    So no step makes a sharpness negative. `dL/dw = w dL/dalpha`: the gradient is that of the parametrisation by w.
    Source: the code of Cordonnier et al. 2020.
    """

    def __init__(self, network: nn.Module):
        heads = (isotropic(encoding.operators()) for encoding in encodings_of(network))
        self.alphas = [each.alpha for each in heads if each is not None and each.alpha.requires_grad]
        self.widths = [(2 * alpha.detach()).sqrt().requires_grad_() for alpha in self.alphas]

    def take_gradients(self) -> None:
        """Moves the gradients of the alphas to the widths."""
        for alpha, width in zip(self.alphas, self.widths, strict=True):
            width.grad = None if alpha.grad is None else alpha.grad * width.detach()
            alpha.grad = None

    @torch.no_grad()
    def give_values(self) -> None:
        """Sets the alphas from the widths."""
        for alpha, width in zip(self.alphas, self.widths, strict=True):
            alpha.copy_(width.square() / 2)

    @torch.no_grad()
    def load(self, widths: Sequence[Tensor]) -> None:
        """Restores stored widths."""
        for width, stored in zip(self.widths, widths, strict=True):
            width.copy_(stored)
        self.give_values()


def optimiser_for(network: nn.Module, widths: Widths, recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """SGD or AdamW over all that is trained; centres and widths of heads do not decay, and have a rate of their own, as
    queries and keys do: `rate` of a group is the factor of the recipe's rate.
    """
    positions = {p for each in encodings_of(network) if each.operators().centers is not None for p in each.parameters()}
    layers = [m for m in network.modules() if isinstance(m, MultiHeadSelfAttention)]
    content = {p for layer in layers for p in (layer.query, layer.key) if p is not None}
    trained = [p for p in network.parameters() if p.requires_grad and not any(p is alpha for alpha in widths.alphas)]
    parts = (
        ([p for p in trained if p not in positions | content], recipe.weight_decay, 1.0),
        ([p for p in trained if p in content - positions], recipe.weight_decay, recipe.content_rate),
        ([*(p for p in trained if p in positions), *widths.widths], 0.0, recipe.position_rate),
    )
    groups = [{"params": params, "weight_decay": decay, "rate": rate} for params, decay, rate in parts if params]
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(recipe.momentum, 0.999))
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum)
