"""Reports speak of layers and numbers: none of the words of graphs, and no line of this package's own code."""

import re
from pathlib import Path

import pytest
import torch
from equality.pairs import After
from torch import nn
from torch.nn import functional as F

import conv2attn

GOLDEN = Path(__file__).parents[3] / "golden"
WORDS = ("opaque", "room is", r"operator \d", r"node \d", "placeholder", "call_function", r"%\d")
OF_TORCH = (
    r"\baten\b",
    r"\bmeta kernel\b",
    "Meta tensors",
    "dispatch",
    "AttributeError",
    "NoneType",
    r"code of a graph",
)
OWN_CODE = r"(comparison|runs|identify)\.py"
GRAPH_WORDS = re.compile("|".join((*WORDS, *OF_TORCH, OWN_CODE)))


CODES = {
    "a scale": lambda x: x * 1.01,
    "a branch": lambda x: x if x.sum() > 0 else -x,
    "numbers": lambda x: x * float(x.detach().mean()),
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "batch statistics": lambda x: F.batch_norm(x, None, None, training=True),
    "two outputs": lambda x: (x, x.shape),
    "largest so far": lambda x: x.cummax(-1).values,
    "nothing finite": lambda x: x / 0,
    "a transform": lambda x: torch.fft.fft2(x).real,
    "a count": lambda x: x.unique(),
}
PAIRS = [(name, "a scale") for name in CODES if name != "a scale"] + [("a scale", name) for name in CODES]


def written(name):
    return After(lambda net, x: CODES[name](x)).eval()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_no_report_has_words_of_graphs(first, second):
    theirs = conv2attn.convert(written(second)) if first == "a scale" else written(second)
    certificate = conv2attn.certify(written(first), theirs, input_size=(3, 6, 7))
    for verbose in (False, True):
        assert GRAPH_WORDS.search(text := certificate.to_text(verbose=verbose)) is None, text


def test_a_verbose_report_names_every_layer_of_a_finding():
    network = nn.Sequential(*(nn.Conv2d(1, 1, 1, padding_mode="circular", padding=1) for _ in range(5)))
    other = nn.Sequential(*(nn.Conv2d(1, 1, 1, padding_mode="reflect", padding=1) for _ in range(5)))
    other.load_state_dict(network.state_dict())
    certificate = conv2attn.certify(network, other, input_size=(1, 4, 4))
    assert "0, 1, 2 and 2 more: " in certificate.to_text()
    assert "0, 1, 2, 3, 4: " in certificate.to_text(verbose=True)


def exported(network):
    """The network that torch.export writes down."""
    return torch.export.export(network, (torch.rand(1, 3, 6, 7),)).module()


@pytest.mark.parametrize("written_down", [torch.fx.symbolic_trace, exported])
@pytest.mark.parametrize("name", ["a scale", "largest so far", "dropout"])
def test_networks_that_torch_wrote_down_are_spoken_of_in_words(written_down, name):
    ours, theirs = written_down(written(name)), written_down(written("a scale"))
    for first, second in [(written(name), ours), (ours, theirs)]:
        text = conv2attn.certify(first, second, input_size=(3, 6, 7)).to_text(verbose=True)
        assert GRAPH_WORDS.search(text) is None, text


def test_an_operator_without_a_rule_is_named_as_it_is_called():
    text = conv2attn.certify(
        written("largest so far"), nn.Sequential(written("largest so far")), input_size=(3, 6, 7)
    ).to_text()
    assert re.search(r"known to be equal: cummax: \S", " ".join(text.split())), text


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_golden_reports_have_no_words_of_graphs(path):
    assert GRAPH_WORDS.search(path.read_text()) is None


CALLERS = {
    (): ("the first network is in evaluation mode", "and the second network in training mode"),
    (("original", "a.pt"), ("converted", "b.pt")): ("a.pt is in evaluation mode", "and b.pt in training mode"),
    (("original", "a.pt"),): ("a.pt is in evaluation mode", "and the converted network in training mode"),
}


@pytest.mark.parametrize("circumstances", CALLERS, ids=["python", "verify", "convert"])
def test_a_sentence_names_the_networks_as_its_reader_does_and_the_document_is_the_same(circumstances):
    ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    theirs = conv2attn.convert(ours).train()
    certificate = conv2attn.certify(ours, theirs, input_size=(3, 6, 7), circumstances=circumstances)
    text = " ".join(certificate.to_text().split())
    assert ", ".join(CALLERS[circumstances]) in text
    assert GRAPH_WORDS.search(text) is None
    assert ", ".join(CALLERS[()]) in [each["sentence"] for each in certificate.to_dict()["between"]]


def test_the_networks_of_a_movement_are_named_by_what_is_moved():
    conv = nn.Conv2d(1, 2, 3, padding=1)
    nn.init.constant_(conv.weight, torch.inf)
    text = conv2attn.equality.symmetric(conv, shift=True, input_size=(1, 6, 7)).to_text()
    assert "the network on the moved input is not finite" in " ".join(text.split())


def test_planted_words_are_found():
    assert GRAPH_WORDS.search("C2A409 operator 4: opaque")
    assert GRAPH_WORDS.search("aten.add at net.py:163")
    assert GRAPH_WORDS.search("add at comparison.py:163")


@pytest.mark.parametrize("form", ["text", "markdown", "html", "latex"])
def test_a_table_without_rows_has_no_head(form):
    nothing = conv2attn.certify(nn.ReLU(), nn.Sequential(nn.Flatten(0)), input_size=(3, 6, 7))
    text = getattr(nothing, f"to_{form}")()
    assert nothing.rows == ()
    assert not any(word in text for word in ("| output", "<th", "toprule", "convolution  "))
