"""Small models of timm, torchvision and transformers that know positions, at random; sides differ where they may."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import timm
import torch
import transformers as hf
from encoders import HEADS, SIZES, model_of
from timm.models.beit import Beit
from timm.models.convit import ConVit
from timm.models.levit import Levit
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torchvision.models import swin_transformer as swin_of_torchvision
from torchvision.models import vision_transformer as vit_of_torchvision

WIDTH = 4 * HEADS
LEARNED = re.compile(
    "relative_position_bias_table|attention_biases|cpb_mlp|continuous_position_bias_mlp|pos_proj|pos_embed|position_embed"
)
CONTENT = re.compile(
    r"\b(qkv|qk|q|kv|q_proj|k_proj|query|key|queries|keys_values|queries_keys_values|q_bias|v_bias"
    r"|in_proj_weight|in_proj_bias|q_lin|k_lin)(\.|$)"
)
FIRST_TOKENS = re.compile(r"patch_embed|conv_proj|word_embed|conv1\.")
"""What makes the first tokens of an input."""


def plain(**more: Any) -> dict[str, Any]:
    """A configuration of transformers whose attention is computed in the open."""
    return {"attn_implementation": "eager", **SIZES, **more}


def images(*sides: int) -> torch.Tensor:
    """One random picture."""
    return torch.randn(1, 3, *sides, generator=torch.Generator().manual_seed(2)).double()


@dataclass(frozen=True)
class Known:
    """A model, what it is given, the leading tokens that are not pixels, and the grids of its layers that are read."""

    build: Callable[[], nn.Module]
    inputs: Any
    grids: tuple[tuple[int, ...], ...]
    extra: int = 0


def swin(kind: type[nn.Module]) -> nn.Module:
    """Two layers, the second with shifted windows."""
    return kind(img_size=(12, 16), patch_size=2, window_size=(3, 4), depths=(2,), num_heads=(3,), embed_dim=12)


def swin_in_torchvision(block: type[nn.Module]) -> nn.Module:
    """Two layers of torchvision's Swin, the second with shifted windows."""
    sizes = {"patch_size": [2, 2], "embed_dim": 12, "depths": [2], "num_heads": [3], "window_size": [3, 4]}
    return swin_of_torchvision.SwinTransformer(**sizes, block=block, num_classes=2)


def beit(**relative: bool) -> nn.Module:
    """A class token and a 3x4 grid."""
    return Beit(img_size=(12, 16), patch_size=4, embed_dim=WIDTH, depth=2, num_heads=3, **relative)


def levit() -> nn.Module:
    """A grid 3x4, and a layer that takes it to 2x2."""
    return Levit(img_size=(48, 64), embed_dim=(16, 16), key_dim=8, depth=(1, 1), num_heads=(2, 2), num_classes=2)


