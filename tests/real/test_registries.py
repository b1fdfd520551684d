"""Checkpoints of torchvision's, timm's and transformers' models: found or refused, converted, saved and loaded back."""

import json
from collections import OrderedDict
from functools import partial
from pathlib import Path

import pytest
import timm
import torch
import torchvision
import transformers
from commands import call
from encoders import model_of
from files.by_onnxruntime import outputs_of
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import conv2attn
from conv2attn import certify, conversion_of
from conv2attn.errors import CheckpointError, Conv2AttnWarning, UsageError
from conv2attn.files import architecture, load, read_images, save
from conv2attn.networks import provenance_of


@pytest.fixture(autouse=True)
def seeded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


def test_a_timm_checkpoint_is_found_by_keys_and_shapes_with_its_own_classes():
    model = timm.create_model("convnext_atto", num_classes=7).eval()
    torch.save({"state_dict_ema": model.state_dict(), "epoch": 1}, "net.pt")
    network = load("net.pt")
    provenance = provenance_of(network)
    assert (provenance.architecture, provenance.arguments) == ("timm:convnext_atto", {"num_classes": 7})
    assert provenance.input_size == (3, 224, 224)
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(network(image), model(image))


def test_a_converted_torchvision_network_is_saved_and_found_again():
    model = torchvision.models.mobilenet_v2(num_classes=5).eval()
    save_file(model.state_dict(), "net.safetensors")
    network = conv2attn.convert(load("net.safetensors", "torchvision:mobilenet_v2"))
    save(network, "net.attn.pt")
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(load("net.attn.pt")(image), network(image))


@pytest.mark.slow
def test_models_that_share_keys_and_shapes_are_listed_unless_the_name_of_the_file_decides(monkeypatch):
    monkeypatch.setattr(timm, "list_models", partial(timm.list_models, "*efficientnet*"))
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


@pytest.mark.parametrize(
    ("changes", "preprocessor", "code"),
    [
        ({"model_type": ["vit"]}, {}, "C2A304"),
        ({"architectures": 5}, {}, "C2A009"),
        ({"model_type": None, "architecture": "resnet18", "model_args": "x"}, {}, "C2A303"),
        ({}, {"image_mean": 5}, "C2A303"),
        ({}, {"crop_size": {"height": 32}, "size": {"shortest_edge": 0}}, "C2A303"),
    ],
)
def test_a_folder_with_a_false_configuration_is_refused_in_one_sentence(changes, preprocessor, code):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model_of("ViT", **sizes, image_size=32).save_pretrained("folder")
    config = {**json.loads(Path("folder/config.json").read_text()), **changes}
    Path("folder/config.json").write_text(json.dumps({k: value for k, value in config.items() if value is not None}))
    Path("folder/preprocessor_config.json").write_text(json.dumps(preprocessor))
    with pytest.raises((CheckpointError, UsageError), match=code):
        load("folder")


def test_a_folder_of_transformers_is_read():
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], num_labels=3)
    model = transformers.ResNetForImageClassification(config).eval()
    model.save_pretrained("folder")
    image = torch.randn(1, 3, 32, 32)
    network = load("folder")
    assert torch.equal(network(image).logits, model(image).logits)
    converted = conv2attn.convert(network)
    save(converted, "net.attn.pt")
    with pytest.warns(Conv2AttnWarning, match="C2A310 from_pretrained builds the convolutions"):
        converted.save_pretrained("again")
    again = load("net.attn.pt")
    assert (again(image).logits - model(image).logits).abs().max() < 1e-4


def test_a_twin_is_read_as_its_file_name_says():
    model = timm.create_model("resnetblur18").eval()
    torch.save(model.state_dict(), "resnetblur18.pth")
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(load("resnetblur18.pth")(image), model(image))
    torch.save(model.state_dict(), "net.pth")
    assert torch.equal(load("net.pth", "resnetblur18")(image), model(image))
    assert not torch.equal(load("net.pth", "resnet18")(image), model(image))


def test_the_name_of_a_file_is_tried_before_all_models_and_that_is_said():
    model = timm.create_model("test_convnext")
    torch.save({f"module.{key}": each for key, each in model.state_dict().items()}, "test_convnext-best.pt")
    assumption = provenance_of(load("test_convnext-best.pt")).to_text()
    assert "architecture timm:test_convnext, by the file's name (no other model was tried)" in assumption
    with pytest.raises(CheckpointError, match=r"C2A304 .*does not fit a ResNet"):
        load("test_convnext-best.pt", "test_convnext2")


