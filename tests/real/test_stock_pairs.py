"""The verdicts of docs/certificates.md on stock networks, in small: conversions, and one network of two libraries."""

import pytest
import timm
import torch
import torchvision
import transformers
from encoders import model_of
from torch import Tensor, nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
KINDS = {
    "ViT": {"intermediate_size": 64},
    "DeiT": {"intermediate_size": 64},
    "Dinov2": {"mlp_ratio": 2},
}
STEM = {"resnet.embedder.embedder.convolution": "conv1", "resnet.embedder.embedder.normalization": "bn1"}


class Part(nn.Module):
    """The tensor of this name in what a network of transformers returns."""

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network, self.name = network, name

    def forward(self, image: Tensor) -> Tensor:
        return self.network(image)[self.name]


def transformer(kind: str, attention: str) -> nn.Module:
    """A small vision transformer, seeded."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model_of(kind, **SMALL, **KINDS[kind], attn_implementation=attention).eval()


def resnet() -> nn.Module:
    """torchvision's residual network with one block a stage, seeded, with statistics that are not those of a draw."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    return network.eval()


def transformers_resnet(network: nn.Module) -> nn.Module:
    """transformers' residual network with the weights of torchvision's."""
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[1] * 4, layer_type="basic", num_labels=5
    )
    other = transformers.ResNetForImageClassification(config)
    names = {**STEM, "classifier.1": "fc"}
    for stage in range(4):
        block, ours = f"resnet.encoder.stages.{stage}.layers.0", f"layer{stage + 1}.0"
        for number in (0, 1):
            names[f"{block}.layer.{number}.convolution"] = f"{ours}.conv{number + 1}"
            names[f"{block}.layer.{number}.normalization"] = f"{ours}.bn{number + 1}"
        if stage:
            names[f"{block}.shortcut.convolution"] = f"{ours}.downsample.0"
            names[f"{block}.shortcut.normalization"] = f"{ours}.downsample.1"
    for theirs, ours in names.items():
        other.get_submodule(theirs).load_state_dict(network.get_submodule(ours).state_dict())
    return Part(other, "logits").eval()


@pytest.mark.rotated
@pytest.mark.parametrize("kind", KINDS)
def test_a_transformer_holds_against_its_conversion_and_refutes_a_planted_bias(kind: str) -> None:
    network = transformer(kind, "sdpa")
    converted = conv2attn.convert(network)
    found = certify(network, converted, input_size=(3, 32, 32))
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.PROVED), found.to_text()
    with torch.no_grad():
        next(p for name, p in network.named_parameters() if name.endswith("projection.bias"))[0] += 1e-3
    assert certify(network, converted, input_size=(3, 32, 32)).verdict is Verdict.REFUTED


@pytest.mark.rotated
@pytest.mark.parametrize("kind", KINDS)
def test_fused_and_written_attention_are_one_formula_unless_a_weight_differs(kind: str) -> None:
    first, second = (Part(transformer(kind, each), "last_hidden_state").eval() for each in ("sdpa", "eager"))
    found = certify(first, second, input_size=(3, 32, 32))
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), found.to_text()
    with torch.no_grad():
        next(p for name, p in second.named_parameters() if "query.weight" in name or "q_proj.weight" in name)[0, 0] += (
            0.5
        )
    assert certify(first, second, input_size=(3, 32, 32)).verdict is not Verdict.HOLDS


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_residual_networks_of_two_libraries_are_one_formula_unless_a_statistic_differs(library: str) -> None:
    first = resnet()
    if library == "timm":
        second = timm.models.resnet.ResNet(timm.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5).eval()
        second.load_state_dict(first.state_dict())
    else:
        second = transformers_resnet(first)
    found = certify(first, second, input_size=(3, 32, 32))
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), found.to_text()
    with torch.no_grad():
        next(each for name, each in second.named_buffers() if name.endswith("running_mean"))[0] -= 3
    planted = certify(first, second, input_size=(3, 32, 32))
    assert planted.verdict is not Verdict.HOLDS
    assert "times as much as rounding" in planted.to_text()