def levit_in_transformers() -> nn.Module:
    """8x8, 4x4 and 2x2, and the layers between them."""
    sizes = {"hidden_sizes": [16, 16, 16], "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}
    return model_of("Levit", image_size=128, **sizes)


def masked_autoencoder() -> nn.Module:
    """A class token and a 4x4 grid with sinusoidal positions, as the weights that people load have them."""
    network = model_of("ViTMAE", **plain(image_size=8, patch_size=2, mask_ratio=0.0))
    angles = torch.arange(17.0)[:, None] / 100 ** torch.linspace(0, 1, WIDTH // 2)
    with torch.no_grad():
        network.embeddings.position_embeddings.copy_(torch.cat([angles.sin(), angles.cos()], -1)[None])
    return network


@torch.no_grad()
def sam(implementation: str) -> nn.Module:
    """A layer in windows 3x3 and one on all of 4x4, whose relative positions meet nothing but the bias of queries."""
    plan = {"image_size": 8, "patch_size": 2, "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 8}
    config = hf.SamVisionConfig(**SIZES, output_channels=4, attn_implementation=implementation, **plan)
    torch.manual_seed(0)
    network = hf.SamVisionModel(config).eval()
    for name, parameter in network.named_parameters():
        if "rel_pos" in name or name.endswith("qkv.bias"):
            parameter.normal_()
        if name.endswith("qkv.weight"):
            parameter.zero_()
    for layer in network.modules():
        if hasattr(layer, "qkv"):
            layer.qkv.bias.view(3, -1)[1].zero_()
    return network.double()


SWIN = {"image_size": 12, "patch_size": 2, "window_size": 3, "embed_dim": 12, "depths": [2], "num_heads": [3]}
SWIN["attn_implementation"] = "eager"
BEIT = plain(image_size=10, patch_size=2, use_relative_position_bias=True)
IN_WINDOWS, ON_PATCHES = ((3, 4), (3, 4)), ((3, 4), (3, 4))
RELATIVE = {
    "convit": Known(
        lambda: ConVit(img_size=20, patch_size=4, embed_dim=4, depth=3, num_heads=9, local_up_to_layer=2),
        images(20, 20),
        ((5, 5), (5, 5)),
    ),
    "swin, timm": Known(lambda: swin(SwinTransformer), images(12, 16), IN_WINDOWS),
    "swin v2, timm": Known(lambda: swin(SwinTransformerV2), images(12, 16), IN_WINDOWS),
    "swin, torchvision": Known(
        lambda: swin_in_torchvision(swin_of_torchvision.SwinTransformerBlock), images(12, 16), IN_WINDOWS
    ),
    "swin v2, torchvision": Known(
        lambda: swin_in_torchvision(swin_of_torchvision.SwinTransformerBlockV2), images(12, 16), IN_WINDOWS
    ),
    "swin, transformers": Known(lambda: model_of("Swin", **SWIN), images(12, 12), ((3, 3), (3, 3))),
    "swin v2, transformers": Known(lambda: model_of("Swinv2", **SWIN), images(12, 12), ((3, 3), (3, 3))),
    "beit, timm": Known(lambda: beit(use_rel_pos_bias=True), images(12, 16), ON_PATCHES, 1),
    "beit shared, timm": Known(lambda: beit(use_shared_rel_pos_bias=True), images(12, 16), ON_PATCHES, 1),
    "beit, transformers": Known(lambda: model_of("Beit", **BEIT), images(10, 10), ((5, 5), (5, 5)), 1),
    "beit shared, transformers": Known(
        lambda: model_of("Beit", **BEIT, use_shared_relative_position_bias=True),
        images(10, 10),
        ((5, 5), (5, 5)),
        1,
    ),
    "levit, timm": Known(levit, images(48, 64), ((3, 4), (3, 4), (2, 2))),
    "levit, transformers": Known(levit_in_transformers, images(128, 128), ((8, 8), (8, 8), (4, 4), (4, 4), (2, 2))),
}
SENTENCE = {"input_ids": torch.arange(7)[None]}
DISTILLED = {"dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 8, "sinusoidal_pos_embds": True}
DISTILLED["attn_implementation"] = "eager"
SOUND = {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 1, "num_mel_bins": 4, "max_source_positions": 7}
SOUND |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "vocab_size": 9}
SOUND |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "attn_implementation": "eager"}
SOUND |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
TEXT = {"vocab_size": 20, "max_position_embeddings": 7}
ABSOLUTE = {
    "vit, timm": Known(
        lambda: VisionTransformer(img_size=(12, 16), patch_size=4, embed_dim=WIDTH, depth=2, num_heads=3),
        images(12, 16),
        ((3, 4),),
        1,
    ),
    "vit without a class token, timm": Known(
        lambda: VisionTransformer(
            img_size=(12, 16),
            patch_size=4,
            embed_dim=WIDTH,
            depth=2,
            num_heads=3,
            no_embed_class=True,
            reg_tokens=2,
            qkv_bias=False,
            pre_norm=True,
        ),
        images(12, 16),
        ((3, 4),),
        3,
    ),
    "vit, torchvision": Known(
        lambda: vit_of_torchvision.VisionTransformer(
            image_size=12, patch_size=4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=8
        ),
        images(12, 12),
        ((3, 3),),
        1,
    ),
    "vit, transformers": Known(
        lambda: model_of("ViT", **plain(image_size=(6, 8), patch_size=2)), images(6, 8), ((3, 4),), 1
    ),
    "deit, transformers": Known(
        lambda: model_of("DeiT", **plain(image_size=(6, 8), patch_size=2)), images(6, 8), ((3, 4),), 2
    ),
    "masked autoencoder, sinusoidal": Known(
        masked_autoencoder,
        {"pixel_values": images(8, 8), "noise": torch.arange(16.0)[None]},
        ((4, 4),),
        1,
    ),
    "dinov2": Known(
        lambda: model_of("Dinov2", **plain(image_size=8, patch_size=2, mlp_ratio=1)),
        images(8, 8),
        ((4, 4),),
        1,
    ),
    "clip": Known(lambda: model_of("CLIPVision", **plain(image_size=8, patch_size=2)), images(8, 8), ((4, 4),), 1),
    "siglip": Known(
        lambda: model_of("SiglipVision", **plain(image_size=8, patch_size=2)),
        images(8, 8),
        ((4, 4),),
    ),
    "whisper, sinusoidal": Known(
        lambda: model_of("Whisper", **SOUND).encoder,
        torch.randn(1, 4, 14, generator=torch.Generator().manual_seed(2)).double(),
        ((7,),),
    ),
    "bert": Known(lambda: model_of("Bert", **plain(**TEXT)), SENTENCE, ((7,),)),
    "distilbert, sinusoidal": Known(lambda: model_of("DistilBert", **TEXT, **DISTILLED), SENTENCE, ((7,),)),
}


@torch.no_grad()
def known(name: str, held_at_zero: bool = True) -> tuple[nn.Module, Known]:
    """A model by name, in float64 with float32 parameters, the same every time.

    Content is held at zero where wanted: of relative positions the queries and keys, of absolute ones the first tokens.
    ConViT's gates are opened to positions, of which nothing else is left then.
    """
    torch.manual_seed(0)
    case = (RELATIVE | ABSOLUTE)[name]
    timm.layers.set_fused_attn(enable=False)
    network = case.build().eval()
    timm.layers.set_fused_attn(enable=True)
    for key, parameter in network.named_parameters():
        if LEARNED.search(key) and "sinusoidal" not in name:
            parameter.normal_()
        if name in ABSOLUTE and CONTENT.search(key):
            parameter.normal_(std=0.2)
        if held_at_zero and (CONTENT if name in RELATIVE else FIRST_TOKENS).search(key):
            parameter.zero_()
        if held_at_zero and key.endswith("gating_param"):
            parameter.fill_(1000.0)
    return network.double(), case
