"""Architectures of timm and transformers with random weights, and what is read of each: docs/architectures.md.

What begins as a constant (gains, biases, scales of layers) is drawn at random, and statistics of norms are measured: as
it begins, a network has no biases and its layers of scale 1e-5 say nothing, which is not so of a trained one.
`python tests/real/architectures.py` writes the page, in about half an hour; with names behind it, prints their rows.
"""

import sys
from pathlib import Path

import conftest  # noqa: F401
import timm
import torch
import transformers as tr
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from conv2attn.errors import UsageError
from conv2attn.networks.reading.replay_result import PREMISES
from conv2attn.report import markdown_table
from conv2attn.span import ask_attention

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
SPEECH = SMALL | {
    "conv_dim": [32] * 3,
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 3],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 4,
}
IDS = torch.arange(7, 23)[None]


def image(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


TIMM = {
    "vit_tiny_patch16_224": ({"depth": 2}, 224),
    "deit_tiny_distilled_patch16_224": ({"depth": 2}, 224),
    "deit3_small_patch16_224": ({"depth": 2}, 224),
    "beit_base_patch16_224": ({"depth": 2}, 224),
    "eva02_tiny_patch14_224": ({"depth": 2}, 224),
    "vit_small_patch14_reg4_dinov2": ({"img_size": 224, "depth": 2}, 224),
    "cait_xxs24_224": ({"depth": 2, "depth_token_only": 1}, 224),
    "swin_tiny_patch4_window7_224": ({"depths": (2, 2, 2), "embed_dim": 24}, 224),
    "swinv2_tiny_window8_256": ({"depths": (2, 2, 2), "embed_dim": 24}, 256),
    "swinv2_cr_tiny_224": ({"depths": (2, 2, 2), "embed_dim": 24}, 224),
    "nest_tiny": ({}, 224),
    "hiera_tiny_224": ({}, 224),
    "twins_svt_small": ({"depths": (2, 2, 2, 1)}, 224),
    "twins_pcpvt_small": ({"depths": (1, 1, 2, 1)}, 224),
    "maxvit_tiny_tf_224": ({}, 224),
    "coatnet_nano_rw_224": ({"depths": (1, 1, 2, 1)}, 224),
    "maxxvit_rmlp_nano_rw_256": ({}, 256),
    "coat_tiny": ({}, 224),
    "crossvit_tiny_240": ({}, 240),
    "convit_tiny": ({"depth": 3}, 224),
    "levit_128s": ({}, 224),
    "pvt_v2_b0": ({}, 224),
    "mobilevit_s": ({}, 256),
    "mobilevitv2_050": ({}, 256),
    "tiny_vit_5m_224": ({"depths": (1, 1, 2, 1)}, 224),
    "volo_d1_224": ({}, 224),
    "xcit_nano_12_p16_224": ({"depth": 2}, 224),
    "visformer_tiny": ({}, 224),
    "tnt_s_patch16_224": ({"depth": 2}, 224),
    "pit_ti_224": ({"depth": [1, 2, 1]}, 224),
    "gcvit_xxtiny": ({}, 224),
    "davit_tiny": ({"depths": (1, 1, 2, 1)}, 224),
    "edgenext_xx_small": ({"depths": (1, 1, 2, 1)}, 256),
    "efficientvit_m0": ({}, 224),
    "efficientvit_b0": ({}, 224),
    "efficientformer_l1": ({"depths": (1, 1, 1, 2)}, 224),
    "efficientformerv2_s0": ({"depths": (1, 1, 2, 2)}, 224),
    "mvitv2_tiny": ({}, 224),
    "samvit_base_patch16": (
        {"img_size": 128, "depth": 2, "global_attn_indexes": (1,), "embed_dim": 48, "num_heads": 3, "window_size": 4},
        128,
    ),
    "halonet26t": ({}, 256),
    "lambda_resnet26t": ({}, 256),
    "botnet26t_256": ({}, 256),
    "fastvit_sa12": ({"layers": (1, 1, 2, 2)}, 256),
    "nextvit_small": ({}, 224),
    "caformer_s18": ({}, 224),
    "vit_relpos_small_patch16_224": ({"depth": 2}, 224),
    "vit_base_patch16_siglip_224": ({"depth": 2, "embed_dim": 192, "num_heads": 3}, 224),
    "resnet50_clip": ({}, 224),
    "beitv2_base_patch16_224": ({"depth": 2, "embed_dim": 192, "num_heads": 3}, 224),
    "eca_halonext26ts": ({}, 256),
    "efficientvit_l1": ({}, 224),
    "flexivit_small": ({"depth": 2}, 240),
    "hieradet_small": ({"stages": (1, 1, 2, 1)}, 224),
    "mobilenetv4_hybrid_medium": ({}, 224),
    "shvit_s1": ({}, 224),
    "swiftformer_xs": ({"layers": (1, 1, 1, 1)}, 224),
    "swin_s3_tiny_224": (
        {"depths": (2, 2, 2), "embed_dim": 24, "num_heads": (3, 6, 12), "window_size": (7, 7, 14)},
        224,
    ),
    "vit_base_patch16_rope_reg1_gap_256": ({"depth": 2, "embed_dim": 192, "num_heads": 3}, 256),
    "vit_pe_core_tiny_patch16_384": ({"depth": 2}, 384),
    "vit_small_patch16_dinov3": ({"depth": 2}, 256),
    "vit_small_r26_s32_224": ({"depth": 2}, 224),
    "vitamin_small_224": ({}, 224),
}
TRANSFORMERS = {
    "ViT": lambda: (tr.ViTModel(tr.ViTConfig(**SMALL)), image(1, 3, 224, 224)),
    "DeiT": lambda: (tr.DeiTModel(tr.DeiTConfig(**SMALL)), image(1, 3, 224, 224)),
    "DINOv2": lambda: (tr.Dinov2Model(tr.Dinov2Config(**SMALL, image_size=224)), image(1, 3, 224, 224)),
    "DINOv2 with registers": lambda: (
        tr.Dinov2WithRegistersModel(tr.Dinov2WithRegistersConfig(**SMALL, image_size=224)),
        image(1, 3, 224, 224),
    ),
    "CLIP vision": lambda: (
        tr.CLIPVisionModel(tr.CLIPVisionConfig(**SMALL, image_size=224, patch_size=32)),
        image(1, 3, 224, 224),
    ),
    "SigLIP vision": lambda: (tr.SiglipVisionModel(tr.SiglipVisionConfig(**SMALL, image_size=64)), image(1, 3, 64, 64)),
    "YOLOS": lambda: (
        tr.YolosModel(tr.YolosConfig(**SMALL, image_size=[128, 192], num_detection_tokens=10)),
        image(1, 3, 128, 192),
    ),
    "DPT": lambda: (
        tr.DPTModel(tr.DPTConfig(**SMALL, image_size=224, backbone_out_indices=[0, 1, 1, 1])),
        image(1, 3, 224, 224),
    ),
    "ViT-MAE": lambda: (
        tr.ViTMAEModel(tr.ViTMAEConfig(**SMALL)),
        {"pixel_values": image(1, 3, 224, 224), "noise": image(1, 196)},
    ),
    "Hiera": lambda: (
        tr.HieraModel(tr.HieraConfig(embed_dim=24, num_heads=[1, 2, 4, 8], depths=[1, 2, 2, 1])),
        image(1, 3, 224, 224),
    ),
    "TimeSformer": lambda: (
        tr.TimesformerModel(tr.TimesformerConfig(**SMALL, image_size=64, num_frames=4)),
        image(1, 4, 3, 64, 64),
    ),
    "VideoMAE": lambda: (
        tr.VideoMAEModel(tr.VideoMAEConfig(**SMALL, image_size=64, num_frames=8)),
        image(1, 8, 3, 64, 64),
    ),
    "Swin": lambda: (
        tr.SwinModel(tr.SwinConfig(embed_dim=24, depths=[2, 2, 2], num_heads=[1, 2, 4], image_size=224)),
        image(1, 3, 224, 224),
    ),
    "Swin v2": lambda: (
        tr.Swinv2Model(tr.Swinv2Config(embed_dim=24, depths=[2, 2, 2], num_heads=[1, 2, 4], image_size=224)),
        image(1, 3, 224, 224),
    ),
    "SegFormer": lambda: (
        tr.SegformerModel(tr.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 64])),
        image(1, 3, 224, 224),
    ),
    "PVT": lambda: (
        tr.PvtModel(tr.PvtConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 64], num_attention_heads=[1, 2, 4, 4])),
        image(1, 3, 224, 224),
    ),
    "PVT v2": lambda: (tr.PvtV2Model(tr.PvtV2Config(depths=[1, 1, 1, 1])), image(1, 3, 224, 224)),
    "CvT": lambda: (
        tr.CvtModel(tr.CvtConfig(depth=[1, 2, 10], embed_dim=[32, 48, 64], num_heads=[1, 3, 4])),
        image(1, 3, 224, 224),
    ),
    "MobileViT": lambda: (tr.MobileViTModel(tr.MobileViTConfig()), image(1, 3, 256, 256)),
    "MobileViT v2": lambda: (tr.MobileViTV2Model(tr.MobileViTV2Config()), image(1, 3, 256, 256)),
    "LeViT": lambda: (tr.LevitModel(tr.LevitConfig(depths=[1, 1, 1])), image(1, 3, 224, 224)),
    "BEiT": lambda: (tr.BeitModel(tr.BeitConfig(**SMALL, image_size=64)), image(1, 3, 64, 64)),
    "ViTDet": lambda: (
        tr.VitDetModel(
            tr.VitDetConfig(
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=3,
                image_size=128,
                window_block_indices=[0],
                window_size=4,
                pretrain_image_size=128,
            )
        ),
        image(1, 3, 128, 128),
    ),
    "I-JEPA": lambda: (tr.IJepaModel(tr.IJepaConfig(**SMALL, image_size=64)), image(1, 3, 64, 64)),
    "ViT MSN": lambda: (tr.ViTMSNModel(tr.ViTMSNConfig(**SMALL, image_size=64)), image(1, 3, 64, 64)),
    "BERT": lambda: (tr.BertModel(tr.BertConfig(**SMALL)), IDS),
    "RoBERTa": lambda: (tr.RobertaModel(tr.RobertaConfig(**SMALL)), IDS),
    "DistilBERT": lambda: (tr.DistilBertModel(tr.DistilBertConfig(dim=48, n_layers=2, n_heads=3, hidden_dim=96)), IDS),
    "ELECTRA": lambda: (tr.ElectraModel(tr.ElectraConfig(**SMALL, embedding_size=48)), IDS),
    "ALBERT": lambda: (tr.AlbertModel(tr.AlbertConfig(**SMALL, embedding_size=48)), IDS),
    "MPNet": lambda: (tr.MPNetModel(tr.MPNetConfig(**SMALL)), IDS),
    "DeBERTa v2": lambda: (tr.DebertaV2Model(tr.DebertaV2Config(**SMALL)), IDS),
    "GPT-2": lambda: (tr.GPT2Model(tr.GPT2Config(n_embd=48, n_head=3, n_layer=2)), IDS),
    "GPT-NeoX": lambda: (tr.GPTNeoXModel(tr.GPTNeoXConfig(**SMALL)), IDS),
    "OPT": lambda: (
        tr.OPTModel(
            tr.OPTConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, ffn_dim=96, word_embed_proj_dim=48)
        ),
        IDS,
    ),
    "Llama": lambda: (tr.LlamaModel(tr.LlamaConfig(**SMALL)), IDS),
    "Llama, grouped": lambda: (
        tr.LlamaModel(tr.LlamaConfig(**(SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2}))),
        IDS,
    ),
    "Mistral": lambda: (
        tr.MistralModel(tr.MistralConfig(**(SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2}))),
        IDS,
    ),
    "Qwen2": lambda: (
        tr.Qwen2Model(tr.Qwen2Config(**(SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2}))),
        IDS,
    ),
    "Gemma": lambda: (tr.GemmaModel(tr.GemmaConfig(**SMALL, head_dim=16, num_key_value_heads=1)), IDS),
    "Falcon": lambda: (
        tr.FalconModel(tr.FalconConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=3)),
        IDS,
    ),
    "BLOOM": lambda: (tr.BloomModel(tr.BloomConfig(hidden_size=48, n_layer=2, n_head=3)), IDS),
    "XLNet": lambda: (tr.XLNetModel(tr.XLNetConfig(d_model=48, n_layer=2, n_head=3, d_inner=96)), IDS),
    "BigBird": lambda: (tr.BigBirdModel(tr.BigBirdConfig(**SMALL)), IDS),
    "Longformer": lambda: (tr.LongformerModel(tr.LongformerConfig(**SMALL, attention_window=8)), IDS),
    "Nystromformer": lambda: (
        tr.NystromformerModel(tr.NystromformerConfig(**SMALL, num_landmarks=4, segment_means_seq_len=16)),
        IDS,
    ),
    "FNet": lambda: (tr.FNetModel(tr.FNetConfig(hidden_size=48, num_hidden_layers=2, intermediate_size=96)), IDS),
    "Whisper encoder": lambda: (
        WhisperEncoder(
            tr.WhisperConfig(
                d_model=48,
                encoder_layers=2,
                encoder_attention_heads=3,
                encoder_ffn_dim=96,
                num_mel_bins=8,
                max_source_positions=16,
            )
        ),
        image(1, 8, 32),
    ),
    "Whisper": lambda: (
        tr.WhisperModel(
            tr.WhisperConfig(
                d_model=48,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=3,
                decoder_attention_heads=3,
                encoder_ffn_dim=96,
                decoder_ffn_dim=96,
                num_mel_bins=8,
                max_source_positions=16,
                vocab_size=64,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            )
        ),
        {"input_features": image(1, 8, 32), "decoder_input_ids": IDS[:, :8]},
    ),
    "Wav2Vec2": lambda: (tr.Wav2Vec2Model(tr.Wav2Vec2Config(**SPEECH)), image(1, 400)),
    "AST": lambda: (tr.ASTModel(tr.ASTConfig(**SMALL, max_length=64, num_mel_bins=32)), image(1, 64, 32)),
    "HuBERT": lambda: (tr.HubertModel(tr.HubertConfig(**SPEECH)), image(1, 400)),
    "BLIP vision": lambda: (
        tr.BlipVisionModel(tr.BlipVisionConfig(**SMALL, image_size=64, initializer_range=0.02)),
        image(1, 3, 64, 64),
    ),
    "Data2Vec vision": lambda: (
        tr.Data2VecVisionModel(tr.Data2VecVisionConfig(**SMALL, image_size=64)),
        image(1, 3, 64, 64),
    ),
    "DINOv3 ViT": lambda: (tr.DINOv3ViTModel(tr.DINOv3ViTConfig(**SMALL, image_size=64)), image(1, 3, 64, 64)),
    "ViViT": lambda: (
        tr.VivitModel(tr.VivitConfig(**SMALL, image_size=64, num_frames=4)),
        image(1, 4, 3, 64, 64),
    ),
    "CANINE": lambda: (tr.CanineModel(tr.CanineConfig(**SMALL)), IDS),
    "CLIP text": lambda: (tr.CLIPTextModel(tr.CLIPTextConfig(**SMALL)), IDS),
    "ESM": lambda: (tr.EsmModel(tr.EsmConfig(**SMALL, vocab_size=33, pad_token_id=1, mask_token_id=32)), IDS),
    "ModernBERT": lambda: (tr.ModernBertModel(tr.ModernBertConfig(**SMALL, pad_token_id=0)), IDS),
    "RoFormer": lambda: (tr.RoFormerModel(tr.RoFormerConfig(**SMALL)), IDS),
    "GPT-J": lambda: (tr.GPTJModel(tr.GPTJConfig(n_embd=48, n_layer=2, n_head=3, rotary_dim=16)), IDS),
    "GPT-Neo": lambda: (
        tr.GPTNeoModel(
            tr.GPTNeoConfig(
                hidden_size=48, num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]], window_size=4
            )
        ),
        IDS,
    ),
    "GPT-OSS": lambda: (
        tr.GptOssModel(
            tr.GptOssConfig(
                **(SMALL | {"num_attention_heads": 4}), num_key_value_heads=2, head_dim=16, num_local_experts=4
            )
        ),
        IDS,
    ),
    "Mixtral": lambda: (
        tr.MixtralModel(
            tr.MixtralConfig(**(SMALL | {"num_attention_heads": 4}), num_key_value_heads=2, num_local_experts=4)
        ),
        IDS,
    ),
    "Phi": lambda: (tr.PhiModel(tr.PhiConfig(**SMALL)), IDS),
    "Qwen3": lambda: (
        tr.Qwen3Model(tr.Qwen3Config(**(SMALL | {"num_attention_heads": 4}), num_key_value_heads=2, head_dim=16)),
        IDS,
    ),
    "Gemma 2": lambda: (
        tr.Gemma2Model(tr.Gemma2Config(**(SMALL | {"num_attention_heads": 4}), num_key_value_heads=2, head_dim=16)),
        IDS,
    ),
    "BART": lambda: (
        tr.BartModel(
            tr.BartConfig(
                d_model=48,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=3,
                decoder_attention_heads=3,
                encoder_ffn_dim=96,
                decoder_ffn_dim=96,
            )
        ),
        {"input_ids": IDS, "decoder_input_ids": IDS[:, :8]},
    ),
    "T5": lambda: (
        tr.T5Model(tr.T5Config(d_model=48, d_kv=16, d_ff=96, num_layers=2, num_heads=3)),
        {"input_ids": IDS, "decoder_input_ids": IDS[:, :8]},
    ),
}
NO_SOFTMAX = "no softmax over keys was observed"
COLUMNS = ("architecture", "library", "layers", "placed", "replayed", "replay", "why not")
HEAD = """# Architectures that are read

Written by `python tests/real/architectures.py`: random weights (what begins as a constant is drawn too, and
statistics of norms are measured), small configurations, one image of noise or 16 ids.
*Placed* are layers of which the run shows where in the input each query and key lies, *replayed* those whose output is
`sum_h A_h x M_h^T + b` under random attention ([how](heads.md#how-a-network-is-read)); `replay` is the worst of these.

Of {count} architectures every layer replays in {replay}, and every layer is placed in {placed}. The last column says
why not.

In {outside} a control shows that some layer is not of the form of the theorem: softmax over keys, values
that are linear in one token each, and behind it nothing but a linear map of each token. Of the other {inside}, every
layer replays in {replay}. Outside are:

{reasons}

"""


