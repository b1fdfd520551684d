"""From a trained CNN to a network that attends: some convolutions become attention, and training goes on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import argument
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.experiments.data import accuracy, normalised_images, read_images_of
from conv2attn.experiments.training import train
from conv2attn.experiments.training.recipe_networks import network_for, read_as, recipe_dtype
from conv2attn.experiments.training_recipe import TrainingRecipe
from conv2attn.models import attention_layers
from conv2attn.report import Document, Report, Table, document

LAYER_IMAGES = 100
"""Test images on which layers are measured."""


@final
@dataclass(frozen=True)
class TransformedLayer:
    """A converted layer after training.

    Args:
        alpha: mean sharpness of its heads.
        moved: mean and largest distance of centres from where they began, in pixels.
        content: the share of the attention that content moves: the mean total variation between the attention of a
            head with and without its content.
    """

    layer: str
    heads: int
    alpha: float
    moved: tuple[float, float]
    content: float


@final
@dataclass(frozen=True, repr=False)
class Transformation(Report):
    """Accuracies on the test images, and a row for each converted layer."""

    schema: ClassVar[str] = "conv2attn.transform/1"
    accuracies: tuple[tuple[str, float], ...]
    layers: tuple[TransformedLayer, ...]
    finished: bool

    @property
    def exit_code(self) -> int:
        """0 where the training is finished, otherwise 130, as of an interrupted command."""
        return 0 if self.finished else 130


@document.register
def _(transformation: Transformation, verbose: bool = False) -> Document:
    """A row for each network and for each layer."""
    summary = "trained on as attention" if transformation.finished else "interrupted; --resume RUN continues"
    shares = Table(("network", "accuracy"), tuple((name, f"{share:.4f}") for name, share in transformation.accuracies))
    columns = ("layer", "heads", "alpha", "moved", "at most", "content")
    rows = tuple(
        (each.layer, each.heads, each.alpha, *each.moved, f"{each.content:.1%}") for each in transformation.layers
    )
    return Document((summary,), (shares, Table(columns, rows)))


def transform(recipe: TrainingRecipe, folder: str | Path, **options: Any) -> Transformation:
    """Trains as a recipe with `start` and `only` says; `Run(folder).network` is the network.

    Args:
        options: see `train`.
    Raises:
        Conv2AttnError: see `train`.
    """
    images = read_images_of(recipe.data).first(recipe.images, recipe.test_images)
    dtype = recipe_dtype(recipe)
    inputs = normalised_images(images.test_pixels, *images.statistics()).to(dtype)
    before = network_for(recipe, images).eval()
    networks = {"transformed, before training": before}
    if recipe.start:
        networks = {"the CNN": read_as(recipe, recipe.start).to(dtype).eval(), **networks}
    run = train(recipe, folder, **options)
    after = read_as(recipe, run.network) if run.network.is_file() else before
    networks["trained on"] = after.eval()
    layers = transformed_layers(before, after, inputs[:LAYER_IMAGES])
    accuracies = tuple((name, accuracy(each, inputs, images.test_labels)) for name, each in networks.items())
    return Transformation(accuracies, layers, run.finished)


def transformed_layers(before: nn.Module, after: nn.Module, images: Tensor) -> tuple[TransformedLayer, ...]:
    """A row for each layer that attends."""
    first_layers, content_shares = attention_layers(before), contents(after, images)
    rows = []
    for name, layer in attention_layers(after).items():
        heads_before, heads_after = (each.encoding.operators().isotropic for each in (first_layers[name], layer))
        assert heads_before is not None
        assert heads_after is not None
        distances = (heads_after.center - heads_before.center).detach().norm(dim=1)
        moved = float(distances.mean()), float(distances.max())
        rows.append(
            TransformedLayer(name, layer.heads, float(heads_after.alpha.detach().mean()), moved, content_shares[name])
        )
    return tuple(rows)


@torch.no_grad()
def contents(network: nn.Module, images: Tensor) -> dict[str, float]:
    """For each layer the mean total variation between its attention with and without content."""
    shares: dict[str, float] = {}

    def compare(module: nn.Module, args: Any, kwargs: Any) -> None:
        assert isinstance(module, MultiHeadSelfAttention)
        shares[names[module]], image = 0.0, argument(args, kwargs, 0, "input")
        if module.key is not None:
            attention, key = module.attention(image), module.key.detach().clone()
            module.key.data.zero_()
            shares[names[module]] = float((attention - module.attention(image)).abs().sum(-1).mean() / 2)
            module.key.data.copy_(key)

    layers = attention_layers(network)
    names = {layer: name for name, layer in layers.items()}
    hooks = [layer.register_forward_pre_hook(compare, with_kwargs=True) for layer in layers.values()]
    try:
        network(images)
    finally:
        for hook in hooks:
            hook.remove()
    return shares
