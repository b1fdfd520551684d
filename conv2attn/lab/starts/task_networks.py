"""The networks that the experiment trains: the vision transformer of this package, and timm's with a class token."""

from collections.abc import Callable, Mapping
from typing import Literal

from torch import nn

from conv2attn.extras import optional
from conv2attn.lab.starts.starts_plan import Task
from conv2attn.networks.starts.start import draw_as_torch
from conv2attn.networks.zoo.transformer import TransformerPlan, VisionTransformer

Draw = Literal["vit", "torch"]
TIMM_SIZES = {"embed_dim": 64, "depth": 3, "num_heads": 4, "mlp_ratio": 2, "in_chans": 1, "num_classes": 10}
"""Three layers of four heads of 16 numbers: with 196 tokens a run costs about three times one with 49."""


def network_of(task: Task, side: int, drawn: Draw, seed: int) -> nn.Module:
    """A fresh network for square images, from the current generator.

    Args:
        drawn: "vit" draws linear layers with deviation 0.02, "torch" by their widths.
        seed: of the second draw of timm's network, where "torch" replaces the first.
    Raises:
        UsageError: its library cannot be imported (C2A003).
    """
    return NETWORKS[task.library](task.patch, side, drawn, seed)


def own_network(patch: int, side: int, drawn: Draw, seed: int) -> nn.Module:
    """Torch's own layers, and the mean over tokens."""
    return VisionTransformer(TransformerPlan(side=side, patch=patch, drawn=drawn))


def timm_network(patch: int, side: int, drawn: Draw, seed: int) -> nn.Module:
    """A small vision transformer of timm: learned positions, and a class token that is classified."""
    timm = optional("timm.models.vision_transformer", "the start of timm's network")
    network: nn.Module = timm.VisionTransformer(img_size=side, patch_size=patch, **TIMM_SIZES)
    if drawn == "torch":
        draw_as_torch(network, seed)
    return network


NETWORKS: Mapping[str, Callable[[int, int, Draw, int], nn.Module]] = {"torch": own_network, "timm": timm_network}
"""By the library of their layers."""
