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
from encoders import model_of
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from conv2attn.errors import UsageError
from conv2attn.networks.reading import replay_result as why_not
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


NARROW = {"depth": 2, "embed_dim": 192, "num_heads": 3}
TIMM = {
    "vit_tiny_patch16_224": {"depth": 2},
    "deit_tiny_distilled_patch16_224": {"depth": 2},
    "deit3_small_patch16_224": {"depth": 2},
    "beit_base_patch16_224": {"depth": 2},
    "eva02_tiny_patch14_224": {"depth": 2},
    "vit_small_patch14_reg4_dinov2": {"img_size": 224, "depth": 2},
    "cait_xxs24_224": {"depth": 2, "depth_token_only": 1},
    "swin_tiny_patch4_window7_224": {"depths": (2, 2, 2), "embed_dim": 24},
    "swinv2_tiny_window8_256": ({"depths": (2, 2, 2), "embed_dim": 24}, 256),
    "swinv2_cr_tiny_224": {"depths": (2, 2, 2), "embed_dim": 24},
    "nest_tiny": {},
    "hiera_tiny_224": {},
    "twins_svt_small": {"depths": (2, 2, 2, 1)},
    "twins_pcpvt_small": {"depths": (1, 1, 2, 1)},
    "maxvit_tiny_tf_224": {},
    "coatnet_nano_rw_224": {"depths": (1, 1, 2, 1)},
    "maxxvit_rmlp_nano_rw_256": ({}, 256),
    "coat_tiny": {},
    "crossvit_tiny_240": ({}, 240),
    "convit_tiny": {"depth": 3},
    "levit_128s": {},
    "pvt_v2_b0": {},
    "mobilevit_s": ({}, 256),
    "mobilevitv2_050": ({}, 256),
    "tiny_vit_5m_224": {"depths": (1, 1, 2, 1)},
    "volo_d1_224": {},
    "xcit_nano_12_p16_224": {"depth": 2},
    "visformer_tiny": {},
    "tnt_s_patch16_224": {"depth": 2},
    "pit_ti_224": {"depth": [1, 2, 1]},
    "gcvit_xxtiny": {},
    "davit_tiny": {"depths": (1, 1, 2, 1)},
    "edgenext_xx_small": ({"depths": (1, 1, 2, 1)}, 256),
    "efficientvit_m0": {},
    "efficientvit_b0": {},
    "efficientformer_l1": {"depths": (1, 1, 1, 2)},
    "efficientformerv2_s0": {"depths": (1, 1, 2, 2)},
    "mvitv2_tiny": {},
    "samvit_base_patch16": (
        {"img_size": 128, "depth": 2, "global_attn_indexes": (1,), "embed_dim": 48, "num_heads": 3, "window_size": 4},
        128,
    ),
    "halonet26t": ({}, 256),
    "lambda_resnet26t": ({}, 256),
    "botnet26t_256": ({}, 256),
    "fastvit_sa12": ({"layers": (1, 1, 2, 2)}, 256),
    "nextvit_small": {},
    "caformer_s18": {},
    "vit_relpos_small_patch16_224": {"depth": 2},
    "vit_base_patch16_siglip_224": NARROW,
    "resnet50_clip": {},
    "beitv2_base_patch16_224": NARROW,
    "eca_halonext26ts": ({}, 256),
    "efficientvit_l1": {},
    "flexivit_small": ({"depth": 2}, 240),
    "hieradet_small": {"stages": (1, 1, 2, 1)},
    "mobilenetv4_hybrid_medium": {},
    "shvit_s1": {},
    "swiftformer_xs": {"layers": (1, 1, 1, 1)},
    "swin_s3_tiny_224": {"depths": (2, 2, 2), "embed_dim": 24, "num_heads": (3, 6, 12), "window_size": (7, 7, 14)},
    "vit_base_patch16_rope_reg1_gap_256": (NARROW, 256),
    "vit_pe_core_tiny_patch16_384": ({"depth": 2}, 384),
    "vit_small_patch16_dinov3": ({"depth": 2}, 256),
    "vit_small_r26_s32_224": {"depth": 2},
    "vitamin_small_224": {},
}
"""Options, and the side of an image where it is not 224."""