def built(name, **smaller):
    """A network with random weights, and an input."""
    torch.manual_seed(0)
    if name in TRANSFORMERS:
        network, inputs = TRANSFORMERS[name]()
    else:
        options, side = TIMM[name]
        network, inputs = timm.create_model(name, pretrained=False, **options, **smaller), image(1, 3, side, side)
    draw_constants(network)
    if torch.is_tensor(inputs) and inputs.is_floating_point():
        measure_statistics(network, inputs)
    return network.eval(), inputs


@torch.no_grad()
def draw_constants(network):
    """Gives random numbers to parameters that begin with one value."""
    for weight in network.parameters():
        if weight.is_floating_point() and weight.numel() > 1 and weight.min() == weight.max():
            # Scales of layers begin at 1e-5 and grow to about a tenth; gains stay near what they begin with.
            small = weight.flatten()[0].abs() < 0.1
            weight.copy_(0.1 * torch.randn_like(weight) if small else weight * (0.5 + torch.rand_like(weight)))


@torch.no_grad()
def measure_statistics(network, inputs):
    """Gives batch norms the statistics of three images: with other ones a signal fades from norm to norm."""
    network.eval()
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.momentum = None
            module.train()
    network(torch.cat([inputs, inputs.flip(-1), inputs.roll(1, -1)]))


