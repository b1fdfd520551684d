"""Starts of transformers as timm, torchvision and transformers build them: no part is named."""

import pytest
import timm
import torch
import transformers
from encoders import model_of
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torchvision.models import swin_transformer, vision_transformer

import conv2attn
from conv2attn.errors import UnsupportedError, UsageError
from studies.starts import Task, begin, displacements, network_of

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
IMAGE = {"image_size": 28, "patch_size": 4, "num_channels": 1}
TIMM = {"img_size": 28, "patch_size": 4, "in_chans": 1, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 3}


VITS = {
    "timm": lambda: VisionTransformer(**TIMM),
    "timm, mean of tokens": lambda: VisionTransformer(**TIMM, class_token=False, global_pool="avg"),
    "timm, registers and layer scale": lambda: VisionTransformer(
        **{**TIMM, "img_size": (24, 32)}, reg_tokens=3, init_values=0.1, qkv_bias=False, mlp_ratio=1.0
    ),
    "timm, distilled": lambda: timm.create_model("deit_tiny_distilled_patch16_224", depth=1),
    "torchvision": lambda: vision_transformer.VisionTransformer(32, 8, 2, 4, 32, 48, num_classes=3),
    "ViT": lambda: model_of("ViT", **SMALL, **IMAGE),
    "DeiT": lambda: model_of("DeiT", **SMALL, **IMAGE),
    "DINOv2": lambda: model_of("Dinov2", **SMALL, **IMAGE),
    "DINOv2, registers": lambda: model_of("Dinov2WithRegisters", **SMALL, **IMAGE),
    "CLIP": lambda: model_of("CLIPVision", **SMALL, **IMAGE),
    "SigLIP": lambda: model_of("SiglipVision", **SMALL, **IMAGE),
}


@pytest.mark.parametrize("kind", VITS)
def test_heads_of_a_stock_transformer_begin_as_shifts(kind):
    torch.manual_seed(0)
    network = VITS[kind]()
    start = conv2attn.start_at_convolution(network, alpha=2.0)
    assert len(start.heads) in (3, 8)
    for row in start.heads:
        assert row.quadratic - row.bound <= row.mass + 1e-9
        assert row.mass > 0.4  # of 49 tokens; each would have 0.02


def test_biases_in_windows_are_exact():
    sizes = {"image_size": 56, "embed_dim": 24, "depths": [2, 2], "num_heads": [3, 6]}
    networks = [
        SwinTransformer(img_size=56, embed_dim=24, depths=(2, 2), num_heads=(3, 6)),
        swin_transformer.SwinTransformer([4, 4], 24, [2, 2], [3, 6], [7, 7]),
        model_of("Swin", **sizes),
    ]
    for network in networks:
        start = conv2attn.start_at_convolution(network, alpha=1.5, example_input=torch.randn(1, 3, 56, 56))
        assert len(start.heads) == 18
        assert all(row.mass == pytest.approx(row.quadratic, abs=1e-5) for row in start.heads)


def of_beit(**more):
    return model_of("Beit", **SMALL, **IMAGE, **more)