def both_sides():
    """Ids of an encoder and of its decoder."""
    return {"input_ids": IDS, "decoder_input_ids": IDS[:, :8]}


def model(kind, inputs=None, **config):
    """A maker of a model of transformers and its inputs: ids, an image of a side, numbers of a shape, or a call."""

    def made():
        network = model_of(kind, **config)
        if inputs is None:
            return network, IDS
        if callable(inputs):
            return network, inputs()
        return network, image(*(inputs if isinstance(inputs, tuple) else (1, 3, inputs, inputs)))

    return made


def small(kind, inputs=None, **config):
    return model(kind, inputs, **(SMALL | config))


TRANSFORMERS = {
    "ViT": small("ViT", 224),
    "DeiT": small("DeiT", 224),
    "DINOv2": small("Dinov2", 224, image_size=224),
    "DINOv2 with registers": small("Dinov2WithRegisters", 224, image_size=224),
    "CLIP vision": small("CLIPVision", 224, image_size=224, patch_size=32),
    "SigLIP vision": small("SiglipVision", 64, image_size=64),
    "YOLOS": small("Yolos", (1, 3, 128, 192), image_size=[128, 192], num_detection_tokens=10),
    "DPT": small("DPT", 224, image_size=224, backbone_out_indices=[0, 1, 1, 1]),
    "ViT-MAE": small("ViTMAE", lambda: {"pixel_values": image(1, 3, 224, 224), "noise": image(1, 196)}),
    "Hiera": model("Hiera", 224, embed_dim=24, num_heads=[1, 2, 4, 8], depths=[1, 2, 2, 1]),
    "TimeSformer": small("Timesformer", (1, 4, 3, 64, 64), image_size=64, num_frames=4),
    "VideoMAE": small("VideoMAE", (1, 8, 3, 64, 64), image_size=64, num_frames=8),
    "Swin": model("Swin", 224, embed_dim=24, depths=[2, 2, 2], num_heads=[1, 2, 4], image_size=224),
    "Swin v2": model("Swinv2", 224, embed_dim=24, depths=[2, 2, 2], num_heads=[1, 2, 4], image_size=224),
    "SegFormer": model("Segformer", 224, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 64]),
    "PVT": model(
        "Pvt", 128, image_size=128, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 64], num_attention_heads=[1, 2, 4, 4]
    ),
    "PVT v2": model("PvtV2", 224, depths=[1, 1, 1, 1]),
    "CvT": model("Cvt", 224, depth=[1, 2, 10], embed_dim=[32, 48, 64], num_heads=[1, 3, 4]),
    "MobileViT": model("MobileViT", 256),
    "MobileViT v2": model("MobileViTV2", 256),
    "LeViT": model("Levit", 224, depths=[1, 1, 1]),
    "BEiT": small("Beit", 64, image_size=64),
    "ViTDet": model(
        "VitDet",
        128,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        image_size=128,
        window_block_indices=[0],
        window_size=4,
        pretrain_image_size=128,
    ),
    "I-JEPA": small("IJepa", 64, image_size=64),
    "ViT MSN": small("ViTMSN", 64, image_size=64),
    "BERT": small("Bert"),
    "RoBERTa": small("Roberta"),
    "DistilBERT": model("DistilBert", dim=48, n_layers=2, n_heads=3, hidden_dim=96),
    "ELECTRA": small("Electra", embedding_size=48),
    "ALBERT": small("Albert", embedding_size=48),
    "MPNet": small("MPNet"),
    "DeBERTa v2": small("DebertaV2"),
    "GPT-2": model("GPT2", n_embd=48, n_head=3, n_layer=2),
    "GPT-NeoX": small("GPTNeoX"),
    "OPT": model("OPT", hidden_size=48, num_hidden_layers=2, num_attention_heads=3, ffn_dim=96, word_embed_proj_dim=48),
    "Llama": small("Llama"),
    "Llama, grouped": small("Llama", num_attention_heads=4, num_key_value_heads=2),
    "Mistral": small("Mistral", num_attention_heads=4, num_key_value_heads=2),
    "Qwen2": small("Qwen2", num_attention_heads=4, num_key_value_heads=2),
    "Gemma": small("Gemma", head_dim=16, num_key_value_heads=1),
    "Falcon": model("Falcon", hidden_size=48, num_hidden_layers=2, num_attention_heads=3),
    "BLOOM": model("Bloom", hidden_size=48, n_layer=2, n_head=3),
    "XLNet": model("XLNet", d_model=48, n_layer=2, n_head=3, d_inner=96),
    "BigBird": small("BigBird"),
    "Longformer": small("Longformer", attention_window=8),
    "Nystromformer": small("Nystromformer", num_landmarks=4, segment_means_seq_len=16),
    "FNet": model("FNet", hidden_size=48, num_hidden_layers=2, intermediate_size=96),
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
    "Whisper": model(
        "Whisper",
        lambda: {"input_features": image(1, 8, 32), "decoder_input_ids": IDS[:, :8]},
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
    ),
    "Wav2Vec2": model("Wav2Vec2", (1, 400), **SPEECH),
    "AST": small("AST", (1, 64, 32), max_length=64, num_mel_bins=32),
    "HuBERT": model("Hubert", (1, 400), **SPEECH),
    "BLIP vision": small("BlipVision", 64, image_size=64, initializer_range=0.02),
    "Data2Vec vision": small("Data2VecVision", 64, image_size=64),
    "DINOv3 ViT": small("DINOv3ViT", 64, image_size=64),
    "ViViT": small("Vivit", (1, 4, 3, 64, 64), image_size=64, num_frames=4),
    "CANINE": small("Canine"),
    "CLIP text": small("CLIPText"),
    "ESM": small("Esm", vocab_size=33, pad_token_id=1, mask_token_id=32),
    "ModernBERT": small("ModernBert", pad_token_id=0),
    "RoFormer": small("RoFormer"),
    "GPT-J": model("GPTJ", n_embd=48, n_layer=2, n_head=3, rotary_dim=16),
    "GPT-Neo": model(
        "GPTNeo", hidden_size=48, num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]], window_size=4
    ),
    "GPT-OSS": small("GptOss", num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=4),
    "Mixtral": small("Mixtral", num_attention_heads=4, num_key_value_heads=2, num_local_experts=4),
    "Phi": small("Phi"),
    "Qwen3": small("Qwen3", num_attention_heads=4, num_key_value_heads=2, head_dim=16),
    "Gemma 2": small("Gemma2", num_attention_heads=4, num_key_value_heads=2, head_dim=16),
    "BART": model(
        "Bart",
        both_sides,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
    ),
    "T5": model(
        "T5",
        both_sides,
        d_model=48,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=3,
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
that are linear in one token each, and after it only a linear map of each token. Of the other {inside}, every
layer replays in {replay}. Outside are:

{reasons}

"""


def built(name):
    """A network with random weights, and an input."""
    torch.manual_seed(0)
    if name in TRANSFORMERS:
        network, inputs = TRANSFORMERS[name]()
    else:
        options, side = row if isinstance(row := TIMM[name], tuple) else (row, 224)
        network, inputs = timm.create_model(name, pretrained=False, **options), image(1, 3, side, side)
    return drawn(network, inputs), inputs


def drawn(network, inputs):
    """The network, with constants drawn and statistics measured."""
    draw_constants(network)
    if torch.is_tensor(inputs) and inputs.is_floating_point():
        measure_statistics(network, inputs)
    return network.eval()


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


PREMISES = (
    *(why_not.NOT_LINEAR, why_not.NOT_ONE_EACH, why_not.CHANNELS, why_not.MIXES_VALUES),
    *(why_not.VALUES_NOT_LINEAR, why_not.NO_ORDER, why_not.CONSTANT_VALUES, NO_SOFTMAX),
)
"""Reasons that are premises of the formula."""


def outside(row):
    """The premises of the theorem that an architecture fails."""
    return [why for why in PREMISES if why in row[-1]]


def page(rows):
    """The text of the page."""
    replay, placed = (sum(row[2] > 0 and row[at] == row[2] for row in rows) for at in (4, 3))
    by_reason = {why: [row[0] for row in rows if why in outside(row)] for why in PREMISES}
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