@pytest.mark.slow
def test_a_timm_checkpoint_becomes_attention_in_onnx_with_a_certificate(tmp_path):
    model = timm.create_model("test_convnext2").eval()
    torch.save(model.state_dict(), "test_convnext2.pt")
    written = ["-o", "net.onnx", "--engine", "conv", "--report", "certificate.json"]
    done = call("convert", "test_convnext2.pt", *written, "--input-size", "3x32x32")
    assert done.exit_code == 0, done.output
    assert "read as timm:test_convnext2" in " ".join(done.stdout.partition("\n\n")[0].split())
    assert json.loads((tmp_path / "certificate.json").read_text())["verdict"] == "holds"
    image = torch.randn(2, 3, 32, 32)
    (output,) = outputs_of("net.onnx", image.numpy())
    right = model(image).detach()
    assert (torch.from_numpy(output) - right).abs().max() < 1e-3 * right.abs().max()


@pytest.mark.parametrize("wrapped", ["model.", ""])
def test_versions_of_modules_are_those_of_the_file(wrapped):
    """MNASNet refuses a state dict without its version."""
    model = torchvision.models.mnasnet0_5().eval()
    holder = nn.Sequential(OrderedDict(model=model)) if wrapped else model
    torch.save({"epoch": 1, "state_dict": holder.state_dict()}, "net.pt")
    save_file(holder.state_dict(), "net.safetensors")
    image = torch.randn(1, 3, 64, 64)
    for path in ("net.pt", "net.safetensors"):
        assert torch.equal(load(path, "torchvision:mnasnet0_5")(image), model(image))


def resnet_of_transformers():
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))


@pytest.mark.parametrize(
    "build",
    [torchvision.models.resnet18, partial(timm.create_model, "test_convnext", num_classes=7), resnet_of_transformers],
    ids=["tv", "timm", "transformers"],
)
def test_a_converted_network_of_a_library_needs_no_model_to_be_loaded(build):
    network, image = conv2attn.convert(build().eval()), torch.randn(1, 3, 32, 32)
    for path in ("net.pt", "net.safetensors"):
        save(network, path)
        assert torch.equal(load(path)(image)[0], network(image)[0])
    network.changed = 3
    save(network, "changed.pt")
    with pytest.raises(CheckpointError, match=r"C2A304 .*: the converted network is a t"):
        load("changed.pt")


@pytest.mark.parametrize(
    "name", ["timm:repvgg_a0", "timm:levit_128s", "torchvision:shufflenet_v2_x0_5", "torchvision:squeezenet1_1"]
)
def test_a_state_dict_of_a_library_s_network_is_that_of_its_conversion(name):
    with torch.device("meta"):
        model = architecture(name).build()
    model = model.to_empty(device="cpu")
    network = conv2attn.convert(model)
    ours, theirs = network.state_dict(), model.state_dict()
    assert {key: each.shape for key, each in ours.items()} == {key: each.shape for key, each in theirs.items()}
    assert not conversion_of(network).remaining
    network.load_state_dict(theirs)
    model.load_state_dict(ours)


@pytest.mark.parametrize(("name", "side"), [("inception_v3", 299), ("efficientnet_b3", 300), ("vgg11", 224)])
def test_the_size_of_images_is_that_of_the_published_weights(name, side):
    assert architecture(f"torchvision:{name}").describe(None) == {"input_size": (3, side, side)}


def test_a_size_that_a_registry_says_is_named_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(architecture("timm:test_resnet").build().state_dict(), "net.pt")
    network = load("net.pt", arch="timm:test_resnet")
    assert certify(network, network).outputs.images == (
        "1 random image 3x160x160 within +-1 (seed 0), the size of timm:test_resnet"
    )
    assert "timm" not in certify(network, network, input_size=(3, 32, 32)).outputs.images
    Image.new("RGB", (50, 40)).save("dot.png")
    assert read_images("dot.png", network)[1].startswith(
        "1 image of dot.png resized to 160x160, the size of timm:test_"
    )
    assert "size of" not in read_images("dot.png", network, size=(3, 32, 32))[1]


@pytest.mark.parametrize("name", ["r3d_18", "deeplabv3_resnet50"])
def test_no_size_is_taken_from_weights_that_say_none(name):
    assert architecture(f"torchvision:{name}").describe(None) == {}
