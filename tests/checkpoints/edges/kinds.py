"""Files of other kinds are named for what they are, and nothing is written under a name that lies."""

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn

import conv2attn
from conv2attn.checkpoints import load, save
from conv2attn.cli import main
from conv2attn.errors import CheckpointError

NETWORK = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()


KINDS = {
    "TorchScript": lambda path: torch.jit.script(NETWORK).save(str(path)),
    "web page": lambda path: path.write_text("<!DOCTYPE html><html>404</html>"),
    "Git LFS": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("named", KINDS)
def test_a_file_of_another_kind_is_named(tmp_path, named):
    KINDS[named](tmp_path / "file.pt")
    with pytest.raises(CheckpointError, match=named) as caught:
        load(tmp_path / "file.pt")
    assert not any(word in caught.value.found for word in ("compressed", "data.pkl", "was not written by torch.save"))


@pytest.mark.parametrize("suffix", [".onx", ".txt", "", ".bin"])
def test_an_unknown_suffix_is_refused(tmp_path, suffix):
    with pytest.raises(CheckpointError, match="C2A308"):
        save(conv2attn.convert(nn.Conv2d(2, 3, 3)), tmp_path / f"net{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_file_named_safetensors_is_one(tmp_path):
    from safetensors import safe_open

    layer = conv2attn.convert(nn.Conv2d(2, 3, 3))
    save(layer, tmp_path / "layer.safetensors")
    with safe_open(tmp_path / "layer.safetensors", "pt") as file:
        assert set(file.keys()) == set(layer.state_dict())
    image = torch.randn(1, 2, 6, 7)
    assert torch.equal(load(tmp_path / "layer.safetensors")(image), layer(image))


def test_a_state_dict_of_safetensors_is_read(tmp_path):
    from conv2attn.models.zoo.resnet import ResNetPlan, build

    state = build(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)).state_dict()
    save_file(state, tmp_path / "net.safetensors")
    again = load(tmp_path / "net.safetensors").state_dict()
    assert all(torch.equal(again[key], state[key]) for key in state)


def test_an_interrupted_command_exits_130(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("conv2attn.cli.reports.Showing.finish", interrupt)
    result = CliRunner().invoke(main, ["prove", "L1", "--format", "json"])
    assert (result.exit_code, result.stdout) == (130, "")
