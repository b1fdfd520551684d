"""Programs of torch.export and ONNX are read for what they compute; texts in them are never evaluated."""

import json
import os
import re
import warnings
import zipfile
from pathlib import Path

import onnx
import pytest
import torch
from commands import call
from torch import nn
from torch.export import Dim

import conv2attn
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files import load, save, sha256
from conv2attn.networks.provenance import input_size_of, published_size


class Net(nn.Module):
    """Operators of several kinds: with lists, several outputs, sizes, constants and types."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.register_buffer("shift", torch.tensor([1.0, 2.0]))

    def forward(self, image):
        image = self.norm(self.conv(image)).relu()
        first, second = image.chunk(2, 1)
        image = torch.cat([second, first], 1).flatten(2)[:, :, ::2].to(torch.float32)
        image = image.reshape(image.shape[0], 4, -1).mean(2) / (image.shape[2] + 1)
        return self.fc(image) + self.shift * torch.tensor([1.0, 3.0])


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def exported(net, tmp_path_factory):
    """The path of the network as a program with free sides."""
    free, path = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, tmp_path_factory.mktemp("pt2") / "net.pt2"
    with warnings.catch_warnings(action="ignore"):
        torch.export.save(torch.export.export(net, (torch.zeros(2, 3, 6, 8),), dynamic_shapes=(free,)), path)
    path.chmod(0o444)
    return path


def repacked(change, source, name="bad.pt2"):
    """The archive with the text of its program changed, checksums right again."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(name, "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            new.writestr(entry, change(data.decode()).encode() if entry.endswith("model.json") else data)
    return name


@pytest.mark.filterwarnings("ignore")
def test_a_program_computes_what_torch_makes_of_it_at_all_sizes(exported):
    loaded, theirs = load(exported), torch.export.load(exported).module()
    for shape in ((2, 3, 6, 8), (1, 3, 9, 4), (4, 3, 7, 12)):
        image = torch.randn(shape)
        assert torch.equal(loaded(image), theirs(image))
    assert {name: tuple(each.shape) for name, each in loaded.named_parameters()}["conv.weight"] == (4, 3, 3, 3)


@pytest.mark.filterwarnings("ignore")
def test_an_image_out_of_range_is_refused_with_the_ranges():
    free = ({0: Dim("batch", min=3, max=16), 2: Dim.AUTO, 3: 2 * Dim("half", max=4)},)
    program = torch.export.export(nn.Conv2d(3, 4, 5), (torch.zeros(3, 3, 8, 6),), dynamic_shapes=free)
    torch.export.save(program, "net.pt2")
    loaded = load("net.pt2")
    assert loaded(torch.zeros(16, 3, 5, 6)).shape == (16, 4, 1, 2)
    for shape in ((2, 3, 8, 6), (17, 3, 8, 6), (3, 2, 8, 6), (3, 3, 4, 6), (3, 8, 6)):
        with pytest.raises(UsageError, match=r"C2A120 the program takes images \(3 to 16, 3, at least 5, any\), not"):
            loaded(torch.zeros(shape))


@pytest.fixture(scope="module", params=["net.pt2", "net.onnx"])
def program(request, net, tmp_path_factory):
    """The path of the exported program of the converted network."""
    path = tmp_path_factory.mktemp("programs") / request.param
    save(conv2attn.convert(net), path, example_input=(3, 6, 8), engine="conv")
    return str(path)


