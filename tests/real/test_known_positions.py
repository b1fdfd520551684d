"""Attention by position of models of libraries is their own where their weights hold content at zero."""

import copy
from itertools import product

import pytest
import torch
from encoders import EXTRA_TOKENS, SIZES, bias_to, model_of, pictures, sentence, sentence_encoder, vision
from positional import ABSOLUTE, FIRST_TOKENS, RELATIVE, SENTENCE, TEXT, known, sam
from test_span_models import TEXTS
from timm.layers import RmsNorm
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.overrides import TorchFunctionMode

from conv2attn import capture
from conv2attn.arguments import call_network
from conv2attn.networks.positions import PositionAttention, Unread, position_attention
from conv2attn.networks.reading.by_position import AFTER_FIRST, NO_TERM
from conv2attn.networks.reading.watch import SOFTMAXES
from conv2attn.span import check_span, heads
from conv2attn.span.attending import others_by_position
from conv2attn.verdicts import Strength, Verdict

ROUNDING = 1e-14
"""Of attention in float64, with sums of some dozens of numbers."""
EVERY = [*RELATIVE, *ABSOLUTE]
OFFSETS = list(product((-1, 0, 1), repeat=2))


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


def read(network, inputs=None):
    """Layers that have an attention by position alone."""
    found = others_by_position(network, None, inputs)
    return [each for each in found.values() if isinstance(each, PositionAttention)]


def same(layer, attention):
    """Whether every uncut window attends as the parameters say; windows that a shift cuts are told by their zeros."""
    uncut = attention[(attention > 1e-30).all(dim=(1, 2, 3))]
    if layer.scores.shape != attention.shape[1:] or not len(uncut):
        return False
    return bool(((uncut - layer.attention).abs() <= ROUNDING).all())


@pytest.fixture(autouse=True)
def float64_softmax(monkeypatch):
    """transformers asks for a softmax in float32."""
    monkeypatch.setattr(nn.functional, "softmax", lambda scores, dim, dtype=None, **_: torch.softmax(scores, dim))


@pytest.mark.rotated
@pytest.mark.parametrize("name", EVERY)
def test_attention_by_position_is_that_of_a_model_whose_weights_hold_content_at_zero(name):
    (network, case), (silent, _) = known(name, held_at_zero=False), known(name)
    found, seen = read(network, case.inputs), own(name, silent, case)
    assert [layer.grid.keys for layer in found] == list(case.grids)
    assert all(same(layer, attention) for layer, attention in zip(found, seen, strict=True))
    assert not same(found[0], own(name, network, case)[0]) or name == "convit"
    layer, attention = found[0], seen[0]
    planted = {
        "two heads swapped": attention.flip(1),
        "pixels in the other order": attention.flip(-1),
        "queries for keys": (each := attention.mT) / each.sum(-1, keepdim=True),
        "less than all of it": attention * (1 - 1e-7),
        "leading tokens first": attention.roll(1, -1),
    }
    assert [what for what, wrong in planted.items() if same(layer, wrong)] == []
    assert (layer.extra, layer.scores.shape[2]) == (case.extra, layer.grid.shape[1] + case.extra)
    leading = [note for note in layer.notes if note.startswith("leading tokens")]
    assert [note.startswith(f"leading tokens: {case.extra};") for note in leading] == [True] * (case.extra > 0)


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
    assert "blocks.2.attn" not in read_as


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
    assert sorted(head.peak for head in heads(found).layers[0].heads) == OFFSETS
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
    assert all(row.notes[0].startswith("positions alone, in a run") for row in report.rows)
    assert [row.verdict for row in check_span(captured, extra_tokens=extra).rows] == [Verdict.HOLDS] * 2
    for layer, attention in zip(read(network), captured.values(), strict=True):
        for facts in (heads(layer), heads(attention, extra_tokens=extra)):
            assert [head.peak for head in facts.layers[0].heads] == OFFSETS
    bias_to(network, [*OFFSETS[:-1], (2, 2)])
    assert check_span(network, position_only=True).exit_code == 1
    others = check_span(capture(network, pictures(network)), extra_tokens=extra)
    assert [row.verdict for row in others.rows] == [Verdict.REFUTED] * 2


def test_shifted_windows_say_so():
    network, case = known("swin, timm", held_at_zero=False)
    notes = [layer.notes for layer in read(network, case.inputs)]
    assert [any("shifted" in note for note in each) for each in notes] == [False, True]


