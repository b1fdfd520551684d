"""An ordinary vision transformer of torch's own layers."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn


@final
@dataclass(frozen=True)
class TransformerPlan:
    """The hyper-parameters of a vision transformer.

    Args:
        side, patch, channels: pixels along the side of a square image and of a patch, and channels.
        width, heads, layers, hidden, classes: sizes.
        drawn: "vit" draws linear layers with deviation 0.02 and biases 0; "torch" leaves what torch draws.
    """

    side: int = 28
    patch: int = 4
    channels: int = 1
    width: int = 64
    heads: int = 8
    layers: int = 4
    hidden: int = 128
    classes: int = 10
    drawn: Literal["vit", "torch"] = "vit"

    @property
    def input_size(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        return self.channels, self.side, self.side


class VisionTransformer(nn.Module):
    """A linear embedding of patches, positions, pre-norm layers of attention, the mean over tokens, and a classifier.

    Positions begin as the sines and cosines of MoCo v3.
    Source: Dosovitskiy et al. 2021; Chen et al. 2021 for the positions.
    """

    def __init__(self, plan: TransformerPlan):
        super().__init__()
        self.plan = plan
        self.embed = nn.Conv2d(plan.channels, plan.width, plan.patch, plan.patch)
        self.positions = nn.Parameter(sincos(plan.side // plan.patch, plan.width))
        layer = (plan.width, plan.heads, plan.hidden, 0.0, "gelu")
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(*layer, batch_first=True, norm_first=True) for _ in range(plan.layers)
        )
        self.norm = nn.LayerNorm(plan.width)
        self.classify = nn.Linear(plan.width, plan.classes)
        for module in self.modules() if plan.drawn == "vit" else ():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.MultiheadAttention):
                nn.init.trunc_normal_(module.in_proj_weight, std=0.02)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, side, side) to (batch, classes)."""
        tokens = self.embed(image).flatten(2).mT + self.positions
        for layer in self.layers:
            tokens = layer(tokens)
        return self.classify(self.norm(tokens).mean(1))


def sincos(side: int, width: int) -> Tensor:
    """Sines and cosines of rows and columns at width/4 frequencies each, (side^2, width)."""
    rates = 10000.0 ** -(torch.arange(width // 4) / (width // 4))
    places = torch.cartesian_prod(torch.arange(float(side)), torch.arange(float(side)))
    return torch.cat([wave(places[:, axis, None] * rates) for axis in (0, 1) for wave in (torch.sin, torch.cos)], 1)
