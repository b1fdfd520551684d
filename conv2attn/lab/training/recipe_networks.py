"""The network of a recipe, the centres and precision matrices of its heads, and its optimiser."""

import hashlib
import os
import warnings
from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection
from conv2attn.errors import Conv2AttnWarning, UsageError
from conv2attn.files.reading_options import Reading
from conv2attn.generators import generators_kept
from conv2attn.lab.data import LabelledImages
from conv2attn.lab.training_recipe import TrainingRecipe
from conv2attn.layers.attention import EngineName, MultiHeadSelfAttention, ScoreTerms, set_engine
from conv2attn.networks import attention_layers, convert, soften
from conv2attn.networks.conversion import encodings_of
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan
from conv2attn.theory.basis import isotropic, moved_to

PARAMETER_COPIES = 4
"""Numbers in memory per trained parameter: itself, its gradient, and two averages."""


def recipe_dtype(recipe: TrainingRecipe) -> torch.dtype:
    """The dtype of the weights."""
    return torch.float64 if recipe.precision == "float64" else torch.float32


def network_for(recipe: TrainingRecipe, images: LabelledImages) -> nn.Module:
    """A fresh network in training mode, or the one that the recipe starts from, in the dtype of the recipe.

    Raises:
        UsageError: the images do not fit the network (C2A007).
    """
    network = starting_network(recipe).train() if recipe.start else fresh_network(recipe, images)
    if recipe.only or recipe.skip:
        network = hybrid_network(network, Selection(recipe.only, recipe.skip), recipe.alpha)
    if attention_layers(network):
        set_engine(network, cast(EngineName, recipe.engine))
    plan = getattr(network, "plan", None)
    if isinstance(plan, ClassifierPlan):
        fits = (plan.input_size, plan.classes) == (images.shape, len(images.classes))
    else:
        fits = classifies(network, images.shape, len(images.classes))
    if not fits:
        description = f"{images.name} has images {images.shape} of {len(images.classes)} classes"
        raise UsageError(
            "C2A007", f"{recipe.start} is not a classifier of such images: {description}", "Start from another."
        )
    return network.to(recipe_dtype(recipe))


def starting_network(recipe: TrainingRecipe) -> nn.Module:
    """The network in the file that a recipe starts from."""
    return Reading(recipe.arch, recipe.arch_args).load(str(recipe.start))


