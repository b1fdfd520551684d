"""Attention computed from parameters is the model's own where its content is held at zero."""

from itertools import product

import pytest
import torch
from encoders import EXTRA_TOKENS, SIZES, bias_to, pictures, sentence, sentence_encoder, vision
from positional import ABSOLUTE, RELATIVE, known, sam
from test_span_models import TEXTS
from timm.layers import RmsNorm
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from conv2attn import capture
from conv2attn.arguments import call_network
from conv2attn.errors import UsageError
from conv2attn.networks.positions import (
    ENCODERS,
    PositionAttention,
    Unread,
    attention_of_positions,
    is_kind,
    position_attention,
)
from conv2attn.networks.positions import RELATIVE as RULES
from conv2attn.networks.reading.watch import SOFTMAXES
from conv2attn.span import check_span, head_offsets
from conv2attn.theory.bounds import gamma
from conv2attn.verdicts import Strength, Verdict

UNIT = 2.0**-53
EVERY = [*RELATIVE, *ABSOLUTE]
OFFSETS = list(product((-1, 0, 1), repeat=2))


NOT_INSTALLED = {
    *("modeling_finetune.Attention", "levit.AttentionSubsample"),  # the authors' own: tests/test_positions.py
    *("modeling_clip.CLIPVisionTransformer", "modeling_siglip.SiglipVisionTransformer"),  # transformers 5.0
}
"""Kinds of modules that the packages here do not have."""


