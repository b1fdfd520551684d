"""From a CNN to a hybrid by one command, and the rates of its parts.

One command in its several uses. Wrong calls are rows of tests/wrong_calls.py.
"""

import json

import pytest
import torch
from commands import call, refused
from experiments.cases import quiet, small
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.errors import UsageError
from conv2attn.experiments import hybrids
from conv2attn.experiments.data import read_images_of
from conv2attn.experiments.training import train
from conv2attn.experiments.training.recipe_networks import classifies, hybrid_network
from conv2attn.experiments.transform import Transformation, contents
from conv2attn.models import attention_layers

RECIPE = ["--data", "digits", "--train-images", "40", "--batch", "10", "--epochs", "2", "--test-images", "20"]


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    """The file of a small CNN that was trained for an epoch."""
    return train(small("resnet", width=4, epochs=1), tmp_path_factory.mktemp("cnn") / "run", report=quiet).network


def test_one_command_goes_on_from_a_cnn(cnn, tmp_path):
    output = tmp_path / "hybrid.pt"
    arguments = ["transform", cnn, "-o", output, *RECIPE]
    result = call(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [name for name, _ in report["accuracies"]] == ["the CNN", "transformed, before training", "trained on"]
    assert {layer["layer"].split(".")[0] for layer in report["layers"]} == {"layer4"}
    assert all(layer["moved"][0] > 0 and layer["content"] > 0 for layer in report["layers"])
    network = conv2attn.load(output)
    assert set(attention_layers(network)) == {layer["layer"] for layer in report["layers"]}
    assert network(torch.randn(1, 1, 8, 8)).shape == (1, 10)
    before = output.read_bytes()
    refused(*arguments, match="C2A305")
    assert output.read_bytes() == before
    assert call("train", "--resume", tmp_path / "hybrid", "--epochs", "3").exit_code == 0


def test_an_interrupted_report_has_the_exit_code_of_the_command():
    codes = {finished: Transformation((), (), finished).to_dict()["exit_code"] for finished in (True, False)}
    assert codes == {True: 0, False: 130}


def test_float64_trains_and_evaluates_in_float64(cnn, tmp_path):
    output = tmp_path / "hybrid.pt"
    result = call("transform", cnn, "-o", output, *RECIPE, "--epochs", "1", "--precision", "float64")
    assert result.exit_code == 0, result.output
    assert {each.dtype for each in conv2attn.load(output).parameters()} == {torch.float64}


def test_layers_are_chosen_as_in_other_commands():
    with main.commands["transform"].make_context(
        "transform", ["cnn.pt", "-o", "h.pt", "--only", "layer3.*", "--only=layer4.*", "--skip=layer4.1.*"]
    ) as context:
        assert context.params["only"] == ("layer3.*", "layer4.*")
        assert context.params["skip"] == ("layer4.1.*",)
    with main.commands["transform"].make_context("transform", ["cnn.pt", "-o", "h.pt"]) as context:
        assert (context.params["only"], context.params["skip"]) == (("layer4.*",), ())
    with main.commands["train"].make_context("train", ["resnet"]) as context:
        assert (context.params["only"], context.params["skip"]) == ((), ())


def test_a_network_of_any_architecture_is_started_from(cnn, tmp_path, monkeypatch):
    """A state dict of the user's own network was refused, since nothing said how to build it."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def small(classes):\n"
        "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    torch.save(network.state_dict(), "mine.pt")
    arch = ["--arch", "mine.py:small", "--arch-args", '{"classes": 10}']
    result = call("transform", "mine.pt", "-o", "h.pt", *RECIPE, *arch, "--only", "0")
    assert result.exit_code == 0, result.output
    assert set(attention_layers(conv2attn.load("h.pt", arch=arch[1], arch_args={"classes": 10}))) == {"0"}
    trained = ["train", "resnet", "--start", "mine.pt", "-o", "run", *RECIPE, *arch]
    refused(*trained, "--skip", "none*", match="C2A008")
    assert call(*trained, "--only", "0").exit_code == 0
    refused("train", "resnet", *arch, *RECIPE, match="C2A004 an architecture is named, and no file to start from")


def test_a_hybrid_begins_as_the_softened_cnn_with_silent_content(cnn):
    original = conv2attn.load(cnn)
    network = hybrid_network(original, ["layer4.*"], 128.0).eval()
    images = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(network(images), original(images), rtol=1e-4, atol=1e-5)
    assert set(contents(network, images).values()) == {0.0}
    layer = attention_layers(network)["layer4.0.conv1"]
    layer.key.data.normal_()
    key = layer.key.detach().clone()
    assert contents(network, images)["layer4.0.conv1"] > 0.01
    assert torch.equal(layer.key, key)
    with pytest.raises(UsageError, match="layer9"):
        hybrid_network(original, ["layer9.*"], 2.0)


@pytest.mark.parametrize("still", ["position_rate", "content_rate"])
def test_parts_have_rates_of_their_own(cnn, tmp_path, still):
    recipe = small(
        "resnet",
        start=str(cnn),
        only=("layer4.*",),
        optimiser="adamw",
        weight_decay=0.0,
        learning_rate=1e-2,
        **{still: 0},
    )
    first = attention_layers(hybrid_network(conv2attn.load(cnn), ["layer4.*"], 2.0))
    last = attention_layers(conv2attn.load(train(recipe, tmp_path / "run", report=quiet).network))
    for name, layer in last.items():
        moved = not torch.equal(layer.encoding.center, first[name].encoding.center)
        opened = bool(layer.key.any())
        assert (moved, opened) == (still != "position_rate", still != "content_rate")


def test_a_network_fits_if_it_makes_as_many_logits_as_there_are_classes():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    assert classifies(network, (1, 8, 8), 10)
    assert network.training
    for shape, classes in (((1, 8, 8), 3), ((3, 8, 8), 10), ((1, 2, 2), 10)):
        assert not classifies(network, shape, classes)


def test_changed_images_are_shifted_noisy_and_occluded():
    images = read_images_of("fashion-mnist").first(100, 40)
    clean, shifted, noisy, occluded = hybrids.test_variants(images).values()
    black = clean.min()
    ways = [(2, 0), (-2, 0), (0, 2), (0, -2)]
    for before, after in zip(clean, shifted, strict=True):
        moved = [before.roll(way, (1, 2)) for way in ways]
        assert any(torch.equal(after[:, 2:-2, 2:-2], each[:, 2:-2, 2:-2]) for each in moved)
    hidden = (occluded != clean).flatten(1).sum(1)
    assert hidden.max() <= 64
    assert (occluded[occluded != clean] == black).all()
    assert 0.02 < (noisy - clean).std() < 0.5


def test_rows_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    done = []

    def row(arm, seed, folder, report):
        done.append((arm, seed))
        return {"arm": arm, "seed": seed, **dict.fromkeys(hybrids.TESTS, 0.5 + 0.1 * seed), "seconds": 1}

    monkeypatch.setattr(hybrids, "hybrid_run", row)
    path = tmp_path / "rows.csv"
    path.write_text(",".join(hybrids.HYBRID_COLUMNS) + "\ncnn,0,0.5,0.5,0.5,0.5,,,,,1\n")
    report = hybrids.complete_hybrids(path, tmp_path, quiet)
    assert len(done) == 11
    assert ("cnn", 0) not in done
    assert report.summary == "12 of 12 runs are done; accuracies in per cent"
    assert "60.00 +- 5.77 (0.00 +- 0.00)" in report.to_text()
    hybrids.complete_hybrids(path, tmp_path, quiet)
    assert len(done) == 11