def hybrid_network(network: nn.Module, layers: Patterns, alpha: float) -> nn.Module:
    """A copy of a network with these convolutions as attention with trainable centres, sharpness and content.

    Heads have this sharpness; content begins with score 0.

    Raises:
        UsageError: a pattern fits no convolution (C2A008).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Conv2AttnWarning)  # C2A132: heads are softened next
        attention = convert(network, trainable=True, content="silent", only=layers).requires_grad_()
    return soften(attention, alpha=alpha).network


@torch.no_grad()
def classifies(network: nn.Module, shape: tuple[int, ...], classes: int) -> bool:
    """Whether a network maps an image of this shape to one logit per class."""
    mode = network.training
    try:
        logits = network.eval()(next(network.parameters()).new_zeros(2, *shape))
    except (RuntimeError, ValueError, TypeError):
        return False
    finally:
        network.train(mode)
    return isinstance(logits, Tensor) and logits.shape == (2, classes)


def fresh_network(recipe: TrainingRecipe, images: LabelledImages) -> nn.Module:
    """The network of the recipe's kind and sizes, drawn with the recipe's seed.

    Raises:
        UsageError: the images are not square or not whole patches (C2A007), or the parameters exceed the memory
            (C2A001).
    """
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in build_network(recipe, images).parameters())
    if hasattr(os, "sysconf") and PARAMETER_COPIES * 4 * size > os.sysconf("SC_PAGE_SIZE") * os.sysconf(
        "SC_PHYS_PAGES"
    ):
        raise UsageError(
            "C2A001",
            f"{size:,} parameters, their gradients and averages do not fit in the memory",
            "Lower --width, --heads or --layers.",
        )
    with generators_kept(seed=recipe.seed):
        network = build_network(recipe, images)
        if recipe.initialisation == "code":
            draw_as_authors(network)
        return network


@torch.no_grad()
def draw_as_authors(network: nn.Module) -> None:
    """Draws the positions of heads anew, as in the authors' code, which differs from the paper.

    Centres have a deviation of 2 instead of a variance of 2; inverse widths and Sigma^{-1/2} have one of 0.01 around 1,
    instead of none and 0.1; learned tables are drawn from N(0, 1), and the vectors multiplied with them as in torch's
    linear layers.
    """
    for layer in attention_layers(network).values():
        if not (layer.terms.qr or layer.terms.vr):
            continue
        for name, values in layer.encoding.named_parameters():
            match name.partition(".")[0]:
                case "center":
                    values.normal_(0, 2)
                case "alpha":
                    values.copy_((1 + 0.01 * torch.randn_like(values)).square() / 2)
                case "root":
                    values.copy_(torch.eye(values.shape[-1]) + 0.01 * torch.randn_like(values))
                case "tables":
                    values.normal_()
                case "bias":
                    values.uniform_(-(values.shape[-1] ** -0.5), values.shape[-1] ** -0.5)
        layer.prepare()


def network_digest(network: nn.Module) -> str:
    """A digest of all numbers outside the attention layers.

    Pruning heads does not change these, but training does. So a network derived from a run's network is recognised as
    belonging to this run, in any file.
    """
    inside = tuple(f"{name}." for name in attention_layers(network))
    digest = hashlib.sha256()
    for name, values in network.state_dict().items():
        if not name.startswith(inside or (" ",)):
            digest.update(f"{name} {values.dtype} {list(values.shape)}".encode())
            digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def build_network(recipe: TrainingRecipe, images: LabelledImages) -> nn.Module:
    """The network of the recipe's kind and sizes.

    Raises:
        UsageError: the images are not square, not whole patches, or lines for a ResNet (C2A007).
    """
    channels, *sides = images.shape
    if recipe.kind == "resnet" and len(sides) == 1:
        reason = f"a ResNet convolves images, and {images.name} has lines of {sides[0]}"
        raise UsageError("C2A007", reason, "Train attention, such as: train quadratic.")
    if recipe.kind == "resnet":
        plan = ResNetPlan(width=recipe.classifier_width, classes=len(images.classes), channels=channels, stem="cifar")
        return ResNet(plan)
    if len(set(sides)) > 1 or sides[0] % recipe.patch:
        size = "x".join(map(str, sides))
        raise UsageError(
            "C2A007",
            f"images of {size} pixels are not squares of whole patches of {recipe.patch}",
            "Pass square images, or a --patch that divides their sides.",
        )
    return AttentionClassifier(
        ClassifierPlan(
            encoding=recipe.kind,  # type: ignore[arg-type]
            terms=ScoreTerms.of(recipe.terms),
            absolute=recipe.absolute,  # type: ignore[arg-type]
            side=sides[0],
            axes=len(sides),
            patch=recipe.patch,
            channels=channels,
            width=recipe.classifier_width,
            heads=recipe.heads,
            layers=recipe.layers,
            hidden=recipe.hidden,
            positions=recipe.positions,
            classes=len(images.classes),
            dropout=recipe.dropout,
            attention_dropout=recipe.attention_dropout,
        )
    )


@torch.no_grad()
def head_parameters(network: nn.Module) -> dict[str, Tensor]:
    """Centres (heads, axes) and precision matrices (heads, axes, axes) of each layer whose heads do not read content.

    The score of a head is `-1/2 (delta - center)^T precision (delta - center)`.
    """
    parameters = {}
    for name, layer in attention_layers(network).items():
        if not layer.terms.vr:
            continue
        heads = moved_to(layer.positions, "cpu")  # the CPU has float64
        center, precision = heads.centers, heads.precision()
        if center is not None and precision is not None:
            parameters[f"{name}:center"] = center.detach().double().clone()
            parameters[f"{name}:precision"] = precision.detach()
    return parameters


@final
class Widths:
    """The inverse widths w of quadratic heads, with `alpha = w^2 / 2`, which are trained instead of alpha.

    So no step can make a sharpness negative. `dL/dw = w dL/dalpha`: the gradient is that of the parametrisation by w.
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
    """SGD or AdamW over all that is trained; centres and widths of heads do not decay.

    They have their own rate, as have queries and keys: `rate` of a group is the factor on the recipe's rate.
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
