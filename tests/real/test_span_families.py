"""Families whose attention is captured: it equals what each model reports of itself, and its heads are read."""

import pytest
import torch
import transformers as hf
from encoders import model_of
from transformers.models.sam.modeling_sam import SamVisionEncoder
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from conv2attn import capture, heads
from conv2attn.span import ask_attention, check_span
from conv2attn.verdicts import Verdict

STAGES = {"num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "num_attention_heads": [1, 2]}
STAGES |= {"mlp_ratios": [2, 2], "attn_implementation": "eager"}
PLAIN = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "attn_implementation": "eager"}
VISION = {"image_size": 28, "patch_size": 7, **PLAIN}
SOUND = {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "num_mel_bins": 8}
SOUND |= {"max_source_positions": 16, "attn_implementation": "eager"}
IN_WINDOWS = {"image_size": 32, "patch_size": 4, "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 32}
IN_WINDOWS |= {"initializer_range": 0.5}  # that of SAM, 1e-10, attends evenly, of which no share is told


def segformer():
    """Keys of the first stage are pooled in cells of 2x2."""
    given = {"sr_ratios": [2, 1], "patch_sizes": [3, 3], "strides": [2, 2]}
    return model_of("Segformer", **given, **STAGES)


def pvt():
    """Pooled keys at first, and in the last stage a class token."""
    given = {"image_size": 32, "sequence_reduction_ratios": [2, 1], "patch_sizes": [4, 2], "strides": [4, 2]}
    return model_of("Pvt", **given, **STAGES)


CASES = {
    "segformer": (segformer, (3, 16, 16), [(4, 4), (4, 4)]),
    "pvt": (pvt, (3, 32, 32), [(4, 4), (4, 4)]),
    "dinov2": (lambda: model_of("Dinov2", **VISION), (3, 28, 28), [(4, 4)] * 2),
    "clip": (lambda: model_of("CLIPVision", **VISION), (3, 28, 28), [(4, 4)] * 2),
    "siglip": (lambda: model_of("SiglipVision", **VISION), (3, 28, 28), [(4, 4), (4, 4), ()]),
    "whisper": (lambda: WhisperEncoder(hf.WhisperConfig(**SOUND)), (8, 32), [(16,)] * 2),
    "sam": (lambda: SamVisionEncoder(hf.SamVisionConfig(**IN_WINDOWS, **PLAIN)), (3, 32, 32), [(8, 8), (8, 8)]),
}


@pytest.fixture(params=CASES)
def case(request):
    """The model, two inputs, and the grids of its layers."""
    build, shape, grids = CASES[request.param]
    torch.manual_seed(0)
    return build().eval(), torch.randn(2, *shape), grids


@torch.no_grad()
def reported(network, inputs):
    """The attention that the model's own modules return beside their outputs, in the order in which they run."""
    found = []

    def keep(module, given, returned):
        maps = [each for each in returned if isinstance(each, torch.Tensor)] if isinstance(returned, tuple) else []
        averaged = isinstance(module, torch.nn.MultiheadAttention)
        if "Attention" in type(module).__name__ and not averaged and len(maps) == 2 and maps[1].ndim in (3, 4):
            found.append(maps[1].unflatten(0, (-1, 2)) if maps[1].ndim == 3 else maps[1])

    handles = [module.register_forward_hook(keep) for module in network.modules()]
    network(inputs, output_attentions=True)
    for handle in handles:
        handle.remove()
    return found


def test_captured_attention_equals_the_reported_attention(case):
    network, inputs, grids = case
    own, captured = reported(network, inputs), capture(network, inputs)
    assert len(own) >= 2
    for attention in own:
        same = [torch.equal(attention, each) for each in captured.values() if each.shape == attention.shape]
        assert any(same)
    assert len(captured) == len(grids)


def test_heads_of_each_family_are_read_on_their_grids(case):
    network, inputs, grids = case
    report = heads(network, inputs, grid=(16,) if inputs.ndim == 3 else None)
    assert report.verdict is Verdict.HOLDS
    assert [layer.grid for layer in report.layers] == grids
    for layer in report.layers:
        for head in layer.heads:
            shares = (head.relative, head.absolute, head.content)
            assert shares == (None, None, None) if head.evenness >= 1 else abs(sum(shares) - 1) < 1e-9
        assert [found.error >= 0 for found in layer.convolutions] == [True] * (4 if layer.grid else 0)


def test_random_attention_on_pooled_keys_is_refuted():
    torch.manual_seed(0)
    seen = capture(segformer().eval(), torch.randn(2, 3, 16, 16))
    assert [row.verdict for row in check_span(seen, grid=(8, 8)).rows] == [Verdict.REFUTED] * 2


@torch.no_grad()
@pytest.mark.parametrize("build", [segformer, pvt])
def test_layers_with_pooled_keys_are_their_matrices(build):
    torch.manual_seed(0)
    network, seen = build().eval(), {}
    linear = {name: module for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    hooks = [
        module.register_forward_hook(lambda _, given, made, name=name: seen.update({name: (given[0], made)}))
        for name, module in linear.items()
    ]
    images = torch.randn(2, *CASES[build.__name__][1])
    captured = capture(network, images)
    for hook in hooks:  # with which no layer is its matrices
        hook.remove()
    for layer in ask_attention(network, images).reads():
        matrices, bias = layer.weights
        within = {name: held for name, held in seen.items() if name.startswith(layer.name.removesuffix(".self"))}
        (tokens,) = (held[0] for name, held in within.items() if name.endswith(("v_proj", "value")))
        (computed,) = (held[1] for name, held in within.items() if name.endswith(("o_proj", "output.dense")))
        made = torch.einsum("nhqk,nki,hoi->nqo", captured[layer.name].double(), tokens.double(), matrices) + bias
        torch.testing.assert_close(made.float(), computed, atol=1e-5, rtol=1e-4)