def row_of(name):
    """What is read of an architecture: layers, those whose tokens are placed, those that replay, the worst replay, why
    not."""
    network, inputs = built(name)
    library = "transformers" if name in TRANSFORMERS else "timm"
    try:
        reads = [
            (each.unread or each.unplaced, each.weights is not None, each.replay, each.notes)
            for each in ask_attention(network, inputs).reads()
        ]
    except UsageError as error:
        return [name, library, 0, 0, 0, "-", f"{error.code}: {NO_SOFTMAX}"]
    residuals = [residual for _, replays, residual, _ in reads if replays]
    worst = f"below 1e{-6 if max(residuals) < 1e-6 else -3}" if residuals else "-"
    reasons = {why for why, _, _, _ in reads if why} | {
        note for _, replays, _, notes in reads if not replays for note in notes[:1]
    }
    placed = sum(not why for why, _, _, _ in reads)
    return [name, library, len(reads), placed, len(residuals), worst, "; ".join(sorted(reasons))]


def outside(row):
    """The premises of the theorem that an architecture fails."""
    return [why for why in (*PREMISES, NO_SOFTMAX) if why in row[-1]]


def page(rows):
    """The text of the page."""
    replay, placed = (sum(row[2] > 0 and row[at] == row[2] for row in rows) for at in (4, 3))
    by_reason = {why: [row[0] for row in rows if why in outside(row)] for why in (*PREMISES, NO_SOFTMAX)}
    reasons = "\n".join(f"- {why}: {', '.join(names)}" for why, names in by_reason.items() if names)
    count = sum(bool(outside(row)) for row in rows)
    table = markdown_table(COLUMNS, rows)
    head = HEAD.format(
        count=len(rows), replay=replay, placed=placed, outside=count, inside=len(rows) - count, reasons=reasons
    )
    return head + table + "\n"


def main():
    """Writes the page, or prints the rows of the named architectures."""
    if names := sys.argv[1:]:
        print(markdown_table(COLUMNS, map(row_of, names)))
    else:
        PAGE.write_text(page([row_of(name) for name in [*TRANSFORMERS, *TIMM]]))


if __name__ == "__main__":
    main()
