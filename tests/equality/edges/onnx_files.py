"""An ONNX file is a second network like any other: its right export holds, another network's is refuted with the node.

Issues of onnxruntime (#26504, #4589, #3873), onnxsim (#50, #79) and onnx (#3418) ask which of two files is wrong, and
where.
"""

import copy
import logging

import onnx
import pytest
import torch
from equality.pairs import Net
from onnx import helper
from torch import nn

import conv2attn
from conv2attn.verdicts import Strength, Verdict

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Files are written where each test alone is."""
    monkeypatch.chdir(tmp_path)


class Images(nn.Module):
    """A convolution, a norm that the exporter folds into it, a resize, and a mean."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

    def forward(self, image):
        small = torch.relu(self.norm(self.first(image)))
        return self.last(nn.functional.interpolate(small, scale_factor=2)).mean((2, 3))


class Recurrent(nn.Module):
    """A bidirectional LSTM over a sequence."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(3, 4, bidirectional=True, batch_first=True), nn.Linear(8, 2)

    def forward(self, tokens):
        return self.last(self.layer(tokens)[0])


NETWORKS = {
    "images": (Images, (1, 3, 12, 12), "last"),
    "encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (2, 5, 8), "0.linear2"),
    "recurrent": (Recurrent, (2, 5, 3), "last"),
}


def exported(network, example, dynamo, name="net.onnx", **options):
    logging.getLogger("torch.onnx").setLevel(logging.CRITICAL)
    options |= {"verbose": False} if dynamo else {}
    torch.onnx.export(network, (example,), name, dynamo=dynamo, **options)
    return conv2attn.load(name)


@pytest.mark.rotated
@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_right_export_holds_and_another_is_refuted_with_its_node(name, dynamo):
    make, size, changed = NETWORKS[name]
    network, example = make().eval(), torch.randn(size)
    file = exported(network, example, dynamo)
    certificate = conv2attn.certify(network, file, images=example)
    assert certificate.verdict is Verdict.HOLDS, certificate.to_text()
    assert certificate.strength in (Strength.IDENTIFIED, Strength.ROUNDED)
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.get_submodule(changed).weight[0, 0] += 0.2
    certificate = conv2attn.certify(other, file, images=example)
    assert certificate.verdict is Verdict.REFUTED
    assert "(OnnxNode)" in certificate.place.second
    assert ".py" not in certificate.place.second  # a node has a name and no line
    assert changed in certificate.place.first


def test_two_files_of_one_network_are_compared():
    network, example = Images().eval(), torch.randn(1, 3, 12, 12)
    first, second = (exported(network, example, dynamo, f"{dynamo}.onnx") for dynamo in (False, True))
    assert conv2attn.certify(first, second, images=example).verdict is Verdict.HOLDS


def test_an_export_in_training_mode_is_refuted():
    """Its norms compute the statistics of each batch."""
    network, example = Images(), torch.randn(1, 3, 12, 12)
    file = exported(network, example, False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    certificate = conv2attn.certify(network.eval(), file, images=example)
    assert certificate.verdict is Verdict.REFUTED
    assert "batch_norm" in certificate.place.in_words()


def determinants(scale):
    """A model with an operator that no row honours."""
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [scale])
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Det", ["y"], ["z"])]
    x, z = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 3, *s]) for n, s in (("x", [4, 4]), ("z", []))
    )
    graph = helper.make_graph(nodes, "g", [x], [z], [weight])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)]), "det.onnx")
    return conv2attn.load("det.onnx")


def test_a_file_with_an_unknown_operator_is_judged_by_plain_calls():
    images, scale = torch.randn(2, 3, 4, 4), nn.Parameter(torch.tensor([2.0]))
    network = Net(lambda net, image: torch.linalg.det(image * net.scale), scale=scale).eval()
    certificate = conv2attn.certify(network, determinants(2.5), images=images)
    assert certificate.verdict is Verdict.REFUTED
    assert "the operator Det is not read" in certificate.to_text(verbose=True)
    certificate = conv2attn.certify(network, determinants(2.0), images=images)
    assert certificate.verdict is Verdict.UNDECIDED
    words = certificate.to_text(verbose=True)
    assert "nothing was checked" not in words
    assert "rounding explains" in words
    assert "onnxruntime's" in words
