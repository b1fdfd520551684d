"""Checkpoints of torchvision's, timm's and transformers' models: found or refused, converted, saved and loaded back."""

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

import conv2attn
from conv2attn.checkpoints import load, save
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models.provenance import provenance_of


@pytest.fixture(autouse=True)
def seeded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


def test_a_timm_checkpoint_is_found_by_keys_and_shapes_with_its_own_classes():
    model = timm.create_model("convnext_atto", num_classes=7).eval()
    torch.save({"state_dict_ema": model.state_dict(), "epoch": 1}, "net.pt")
    found = load("net.pt")
    told = provenance_of(found)
    assert (told.architecture, told.arguments) == ("timm:convnext_atto", {"num_classes": 7})
    assert told.input_size == (3, 224, 224)
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(found(image), model(image))


def test_a_converted_torchvision_network_is_saved_and_found_again():
    model = torchvision.models.mobilenet_v2(num_classes=5).eval()
    save_file(model.state_dict(), "net.safetensors")
    network = conv2attn.convert(load("net.safetensors", "torchvision:mobilenet_v2"))
    save(network, "net.attn.pt")
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(load("net.attn.pt")(image), network(image))


@pytest.mark.slow
def test_models_that_share_keys_and_shapes_are_listed_unless_the_name_of_the_file_decides():
    state = timm.create_model("efficientnet_b0").state_dict()
    torch.save(state, "net.pt")
    with pytest.raises(CheckpointError, match=r"C2A304 the weights in net.pt fit \d+ models: .*timm:efficientnet_b0"):
        load("net.pt")
    torch.save(state, "efficientnet_b0.pt")
    assert provenance_of(load("efficientnet_b0.pt")).architecture == "timm:efficientnet_b0"


@pytest.mark.parametrize(
    ("arch", "near"), [("timm:convnext_tinny", "timm:convnext_tiny"), ("torchvision:resnet8", "18")]
)
def test_near_names_are_offered(arch, near):
    with pytest.raises(UsageError, match=f"Did you mean .*{near}"):
        load("net.pt", arch)


def test_a_folder_of_transformers_is_read():
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], num_labels=3)
    model = transformers.ResNetForImageClassification(config).eval()
    model.save_pretrained("folder")
    image = torch.randn(1, 3, 32, 32)
    network = load("folder")
    assert torch.equal(network(image).logits, model(image).logits)
    save(conv2attn.convert(network), "net.attn.pt")
    again = load("net.attn.pt")
    assert (again(image).logits - model(image).logits).abs().max() < 1e-4
