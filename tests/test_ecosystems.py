"""Files and folders of other libraries are named, with what to do next."""

import pytest

from conv2attn import load
from conv2attn.ecosystems import FOLDERS, unknown_folder, unknown_path
from conv2attn.errors import CheckpointError
from conv2attn.examples import example_folder


@pytest.mark.parametrize("line", FOLDERS.splitlines(), ids=lambda line: line.split(" | ")[0])
def test_a_folder_is_named_by_its_marker(line, tmp_path):
    marker, name, following = line.split(" | ")
    (tmp_path / marker.replace("*", "0")).touch()
    with pytest.raises(CheckpointError) as refusal:
        load(tmp_path)
    assert f"{tmp_path} is {name}" in str(refusal.value)
    assert following.replace("PATH", str(tmp_path)) in refusal.value.remedy


def test_the_first_marker_decides_and_no_marker_is_said(tmp_path):
    assert "without a config.json" in str(unknown_folder(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert "a folder of weights" in str(unknown_folder(tmp_path))
    (tmp_path / "random_states_0.pkl").touch()
    assert "accelerate" in str(unknown_folder(tmp_path))


def test_names_of_hubs_are_told_from_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert "Nothing is downloaded" in str(unknown_path("openai/whisper-tiny"))
    assert "--arch timm:vit_tiny" in unknown_path("timm:vit_tiny").remedy
    for path in ("runs/first", "weights.pt", "a/b/c", "C:weights", "org/model.pt", ""):
        assert unknown_path(path).remedy == "Check the path."


def test_an_example_that_is_not_in_this_folder_is_named_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("examples/resnet18.pt", "resnet18.pt"):
        assert unknown_path(path).remedy == f"The example of that name is {example_folder() / 'resnet18.pt'}."
    assert unknown_path("runs/resnet18.pt").remedy == "Check the path."