@pytest.mark.filterwarnings("ignore")
def test_verify_measures_a_network_against_its_program(net, program):
    torch.save(net, "net.pt")
    image = torch.randn(2, 3, 6, 8)
    assert (load(program)(image) - net(image)).abs().max() < 1e-5
    options = ["net.pt", program, "--allow", f"{Net.__module__}.Net", "--input-size", "3x6x8", "--format", "json"]
    done = call("verify", *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["strength"] in ("identified", "rounded")
    assert json.loads(done.stdout)["outputs"]["max_difference"] < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_inspect_counts_operators_and_lists_tensors(program):
    report = json.loads(call("inspect", program, "--format", "json").stdout)
    assert "operations: " in report["findings"][0]
    assert "architecture: the program itself" in call("inspect", program).stdout
    assert report["kind"] in ("ONNX model", "program that torch.export saved (.pt2)")
    assert [4, 3] in [shape[:2] for _, shape, _ in report["tensors"]]


HOSTILE = {
    "a function of the system": ("torch.ops.aten.relu.default", "torch.os.system"),
    "an import": ("torch.ops.aten.relu.default", "torch.ops.aten.__class__.mro"),
    "a file": ("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default"),
    "an operator that is not there": ("torch.ops.aten.relu.default", "torch.ops.aten.relu.nothing"),
    "another library": ("torch.ops.aten.relu.default", "torch.ops.prims.relu.default"),
    "a name that is code": ('"conv.weight"', '"conv.__class__()"'),
    "a value used before it is there": ('"input_specs"', '"specs"'),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_program_that_names_anything_else_is_refused(exported, name):
    bad = repacked(lambda text: text.replace(*HOSTILE[name]), exported)
    with pytest.raises(CheckpointError, match=r"C2A303 .*its program is incomplete"):
        load(bad)


@pytest.mark.filterwarnings("ignore")
def test_texts_that_torch_would_evaluate_are_not(exported, folder):
    planted = folder / "planted"

    def change(text):
        program_data = json.loads(text)
        code = f"__import__('os').mkdir({str(planted)!r})"
        program_data["guards_code"] = [code]
        program_data["range_constraints"] = {code: {"min_val": 0, "max_val": None}}
        for value in program_data["graph_module"]["graph"]["sym_int_values"].values():
            value["as_expr"]["expr_str"] = code
        return json.dumps(program_data)

    load(repacked(change, exported))(torch.zeros(1, 3, 4, 4))
    assert not planted.exists()


@pytest.mark.filterwarnings("ignore")
def test_weights_that_claim_more_than_is_stored_are_refused(exported):
    with zipfile.ZipFile(exported) as old, zipfile.ZipFile("bad.pt2", "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            new.writestr(
                entry, data.replace(b'{"as_int": 27}', b'{"as_int": 99}') if "weights_config" in entry else data
            )
    with pytest.raises(CheckpointError, match="claims more elements than are stored"):
        load("bad.pt2")


RELU = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 3, 4, 4] x) => (float[n, 3, 4, 4] y) { y = Relu (x) }"""


def onnx_model(change):
    model = onnx.parser.parse_model(RELU)
    change(model)
    onnx.save(model, "bad.onnx")


@pytest.fixture(scope="module")
def in_onnx(tmp_path_factory):
    """A map, and the path of the ONNX file that it is."""
    network, path = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), tmp_path_factory.mktemp("onnx") / "whole.onnx"
    save(network, path, example_input=(3, 9, 8))
    path.chmod(0o444)
    return network, path


def with_weights_beside(name, whole):
    """An ONNX file as torch writes large ones."""
    onnx.save(onnx.load(whole), name, save_as_external_data=True, location=f"{name}.data", size_threshold=0)


def test_an_onnx_model_with_weights_in_a_file_beside_it_is_read(in_onnx):
    (network, whole), image = in_onnx, torch.randn(1, 3, 9, 8)
    with_weights_beside("net.onnx", whole)
    assert torch.allclose(load("net.onnx")(image), network(image), atol=1e-5)
    assert torch.equal(load("net.onnx")(image), load(whole)(image))
    before = sha256(Path("net.onnx"))
    content = bytearray(Path("net.onnx.data").read_bytes())
    content[0] ^= 1
    Path("net.onnx.data").write_bytes(content)
    assert sha256(Path("net.onnx")) != before


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("location", "/etc/passwd", "not a file in its folder"),
        ("location", "../net.onnx.data", "not a file in its folder"),
        ("location", "link.data", "not a file in its folder"),
        ("location", "", "not a file in its folder"),
        ("location", "missing.data", "does not exist"),
        ("location", "pipe.data", "not a regular file"),
        ("offset", "99999", "which has"),
        ("offset", "-4", "which has"),
        ("length", "99999", "which has"),
    ],
)
def test_weights_elsewhere_than_beside_an_onnx_model_are_refused(in_onnx, key, value, match):
    with_weights_beside("net.onnx", in_onnx[1])
    Path("link.data").symlink_to("net.onnx.data")
    os.mkfifo("pipe.data")
    model = onnx.load("net.onnx", load_external_data=False)
    entry = next(each for each in model.graph.initializer[0].external_data if each.key == key)
    entry.value = value
    Path("net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=match):
        load("net.onnx")


def test_an_onnx_model_refuses_images_of_another_size_in_a_sentence(in_onnx):
    with pytest.raises(UsageError, match="C2A120 the ONNX model does not take input 1x4x9x8") as refusal:
        load(in_onnx[1])(torch.zeros(1, 4, 9, 8))
    assert re.search(r" of \?x3x\?x\?\.$", refusal.value.remedy)


def test_an_onnx_model_of_one_size_tells_it():
    onnx_model(lambda model: None)
    network = load("bad.onnx")
    assert (input_size_of(network), published_size(network)) == ((3, 4, 4), ", the size of the ONNX model")
    onnx_model(lambda model: model.graph.input[0].type.tensor_type.shape.dim[2].ClearField("dim_value"))
    assert input_size_of(load("bad.onnx")) is None


def test_a_torn_onnx_file_is_damaged():
    onnx_model(lambda model: None)
    assert load("bad.onnx")(torch.tensor([-1.0, 1.0]).expand(1, 3, 4, 2).repeat(1, 1, 1, 2)).min() == 0
    Path("torn.onnx").write_bytes(Path("bad.onnx").read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"C2A30[23]"):
        load("torn.onnx")
