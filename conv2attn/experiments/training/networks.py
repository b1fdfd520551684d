"""The network of a recipe, and the centres and precision matrices of its heads."""

from typing import cast

import torch
from torch import Tensor, nn

from conv2attn.attention import EngineName, GeneralisedEncoding, QuadraticEncoding, set_engine
from conv2attn.checkpoints import load
from conv2attn.errors import UsageError
from conv2attn.experiments.data import LabelledImages
from conv2attn.experiments.recipe import Recipe
from conv2attn.models import attention_layers
from conv2attn.models.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan


def network_for(recipe: Recipe, images: LabelledImages) -> nn.Module:
    """A fresh network in training mode, or the one that the recipe starts from.

    Raises:
        UsageError: the images do not fit the network (C2A007).
    """
    network = load(recipe.start).train() if recipe.start else fresh(recipe, images)
    if attention_layers(network):
        set_engine(network, cast(EngineName, recipe.engine))
    plan = getattr(network, "plan", None)
    found = (plan.input_size, plan.classes) if isinstance(plan, ClassifierPlan | ResNetPlan) else None
    if isinstance(plan, ResNetPlan):
        fits = plan.channels == images.shape[0] and plan.classes == len(images.classes)
    else:
        fits = found == (images.shape, len(images.classes))
    if not fits:
        asked = f"{images.name} has images {images.shape} of {len(images.classes)} classes"
        raise UsageError("C2A007", f"{recipe.start} is no classifier of such images: {asked}", "Start from another.")
    return network


def fresh(recipe: Recipe, images: LabelledImages) -> nn.Module:
    """The network of the recipe's kind and sizes, drawn with the recipe's seed.

    Raises:
        UsageError: the images are not square, or no whole patches (C2A007).
    """
    torch.manual_seed(recipe.seed)
    channels, rows, columns = images.shape
    if recipe.kind == "resnet":
        plan = ResNetPlan(width=recipe.classifier_width, classes=len(images.classes), channels=channels, stem="cifar")
        return ResNet(plan)
    if rows != columns or rows % recipe.patch:
        size = f"{rows}x{columns}"
        raise UsageError("C2A007", f"images of {size} pixels are not squares of whole patches of {recipe.patch}")
    return AttentionClassifier(
        ClassifierPlan(
            encoding="learned" if recipe.kind == "content" else recipe.kind,  # type: ignore[arg-type]
            content=recipe.kind == "content",
            side=rows,
            patch=recipe.patch,
            channels=channels,
            width=recipe.classifier_width,
            heads=recipe.heads,
            layers=recipe.layers,
            hidden=recipe.hidden,
            positions=recipe.positions,
            classes=len(images.classes),
            dropout=recipe.dropout,
        )
    )


@torch.no_grad()
def heads_of(network: nn.Module) -> dict[str, Tensor]:
    """Centres (heads, axes) and precision matrices (heads, axes, axes) of each layer whose heads have them.

    The score of a head is `-1/2 (delta - center)^T precision (delta - center)`.
    """
    found = {}
    for name, layer in attention_layers(network).items():
        encoding = layer.encoding
        if isinstance(encoding, QuadraticEncoding):
            found[f"{name}:center"] = encoding.center.detach().double().cpu().clone()
            identity = torch.eye(encoding.dimensions, dtype=torch.float64)
            found[f"{name}:precision"] = 2 * encoding.alpha.detach().double().cpu()[:, None, None] * identity
        elif isinstance(encoding, GeneralisedEncoding):
            found[f"{name}:center"] = encoding.center.detach().double().cpu().clone()
            found[f"{name}:precision"] = encoding.operators().precision().detach().cpu()
    return found
