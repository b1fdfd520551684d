"""`verify` and `recheck` from the command line: exit codes, the command that repeats, and files kept."""

import json
import os
import re
import shlex
from collections import OrderedDict

import pytest
import torch
from commands import SIZE, call, refused, two_layers
from equality import planted

import conv2attn


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network, its conversion, and conversions that are wrong: made once."""
    folder = tmp_path_factory.mktemp("made")
    changes = {
        "right.pt": planted.right,
        "wrong.pt": planted.on("layer1.0.conv1", lambda layer: planted.taps(layer)[3, 2, 1].add_(0.5)),
        "between.pt": lambda net: planted.ulp(net.bn1.weight.data, (3,)),
    }
    torch.save(two_layers(), folder / "net.pt")
    for name, change in changes.items():
        converted = conv2attn.convert(two_layers())
        change(converted)
        conv2attn.save(converted, folder / name)
    return folder


@pytest.fixture
def files(made, tmp_path, monkeypatch):
    """The same files in the current folder."""
    for path in made.iterdir():
        os.link(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_input_that_was_saved_shows_it_again_by_the_command_in_the_report(files):
    """docs/certificates.md saves an input of soft heads, and its test runs those commands."""
    refuted = call("verify", "net.pt", "wrong.pt", *SIZE, "--save-input", "shown.npz")
    assert (refuted.exit_code, refuted.stderr) == (1, "wrote shown.npz\n")
    command = next(line for line in refuted.stdout.splitlines() if line.startswith("to repeat it: "))
    assert command == "to repeat it: conv2attn verify net.pt wrong.pt --inputs shown.npz"
    again = call(*shlex.split(command)[4:])
    assert (again.exit_code, again.stdout.startswith("refuted (sampled); ")) == (1, True)
    assert call("verify", "net.pt", "right.pt", "--inputs", "shown.npz").exit_code == 0


def test_without_a_saved_input_a_refutation_repeats_itself_and_where_nothing_is_refuted_nothing_is_saved(files):
    repeated = "to repeat it: conv2attn verify net.pt wrong.pt --input-size 3x12x10"
    assert repeated in call("verify", "net.pt", "wrong.pt", *SIZE).stdout
    result = call("verify", "net.pt", "right.pt", *SIZE, "--save-input", "shown.npz")
    assert (result.exit_code, result.stderr) == (0, "shown.npz was not written: no such input was found\n")
    assert "to repeat it" not in result.stdout
    assert not (files / "shown.npz").exists()


def test_a_refuted_certificate_that_names_saved_inputs_is_right(files):
    assert call("verify", "net.pt", "wrong.pt", *SIZE, "--save-input", "in 1.npz", "--report", "c.json").exit_code == 1
    result = call("recheck", "c.json")
    assert (result.exit_code, "stored verdict: refuted, which is right" in result.stdout) == (1, True), result.stdout


def test_a_folder_that_takes_no_files_is_refused_before_any_work(files, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK)
    told = "C2A301 r.json cannot be written: its folder is not writable for this user"
    refused("verify", "net.pt", "right.pt", *SIZE, "--report", "r.json", match=told)


def test_a_report_names_the_files_and_no_first_or_second_network(files):
    claim = " ".join(call("convert", "net.pt", *SIZE).stdout.split())
    assert "the converted network is the same map as net.pt" in claim
    for second in ("right.pt", "wrong.pt", "between.pt"):
        told = call("verify", "net.pt", second, *SIZE, "-v").stdout
        assert not re.search("(first|second) network", told)
        assert second != "right.pt" or "right.pt is the same map as net.pt in the forward pass" in " ".join(
            told.split()
        )


def test_the_conversion_of_a_network_of_ones_own_is_verified_with_the_code_of_its_original(tmp_path, monkeypatch):
    """Once `verify` asked for --arch, which a pickled network does not have."""
    monkeypatch.chdir(tmp_path)
    layers = OrderedDict(stem=torch.nn.Conv2d(3, 4, 3), body=torch.nn.Conv2d(4, 3, 3))
    torch.save(torch.nn.Sequential(layers), "net.pt")
    assert call("convert", "net.pt", *SIZE).exit_code == 0
    result = call("verify", "net.pt", "net.attn.pt", *SIZE, "--report", "certificate.json")
    assert result.exit_code == 0, result.stderr
    told = "and net.attn.pt is read as torch.nn.modules.container.Sequential (its code is that of net.pt)"
    assert told in " ".join(result.stdout.split())
    assert call("recheck", "certificate.json").exit_code == 0
    torch.save(torch.nn.ModuleList([torch.nn.Conv2d(3, 4, 3)]), "other.pt")
    refused("verify", "other.pt", "net.attn.pt", *SIZE, match="C2A304 net.attn.pt: the converted network is a torch")


@pytest.mark.parametrize(
    ("padding", "weight", "asked", "code"),
    [
        ("circular", 1.0, ["--shift", "1,0"], 0),
        ("zeros", 1.0, ["--flip"], 0),
        ("zeros", 1.0, ["--shift", "1,0"], 1),
        ("zeros", 2.0, ["--flip"], 1),
        ("zeros", 1.0, ["--permute"], 1),
    ],
)
def test_symmetric_asks_whether_a_network_commutes_with_a_movement(tmp_path, padding, weight, asked, code):
    conv = torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode=padding)
    conv.weight.data.copy_(torch.tensor([1.0, 2.0, weight]))
    torch.save(conv, tmp_path / "net.pt")
    result = call("symmetric", tmp_path / "net.pt", *asked, "--input-size", "1x6x7", "--format", "json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["circumstances"]["the first"].startswith(f"moves the input ({asked[0][2:]}")
