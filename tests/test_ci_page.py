"""The commands and the test of docs/ci.md run as they stand there, and end with the exit codes of its table."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call
from torch import nn

import conv2attn

onnx = pytest.importorskip("onnx")
PAGE = (Path(__file__).parent.parent / "docs" / "ci.md").read_text()
(STEP,) = re.findall(r"- run: conv2attn (.*)", PAGE)
(RECHECK,) = re.findall(r"`conv2attn (recheck [^`]+)`", PAGE)
SIDE = 224
FACTORY = "from torch import nn\n\n\ndef factory():\n    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU())\n"


def write_onnx(path, convolution, scale=1.0):
    """A file of a convolution and a ReLU, its weight times `scale`."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight, bias = (each.detach().numpy() for each in (scale * convolution.weight, convolution.bias))
    stored = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(each), name) for each, name in ((weight, "w"), (bias, "b"))
    ]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "0"), helper.make_node("Relu", ["c"], ["y"], "1")]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, sides)]
        for name, sides in (("x", ["n", 3, SIDE, SIDE]), ("y", ["n", 2, SIDE - 2, SIDE - 2]))
    )
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the page names, which is the current one."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("package", "package.module"):  # another test's, where it has run in this process
        monkeypatch.delitem(sys.modules, name, raising=False)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()).eval()
    torch.save(network.state_dict(), "model.pt")
    write_onnx("model.onnx", network[0])
    yield network
    for name in ("package", "package.module"):
        sys.modules.pop(name, None)


def test_the_step_passes_what_is_the_same_and_its_certificate_is_checked_again(folder):
    passed = call(*shlex.split(STEP))
    assert passed.exit_code == 0, passed.output
    assert passed.stdout.startswith("holds (")
    assert re.search(r"(?m)^::notice title=conv2attn holds::", passed.stdout)
    again = call(*shlex.split(RECHECK))
    assert again.exit_code == 0, again.output
    write_onnx("model.onnx", folder[0], scale=1.01)
    assert call(*shlex.split(RECHECK)).exit_code == 1


def test_the_step_fails_with_the_codes_of_the_table(folder):
    codes = dict(re.findall(r"(?m)^\| (\d) \| (\w+)", PAGE))
    assert codes == {"0": "passes", "1": "fails", "2": "fails", "3": "fails"}
    write_onnx("model.onnx", folder[0], scale=1.01)
    parted = call(*shlex.split(STEP))
    assert parted.exit_code == 1
    assert re.search(r"(?m)^::error title=conv2attn refuted::", parted.stdout)
    Path("model.onnx").unlink()
    assert call(*shlex.split(STEP), "--force").exit_code == 2


def test_the_test_of_the_page_passes_what_is_the_same_and_fails_at_the_place(folder):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    port = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()).eval()
    port.load_state_dict(folder.state_dict())
    names = {"original": folder, "port": port}
    exec(code, names)
    names["test_the_port_is_the_same_network"]()
    with torch.no_grad():
        port[0].weight *= 1.01
    with pytest.raises(AssertionError, match="they differ at"):
        names["test_the_port_is_the_same_network"]()
    assert conv2attn.certify(folder, port, torch.randn(1, 3, 8, 8)).exit_code == 1