def test_only_the_first_layer_of_an_encoder_sees_positions_alone():
    report = check_span(known("vit, transformers", held_at_zero=False)[0], position_only=True)
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
def test_gates_of_a_layer_that_may_compute_something_else_are_not_read(change):
    network, _ = known("convit")
    change(network.blocks[0].attn)
    first = position_attention(network).get("blocks.0.attn")
    assert first is None or isinstance(first, Unread)


class Adapted(nn.Linear):
    def forward(self, tokens):
        return 2 * super().forward(tokens)


def vit_with(change):
    network = VisionTransformer(**SMALL)
    change(network)
    return network


SMALL = {"img_size": 8, "patch_size": 2, "embed_dim": 12, "depth": 1, "num_heads": 3}
OTHERS = {
    "a mask of the tokens that follow": lambda: model_of("Bert", **SIZES, **TEXT, is_decoder=True),
    "normed queries and keys": lambda: VisionTransformer(**SMALL, qk_norm=True),
    "another norm": lambda: VisionTransformer(**SMALL, norm_layer=RmsNorm),
    "another linear layer": lambda: vit_with(lambda vit: setattr(vit.blocks[0].attn, "qkv", Adapted(12, 36))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_encoders_that_do_more_are_read_as_they_run(name):
    torch.manual_seed(0)
    network = OTHERS[name]().eval().double()
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            if "pos_embed" in key or "position_embeddings" in key:
                parameter.normal_()
    (found,) = read(network)[:1]
    silent = copy.deepcopy(network)
    with torch.no_grad():
        for key, parameter in silent.named_parameters():
            if FIRST_TOKENS.search(key):
                parameter.zero_()
    inputs = SENTENCE if "mask" in name else torch.randn(1, 3, 8, 8).double()
    seen = next(iter(capture(silent, inputs).values())).double()
    assert (found.attention - seen[0, :, found.extra :].roll(-found.extra, -1)).abs().max() <= 2.0**-20


def test_without_positions_there_is_no_term_of_them():
    (found,) = others_by_position(VisionTransformer(**SMALL, pos_embed="none").eval(), None, None).values()
    assert found == Unread(NO_TERM)


def test_a_grid_of_more_positions_than_there_are_is_refused():
    found = others_by_position(known("bert")[0], (8,), None)
    assert all("no input is known on which BertModel runs and has 8 tokens" in each.reason for each in found.values())


def test_the_head_of_the_previous_token_needs_positions_only():
    first = others_by_position(sentence_encoder().double(), (64,), None)["encoder.layer.0.attention.self"]
    network = sentence_encoder().double()
    with torch.no_grad():
        network.embeddings.word_embeddings.weight.zero_()
    seen = capture(network, {"input_ids": torch.zeros(1, 64, dtype=torch.int64)})["encoder.layer.0.attention.self"]
    assert (seen[0] - first.attention).abs().max() <= 2.0**-20
    measured = heads(first).layers[0].heads
    peaks = [(measured[head].peak, round(measured[head].peak_mass, 2)) for head in (2, 5)]
    assert peaks == [
        ((-1,), 0.98),
        ((-1,), 0.77),
    ]


def test_with_words_one_of_its_two_heads_stays_with_the_previous_token():
    network, shares = sentence_encoder(), []
    for text in (*TEXTS, " ".join(TEXTS * 9)):
        given = sentence(text, truncation=True, max_length=256)
        array = capture(network, given)["encoder.layer.0.attention.self"]
        readings = heads(array, grid=(array.shape[-1],)).layers[0].heads
        shares.append([readings[head].peak_mass for head in (2, 5)])
    found = torch.tensor(shares)
    assert found.amin(0).tolist() == pytest.approx([0.79, 0.22], abs=0.0051)
    assert found.amax(0).tolist() == pytest.approx([0.95, 0.27], abs=0.0051)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_relative_positions_that_queries_meet_are_read_where_queries_are_positions(implementation):
    """SAM's decomposed tables, held at zero with other products, meet absolute positions in the first layer."""
    network = sam(implementation)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("qkv.weight"):
                parameter.normal_(std=0.2)
    first, second = others_by_position(network, None, None).values()
    assert second == Unread(AFTER_FIRST)
    with torch.no_grad():
        for parameter in network.vision_encoder.patch_embed.parameters():
            parameter.zero_()
    seen = next(iter(capture(network, torch.randn(1, 3, 8, 8).double()).values()))
    assert same(first, seen[:1])
    assert not same(first, seen[:1].flip(-1))