class Softmaxes(TorchFunctionMode):
    """Keeps the result of every softmax, in their order."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in SOFTMAXES:
            self.seen.append(result.reshape(-1, *result.shape[-3:]))
        return result


@torch.no_grad()
def own(name, network, case):
    """Attention of the layers as they run, in order: (windows, heads, queries, keys), leading tokens last."""
    if name == "vit, torchvision":
        seen = list(capture(network, case.inputs).values())
    else:
        with Softmaxes() as watch:
            call_network(network, case.inputs)
        seen = watch.seen[1::2] if name == "convit" else watch.seen
    return [each[:, :, case.extra :].roll(-case.extra, -1) for each in seen[: len(case.grids)]]


def read(network):
    """Layers whose positions are read from the parameters."""
    return [each for each in position_attention(network).values() if isinstance(each, PositionAttention)]


def allowed(layer):
    """The rounding of two softmaxes in float64, of their scores, and of dividing by what remains."""
    spread = float((layer.scores.amax(-1) - layer.scores.amin(-1)).max())
    return 2 * gamma(2 * layer.scores.shape[2] + int(spread) + 8, UNIT) + 4 * layer.uncertainty


def same(layer, attention):
    """Whether every uncut window attends as the parameters say; windows that a shift cuts are told by their zeros."""
    uncut = attention[(attention > 1e-30).all(dim=(1, 2, 3))]
    if layer.scores.shape != attention.shape[1:] or not len(uncut):
        return False
    return bool(((uncut - layer.attention).abs() <= allowed(layer)).all())


@pytest.fixture(autouse=True)
def float64_softmax(monkeypatch):
    """transformers asks for a softmax in float32."""
    monkeypatch.setattr(nn.functional, "softmax", lambda scores, dim, dtype=None, **_: torch.softmax(scores, dim))


def test_every_rule_reads_a_case():
    networks = [*(known(name)[0] for name in EVERY), sam("eager"), sam("sdpa")]
    kinds = {*RULES, *ENCODERS}
    read_kinds = {
        kind for network in networks for module in network.modules() for kind in kinds if is_kind(module, kind)
    }
    assert kinds - read_kinds == NOT_INSTALLED


@pytest.mark.parametrize("name", EVERY)
def test_attention_from_parameters_equals_the_attention_of_a_run(name):
    network, case = known(name)
    found, seen = read(network), own(name, network, case)
    assert [layer.grid.keys for layer in found] == list(case.grids)
    assert all(same(layer, attention) for layer, attention in zip(found, seen, strict=True))
    assert max(map(allowed, found)) < 1e-8


@pytest.mark.parametrize("name", EVERY)
def test_planted_errors_are_caught(name):
    network, case = known(name)
    layer, attention = read(network)[0], own(name, network, case)[0]
    planted = {
        "two heads swapped": attention.flip(1),
        "pixels in the other order": attention.flip(-1),
        "queries for keys": (each := attention.mT) / each.sum(-1, keepdim=True),
        "less than all of it": attention * (1 - 1e-7),
        "leading tokens first": attention.roll(1, -1),
    }
    assert [what for what, wrong in planted.items() if same(layer, wrong)] == []


@pytest.mark.parametrize("name", [name for name in EVERY if (RELATIVE | ABSOLUTE)[name].extra])
def test_the_class_token_is_a_key_of_its_own(name):
    network, case = known(name)
    layer = read(network)[0]
    assert (layer.extra, layer.scores.shape[2]) == (case.extra, layer.grid.shape[1] + case.extra)
    assert layer.attention[..., -case.extra :].min() > 0
    assert any(note.startswith("leading tokens") and note.endswith(f": {case.extra}") for note in layer.notes)


@pytest.mark.parametrize("name", RELATIVE)
def test_biases_depend_on_the_displacement_alone(name):
    for layer in read(known(name)[0]):
        displacement = layer.grid.displacements()
        for offset in displacement.reshape(-1, 2).unique(dim=0):
            there = layer.scores[..., : layer.grid.shape[1]][:, (displacement == offset).all(-1)]
            assert ((there - there[:, :1]).abs() <= 2 * layer.uncertainty).all()


@pytest.mark.parametrize("name", EVERY)
def test_content_changes_the_run_and_not_the_parameters(name):
    (network, case), (silent, _) = known(name, held_at_zero=False), known(name)
    found, without = read(network), read(silent)
    assert all(torch.equal(a.scores, b.scores) for a, b in zip(found, without, strict=True))
    assert not same(found[0], own(name, network, case)[0]) or name == "convit"


def test_the_attention_of_convit_is_a_mixture_by_its_gates():
    network, case = known("convit", held_at_zero=False)
    gates = [0.25, 0.5, 0.75]
    with torch.no_grad():
        network.blocks[0].attn.gating_param.copy_(torch.logit(torch.tensor(gates * 3)))
    with torch.no_grad(), Softmaxes() as watch:
        call_network(network, case.inputs)
    content, positions = watch.seen[:2]
    gate = torch.tensor(gates * 3).double()[:, None, None]
    mixture = (1 - gate) * content + gate * positions
    captured = capture(network, case.inputs)
    assert list(captured) == ["blocks.0.attn", "blocks.1.attn", "blocks.2.attn"]
    assert (captured["blocks.0.attn"] - mixture).abs().max() <= 2.0**-20
    assert (captured["blocks.0.attn"] - positions).abs().max() > 0.01
    read_as = position_attention(network)
    assert "gates 0.250 0.500 0.750 0.250" in read_as["blocks.0.attn"].notes[0]
    assert isinstance(read_as["blocks.2.attn"], Unread)


def test_convit_starts_as_a_convolution_as_its_locality_grows():
    network, _ = known("convit")
    with torch.no_grad():
        for layer in (network.blocks[0].attn, network.blocks[1].attn):
            layer.local_init()
            layer.pos_proj.weight.mul_(46)
    report = check_span(network, position_only=True)
    assert [row.verdict for row in report.rows] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.UNDECIDED]
    assert report.exit_code == 3
    found = position_attention(network)["blocks.0.attn"]
    assert sorted(head.peak for head in head_offsets(found)) == OFFSETS
    with torch.no_grad():
        network.blocks[0].attn.pos_proj.weight[3] = network.blocks[0].attn.pos_proj.weight[4]
    assert check_span(network, position_only=True).rows[0].verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", ["beit", "swin"])
def test_a_relative_position_bias_that_is_shifts_is_a_convolution(name):
    """By the parameters, with the positions alone, and by the attention that is captured."""
    network, extra = vision(name), EXTRA_TOKENS[name]
    bias_to(network, OFFSETS)
    report, captured = check_span(network, position_only=True), capture(network, pictures(network))
    assert [(row.verdict, row.deciding.strength) for row in report.rows] == [(Verdict.HOLDS, Strength.BOUNDED)] * 2
    assert all("from parameters, positions alone" in row.notes[0] for row in report.rows)
    assert [row.verdict for row in check_span(captured, extra_tokens=extra).rows] == [Verdict.HOLDS] * 2
    for layer, attention in zip(position_attention(network).values(), captured.values(), strict=True):
        for read_off in (head_offsets(layer), head_offsets(attention, extra_tokens=extra)):
            assert [head.offset for head in read_off] == OFFSETS
    bias_to(network, [*OFFSETS[:-1], (2, 2)])
    assert check_span(network, position_only=True).exit_code == 1
    others = check_span(capture(network, pictures(network)), extra_tokens=extra)
    assert [row.verdict for row in others.rows] == [Verdict.REFUTED] * 2


def test_shifted_windows_say_so():
    notes = [layer.notes for layer in read(known("swin, timm")[0])]
    assert [any("shifted" in note for note in each) for each in notes] == [False, True]


def test_only_the_first_layer_of_an_encoder_sees_positions_alone():
    report = check_span(known("vit, transformers")[0], position_only=True)
    assert [row.verdict for row in report.rows] == [Verdict.REFUTED, Verdict.UNDECIDED]
    assert "layers.1.attention, interior: not read: content reaches it" in report.to_text()


def hooked(layer):
    layer.register_forward_pre_hook(lambda module, arguments: None)


def with_a_function_of_its_own(layer):
    layer.forward = lambda *arguments, **options: type(layer).forward(layer, *arguments, **options)


def of_a_subclass(layer):
    kind = type(layer)
    layer.__class__ = type(kind.__name__, (kind,), {"extra_repr": lambda self: "changed", "__module__": "mine"})


@pytest.mark.parametrize("change", [hooked, with_a_function_of_its_own, of_a_subclass])
@pytest.mark.parametrize("name", EVERY)
def test_a_layer_that_may_compute_something_else_is_not_read(name, change):
    network, _ = known(name)
    layers = position_attention(network)
    first = next(key for key, layer in layers.items() if isinstance(layer, PositionAttention))
    change(network.get_submodule(first))
    changed = position_attention(network)
    assert isinstance(changed[first], Unread)
    assert [*changed] == [*layers]


def test_torch_s_fused_function_has_the_scale_of_its_own():
    network, case = known("vit, timm")
    network.blocks[0].attn.scale = 1.0
    for fused in (False, True):
        network.blocks[0].attn.fused_attn = fused
        seen = next(iter(capture(network, case.inputs).values()))[:, :, case.extra :].roll(-case.extra, -1)
        torch.testing.assert_close(read(network)[0].attention, seen[0])


class Adapted(nn.Linear):
    def forward(self, tokens):
        return 2 * super().forward(tokens)


class Moved(VisionTransformer):
    def _pos_embed(self, tokens):
        return super()._pos_embed(tokens).flip(1)


def vit_with(change):
    network = VisionTransformer(**SMALL)
    change(network)
    return network


SMALL = {"img_size": 8, "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
UNKNOWN = {
    "it masks the tokens that follow": lambda: BertModel(BertConfig(**SIZES, vocab_size=9, is_decoder=True)),
    "norms its queries and keys": lambda: VisionTransformer(**SMALL, qk_norm=True),
    "no absolute positions": lambda: VisionTransformer(**SMALL, pos_embed="none"),
    "positions pass a RmsNorm": lambda: VisionTransformer(**SMALL, norm_layer=RmsNorm),
    "has a _pos_embed of its own": lambda: Moved(**SMALL),
    "are not plain linear layers": lambda: vit_with(lambda vit: setattr(vit.blocks[0].attn, "qkv", Adapted(12, 36))),
    "Dropout has hooks": lambda: vit_with(lambda vit: hooked(vit.pos_drop)),
    "no rule reads positions alone": lambda: ViTModel(ViTConfig(**SIZES)).layers[0],
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_encoders_that_do_more_are_named_with_the_reason(reason):
    found = position_attention(UNKNOWN[reason]())
    assert isinstance(first := next(iter(found.values())), Unread)
    assert reason in first.reason


def test_a_grid_of_more_positions_than_there_are_is_refused():
    with pytest.raises(UsageError, match="C2A503 there are 7 positions, not 8"):
        position_attention(known("bert")[0], (8,))


def test_the_head_of_the_previous_token_needs_positions_only():
    network = sentence_encoder().double()
    with torch.no_grad():
        network.embeddings.word_embeddings.weight.zero_()
        network.embeddings.token_type_embeddings.weight.zero_()
    first = position_attention(network, (64,))["encoder.layer.0.attention.self"]
    seen = capture(network, {"input_ids": torch.zeros(1, 64, dtype=torch.int64)})["encoder.layer.0.attention.self"]
    assert (seen[0] - first.attention).abs().max() <= 2.0**-20
    readings = head_offsets(first)
    assert [(readings[head].peak, round(readings[head].share, 2)) for head in (2, 5)] == [((-1,), 0.97), ((-1,), 0.94)]


def test_with_words_one_of_its_two_heads_stays_with_the_previous_token():
    network, shares = sentence_encoder(), []
    for text in (*TEXTS, " ".join(TEXTS * 9)):
        given = sentence(text, truncation=True, max_length=256)
        array = capture(network, given)["encoder.layer.0.attention.self"]
        readings = head_offsets(array, grid=(array.shape[-1],))
        shares.append([readings[head].share for head in (2, 5)])
    found = torch.tensor(shares)
    assert found.amin(0).tolist() == pytest.approx([0.79, 0.22], abs=0.0051)
    assert found.amax(0).tolist() == pytest.approx([0.95, 0.27], abs=0.0051)


def test_any_positions_with_any_weights():
    network, _ = known("vit, timm")
    block, (others, positions) = network.blocks[0], network.pos_embed[0].split([1, 12])
    query, key = nn.Linear(36, 36), nn.Linear(36, 36)
    with torch.no_grad():
        query.weight.copy_(block.attn.qkv.weight[:36]), query.bias.copy_(block.attn.qkv.bias[:36])
        key.weight.copy_(block.attn.qkv.weight[36:72]), key.bias.copy_(block.attn.qkv.bias[36:72])
    layer = attention_of_positions(positions, query, key, 3, grid=(3, 4), norms=[block.norm1], others=others)
    assert torch.equal(layer.scores, read(network)[0].scores)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_sam_meets_its_relative_positions_with_the_bias_of_its_queries(implementation):
    network = sam(implementation)
    seen = capture(network, torch.randn(1, 3, 8, 8).double())
    found = read(network)
    assert [layer.grid.keys for layer in found] == [(3, 3), (4, 4)]
    for layer, windows in zip(found, seen.values(), strict=True):
        assert same(layer, windows)
        assert not same(layer, windows.flip(1))
        assert not same(layer, windows.flip(-1))