BEITS = {
    "timm": lambda: Beit(**{**TIMM, "img_size": (28, 36)}, use_abs_pos_emb=False, use_rel_pos_bias=True),
    "transformers": lambda: of_beit(use_relative_position_bias=True),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", BEITS)
def test_biases_on_the_whole_grid_are_exact_beside_a_class_token(kind):
    torch.manual_seed(0)
    network = BEITS[kind]()
    for name, parameter in network.named_parameters():
        if name.endswith(("q_bias", "q_proj.bias")):
            parameter.normal_()  # content that queries would bring by their biases
    for options in ({"content": "drawn"}, {"values": "blind"}):
        with pytest.raises(UsageError, match="C2A004 values='blind' and content='drawn' need a table of positions"):
            conv2attn.start_at_convolution(network, **options)
    start = conv2attn.start_at_convolution(network, alpha=1.5)
    sides = (7, 9) if kind == "timm" else (7, 7)
    images = torch.randn(3, 1, *(4 * side for side in sides))
    maps = conv2attn.capture(network, images)
    assert len(start.heads) == 8
    for row in start.heads:
        places = torch.cartesian_prod(*(torch.arange(float(side)) for side in sides))
        scores = -1.5 * (places - places[:, None] - torch.tensor(row.offset)).square().sum(-1)
        with_class = torch.cat([torch.full_like(scores[:, :1], -10.0), scores], 1)  # below 1e-4 where a target is there
        attention = maps[row.layer][:, row.head, 1:]
        torch.testing.assert_close(attention, with_class.softmax(-1).expand(3, -1, -1), atol=1e-5, rtol=0)


def test_masked_autoencoders_start_where_their_tokens_stay_in_place():
    sizes = {
        **SMALL,
        **IMAGE,
        "decoder_hidden_size": 16,
        "decoder_num_hidden_layers": 1,
        "decoder_intermediate_size": 16,
    }
    for ratio, reason in ((0.75, "of 13 tokens: those named so are"), (0.0, "it draws random numbers")):
        config = transformers.ViTMAEConfig(**sizes, mask_ratio=ratio, decoder_num_attention_heads=2)
        network = transformers.ViTMAEForPreTraining(config)
        with pytest.raises(UnsupportedError, match=reason):
            conv2attn.start_at_convolution(network)
    inputs = {"pixel_values": torch.randn(2, 1, 28, 28), "noise": torch.arange(49.0).expand(2, -1)}
    start = conv2attn.start_at_convolution(network, example_input=inputs)
    assert len(start.heads) == 8
    assert "decoder.decoder_layers.0.attention is unchanged: its queries have 50x16 numbers" in start.notes


def test_words_stand_on_a_line():
    sizes = {"max_position_embeddings": 49, "vocab_size": 100}
    network = model_of("Bert", **SMALL, **sizes)
    start = conv2attn.start_at_convolution(network, example_input=torch.randint(0, 100, (2, 49)))
    assert {len(row.offset) for row in start.heads} == {1}
    assert all(row.mass > 0.6 for row in start.heads)


def test_rotary_positions_are_refused():
    rotary = timm.create_model("eva02_tiny_patch14_224", depth=1, img_size=56)
    with pytest.raises(UnsupportedError, match="attends elsewhere than its queries and keys"):
        conv2attn.start_at_convolution(rotary)
    sizes = {"img_size": 28, "patch_size": 7, "embed_dim": 32, "depth": 1, "num_heads": 2}
    alone = Eva(**sizes, use_abs_pos_emb=False, use_rot_pos_emb=True)
    with pytest.raises(UnsupportedError, match="its positions are rotary"):
        conv2attn.start_at_convolution(alone)
    shared = of_beit(use_shared_relative_position_bias=True)
    with pytest.raises(UnsupportedError, match="2 layers add the same table of biases"):
        conv2attn.start_at_convolution(shared)


@torch.no_grad()
def test_the_experiment_measures_shifts_beside_a_class_token():
    torch.manual_seed(0)
    network = network_of(Task("digits", 2, timm=(3, 4)), 12, "torch", 3)
    inputs, reach = network.blocks[0].mlp.fc1.in_features, network.blocks[0].mlp.fc1.weight.abs().max().item()
    assert 0.9 * inputs**-0.5 < reach <= inputs**-0.5  # as torch draws linear layers
    images = torch.randn(4, 1, 12, 12)
    start = begin(network, "shift-3-4", 0, images, 6)
    maps = displacements(network.eval(), images)
    assert maps.shape == (3, 4, 11, 11)  # displacements between 6x6 tokens: none of the class token's
    for number, head in enumerate(start.heads):
        down, right = head.offset
        assert maps[number // 4, head.head].argmax() == (down + 5) * 11 + right + 5
