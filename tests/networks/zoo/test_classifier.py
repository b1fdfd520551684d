"""The paper's attention classifier, and positions that are learned."""

import pytest
import torch

import conv2attn
from conv2attn.layers.attention import ScoreTerms
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan

SIZES = {"side": 12, "patch": 4, "channels": 1, "width": 16, "heads": 4, "layers": 2, "hidden": 24, "positions": 6}
KINDS = [
    *((encoding, "vr") for encoding in ("quadratic", "generalised", "learned", "sinusoidal")),
    *(("learned", terms) for terms in ("qr", "qk+qr", "qk+vr", "qk+qr+uk+vr", "qk")),
    *((encoding, "qk+qr+uk+vr") for encoding in ("quadratic", "generalised", "sinusoidal")),
]


def network(encoding, terms, axes=2):
    return AttentionClassifier(ClassifierPlan(encoding, ScoreTerms.of(terms), axes=axes, **SIZES)).eval()


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize(("encoding", "terms"), KINDS)
def test_saved_and_loaded_bit_for_bit(tmp_path, encoding, terms, axes):
    first = network(encoding, terms, axes)
    conv2attn.save(first, tmp_path / "net.pt")
    second = conv2attn.load(tmp_path / "net.pt")
    image = torch.randn(3, *first.plan.input_size)
    assert second.plan == first.plan
    assert torch.equal(first(image), second(image))


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize(("encoding", "terms"), KINDS)
def test_every_parameter_learns(encoding, terms, axes):
    net = network(encoding, terms, axes)
    net(torch.randn(2, *net.plan.input_size)).square().sum().backward()
    still = [name for name, parameter in net.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert [name for name in still if "key_bias" not in name] == []
