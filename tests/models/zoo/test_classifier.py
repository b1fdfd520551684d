"""The paper's attention classifier, and positions that are learned."""

import pytest
import torch

import conv2attn
from conv2attn.attention import LearnedEncoding, MultiHeadSelfAttention
from conv2attn.errors import GeometryError
from conv2attn.models.zoo.classifier import AttentionClassifier, ClassifierPlan

SIZES = {"side": 12, "patch": 4, "channels": 1, "width": 16, "heads": 4, "layers": 2, "hidden": 24, "positions": 6}
KINDS = [("quadratic", False), ("generalised", False), ("learned", False), ("learned", True), ("sinusoidal", True)]


def network(encoding, content):
    return AttentionClassifier(ClassifierPlan(encoding, content, **SIZES)).eval()


@pytest.mark.parametrize(("encoding", "content"), KINDS)
def test_saved_and_loaded_bit_for_bit(tmp_path, encoding, content):
    first = network(encoding, content)
    conv2attn.save(first, tmp_path / "net.pt")
    second = conv2attn.load(tmp_path / "net.pt")
    image = torch.randn(3, 1, 12, 12)
    assert second.plan == first.plan
    assert torch.equal(first(image), second(image))


@pytest.mark.parametrize(("encoding", "content"), KINDS)
def test_every_parameter_learns(encoding, content):
    net = network(encoding, content)
    net(torch.randn(2, 1, 12, 12)).square().sum().backward()
    still = [name for name, parameter in net.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert [name for name in still if "key_bias" not in name] == []


def test_the_papers_quadratic_network_has_the_paper_s_size():
    """12,086,844 parameters (Table 1, counted): centres and one sharpness a head, value and output merged."""
    with torch.device("meta"):
        net = AttentionClassifier(ClassifierPlan())
    assert sum(parameter.numel() for parameter in net.parameters()) == 12_086_844


def test_learned_scores_are_one_vector_a_row_and_one_a_column():
    encoding = LearnedEncoding(heads=2, reach=(2, 3), width=4)
    layer = MultiHeadSelfAttention(3, 5, encoding)
    attention = layer.attention(sides=(3, 4))[0]
    for head in range(2):
        for query in range(12):
            scores = []
            for key in range(12):
                down, right = key // 4 - query // 4, key % 4 - query % 4
                row, column = encoding.tables[0][down + 2], encoding.tables[1][right + 3]
                scores.append(encoding.bias[head, 0] @ row + encoding.bias[head, 1] @ column)
            torch.testing.assert_close(attention[head, query], torch.softmax(torch.stack(scores), 0))


def test_positions_beyond_the_table_are_refused():
    layer = MultiHeadSelfAttention(3, 3, LearnedEncoding(2, (2, 2), 4))
    with pytest.raises(GeometryError, match="positions are learned up to 2"):
        layer(torch.randn(1, 3, 4, 3))


@pytest.mark.parametrize("sides", [(3, 4), (4, 2)])
def test_learned_positions_are_separable(sides):
    layer = MultiHeadSelfAttention(3, 5, LearnedEncoding(3, (3, 3), 4)).double()
    image = torch.randn(2, 3, *sides, dtype=torch.float64)
    results = []
    for engine in ("dense", "separable"):
        conv2attn.set_engine(layer, engine)
        layer.zero_grad()
        layer(image).square().sum().backward()
        results.append([layer(image), *(parameter.grad.clone() for parameter in layer.parameters())])
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    assert layer.why_engine(image)["separable"] == "exact"
