"""Attention of other people's models: captured as they themselves report it, its shifts named, its span decided."""

import pytest
import torch
from encoders import EXTRA_TOKENS, HEADS, VISION, pictures, sentence, sentence_encoder, vision
from safetensors.torch import save_file
from torch import nn

from conv2attn import capture
from conv2attn.errors import CheckpointError
from conv2attn.files import load
from conv2attn.span import check_span, heads
from conv2attn.verdicts import Verdict

TEXTS = [
    "The cat sat on the mat.",
    "A convolution reads the pixels around each pixel, whatever they show.",
    "Paris is the capital of France and Berlin that of Germany; Rome, of Italy.",
]
LAST_DIGIT = 2.0**-24
"""Unit roundoff of float32: orders of summation in float64 differ by far less, a wrong head, mask or bias by more."""


@torch.no_grad()
def own_attention(network, inputs):
    """The attention that the network itself returns, layer by layer."""
    named = inputs if isinstance(inputs, dict) else {"pixel_values": inputs}
    return network(**named, output_attentions=True).attentions


def largest_difference(captured, own):
    """Between two lists of attention arrays, which must have the same shapes."""
    assert [each.shape for each in captured] == [each.shape for each in own]
    return max((a - b).abs().max().item() for a, b in zip(captured, own, strict=True))


def cases(implementation):
    """Name, network and inputs of each model."""
    for name in VISION:
        network = vision(name, implementation)
        yield name, network, pictures(network)
    yield "minilm", sentence_encoder(implementation), sentence(TEXTS[2])


def test_captured_attention_equals_the_reported_attention_bit_for_bit():
    for name, network, inputs in cases("eager"):
        captured, own = list(capture(network, inputs).values()), own_attention(network, inputs)
        assert all(torch.equal(a, b) for a, b in zip(captured, own, strict=True)), name


def test_captured_fused_attention_equals_the_reported_unfused_attention(monkeypatch):
    monkeypatch.setattr(nn.functional, "softmax", lambda scores, dim, dtype=None: torch.softmax(scores, dim))
    for (name, fused, inputs), (_, eager, _) in zip(cases(None), cases("eager"), strict=True):
        assert fused.config._attn_implementation == "sdpa"
        inputs = inputs if name == "minilm" else inputs.double()
        own = own_attention(eager.double(), inputs)
        captured = list(capture(fused.double(), inputs).values())
        assert largest_difference(captured, own) <= LAST_DIGIT, name
        captured[0] = captured[0].flip(1)
        assert not largest_difference(captured, own) <= LAST_DIGIT, name


def shifts_by_one(attention):
    """(layer, head, offset) of each head that gives a neighbour or itself over half of every query's attention."""
    found = []
    for layer, array in attention.items():
        for head in heads(array, grid=(array.shape[-1],)).layers[0].heads:
            weakest = array[0, head.head].diagonal(head.peak[0]).min()
            if weakest > 0.5 and abs(head.peak[0]) <= 1:
                found.append((layer, head.head, head.peak))
    return found


@pytest.mark.parametrize("special", [True, False], ids=["with special tokens", "without"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_head_of_the_previous_token_is_found(text, special):
    attention = capture(sentence_encoder(), sentence(text, add_special_tokens=special))
    assert len(attention) == 6
    first = "encoder.layer.0.attention.self"
    assert shifts_by_one(attention) == [(first, 2, (-1,))]
    before = attention[first][0, 2].diagonal(-1)
    reading = heads(attention[first], grid=(attention[first].shape[-1],)).layers[0].heads[2]
    assert reading.peak_mass == pytest.approx(before.double().sum().item() / (len(before) + 1), rel=LAST_DIGIT)


def test_over_a_long_text_it_gives_less_than_everything_to_the_previous_token():
    attention = capture(sentence_encoder(), sentence(" ".join(TEXTS * 9), truncation=True, max_length=256))
    array = attention["encoder.layer.0.attention.self"]
    reading = heads(array, grid=(256,)).layers[0].heads[2]
    assert reading.peak == (-1,)
    assert 0.5 < reading.peak_mass < 0.99


def test_an_encoder_of_sentences_is_no_convolution_of_three_tokens():
    attention = capture(sentence_encoder(), sentence(TEXTS[0]))
    tokens = next(iter(attention.values())).shape[-1]
    report = check_span(attention, grid=(tokens,))
    assert [row.verdict for row in report.rows] == [Verdict.REFUTED] * 6
    previous = check_span(attention, offsets=[(-1,)], grid=(tokens,), eps=1e-3).rows
    assert [row.verdict is Verdict.HOLDS for row in previous] == [True] + [False] * 5


@pytest.mark.parametrize("name", VISION)
def test_random_attention_is_read_and_refuted(name):
    network = vision(name)
    report = check_span(capture(network, pictures(network)), extra_tokens=EXTRA_TOKENS[name])
    assert [(row.grid, row.heads, row.verdict) for row in report.rows] == [((5, 5), HEADS, Verdict.REFUTED)] * 2
    assert [row.images for row in report.rows] == ([8, 2] if name == "swin" else [2, 2])
    assert any("leading tokens" in note for row in report.rows for note in row.notes) == (name != "swin")
    assert report.exit_code == 1
    assert all(row.name in report.to_text() for row in report.rows)


def saved_vit(folder):
    """A small ViT and where its configuration, its weights, and those of another are."""
    model, other = vision("vit", "eager"), vision("vit", "eager")
    for weights in other.parameters():
        nn.init.normal_(weights)
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "weights.pt")
    save_file(other.state_dict(), folder / "others.safetensors")
    return model, other


@pytest.mark.parametrize(("weights", "which"), [("weights.pt", 0), ("others.safetensors", 1)])
def test_the_weights_are_those_of_the_file_and_not_of_the_folder(tmp_path, weights, which):
    models = saved_vit(tmp_path)
    models[1 - which].save_pretrained(tmp_path)
    found = load(tmp_path / weights, f"transformers:{tmp_path}").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in models[which].state_dict().items())


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    model, _ = saved_vit(tmp_path)
    held = {name: tensor for name, tensor in model.state_dict().items() if "layernorm" not in name}
    torch.save(held, tmp_path / "less.pt")
    with pytest.raises(CheckpointError, match=r"C2A304 .*less.pt does not fit .*10 missing: layernorm.bias"):
        load(tmp_path / "less.pt", f"transformers:{tmp_path}")
    torch.save({name: x for name, x in model.state_dict().items() if "pooler" not in name}, tmp_path / "base.pt")
    assert not load(tmp_path / "base.pt", f"transformers:{tmp_path}").training
    with pytest.raises(CheckpointError, match="C2A301"):
        load(tmp_path / "none.pt", f"transformers:{tmp_path}")
