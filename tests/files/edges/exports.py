"""Exported programs compute the network at other sizes, without this project, and one that does not is not kept."""

import numpy as np
import onnx
import pytest
import torch
from changes import changed
from files.by_onnxruntime import outputs_of
from forks import run_apart
from torch import nn

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.files import exporting, save

ALONE = """
import sys
sys.modules["conv2attn"] = None
import torch
stored = torch.load("FOLDER/case.pt")
program = torch.export.load("FOLDER/net.pt2").module()
for image, right in zip(stored["images"], stored["outputs"]):
    output = program(image)
    assert output.shape == right.shape, (output.shape, right.shape)
    assert (output - right).abs().max() <= stored["allowed"]
"""


class Generator(nn.Module):
    """A transposed and a plain convolution, with a functional one between them."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
        self.weight = nn.Parameter(torch.randn(6, 6, 3, 3) / 8)
        self.out = nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, image):
        image = nn.functional.conv2d(self.up(image).relu(), self.weight, padding=1)
        return self.out(image.relu())


@pytest.fixture(scope="module")
def pair():
    """A network and its conversion."""
    torch.manual_seed(0)
    network = Generator().eval()
    return network, conv2attn.convert(network, example_input=torch.randn(1, 4, 6, 7))


@torch.no_grad()
def cases(network):
    images = [torch.randn(shape) for shape in ((1, 4, 5, 9), (2, 4, 6, 7), (5, 4, 11, 8))]
    return images, [network(image) for image in images]


def roundoffs(outputs):
    return exporting.allowed_difference(*outputs)


def test_a_pt2_file_runs_where_this_project_cannot_be_imported(pair, tmp_path):
    network, converted = pair
    notes = save(converted, tmp_path / "net.pt2", example_input=(4, 8, 6))
    assert "batch and sides" in notes[0]
    images, outputs = cases(network)
    torch.save({"images": images, "outputs": outputs, "allowed": roundoffs(outputs)}, tmp_path / "case.pt")
    assert run_apart(exec, ALONE.replace("FOLDER", str(tmp_path))) == 0


@pytest.mark.parametrize("engine", [None, "conv"])
def test_an_onnx_file_is_attention_or_convolutions(pair, tmp_path, engine):
    network, converted = pair
    notes = save(converted, tmp_path / "net.onnx", example_input=(4, 8, 6), engine=engine)
    assert "batch and sides" in notes[0]
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model)
    kernels = {
        tuple(shape.ints)
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose")
        for shape in node.attribute
        if shape.name == "kernel_shape"
    }
    assert kernels == ({(3, 3)} if engine == "conv" else set())
    # One softmax for each axis of each of three layers: nodes do not grow with heads.
    assert [node.op_type for node in model.graph.node].count("Softmax") == (0 if engine == "conv" else 6)
    assert {each.domain: each.version for each in model.opset_import}[""] == exporting.OPSET
    assert {each.key for each in model.metadata_props} >= {"torch", "alpha", "attention layers"}
    images, outputs = cases(network)
    for image, right in zip(images, outputs, strict=True):
        (output,) = outputs_of(tmp_path / "net.onnx", image.numpy())
        assert output.shape == right.shape
        assert np.abs(output - right.numpy()).max() <= roundoffs(outputs)


LAYERS = {
    "1 axis": (nn.Conv1d(4, 6, 4, 3, 3, dilation=2, groups=2, padding_mode="reflect").double(), (4, 11)),
    "3 axes": (nn.Conv3d(2, 3, (1, 3, 2), padding=(0, 1, 1)), (2, 3, 5, 4)),
    "mirrored": (nn.Conv2d(3, 5, 3, stride=2, dilation=2, padding=3, padding_mode="reflect", bias=False), (3, 9, 8)),
    "depthwise": (nn.Conv2d(4, 8, 7, padding=3, groups=4).double(), (4, 6, 9)),
}


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("name", "engine"), [*((name, None) for name in LAYERS), ("1 axis", "dense"), ("3 axes", "dense")]
)
def test_every_geometry_of_a_layer_is_exported(tmp_path, name, engine):
    convolution, size = LAYERS[name]
    network = conv2attn.convert(nn.Sequential(convolution))
    notes = save(network, tmp_path / "net.onnx", example_input=size, engine=engine)
    assert "batch and sides" in notes[0]


@pytest.mark.parametrize("alpha", [0.3, 40.0])
def test_soft_heads_between_pixels_are_exported(tmp_path, alpha):
    """At alpha 40 the sharpest scores are cut: their weights would be subnormal."""
    torch.manual_seed(0)
    layer = conv2attn.convert(nn.Conv2d(4, 6, 3, stride=(2, 1), padding=1, groups=2), trainable=True, alpha=alpha)
    with torch.no_grad():
        changed(layer, "center", lambda numbers: numbers.add_(torch.rand(9, 2) - 0.5))
        changed(layer, "alpha", lambda numbers: numbers.mul_(1 + torch.rand(9)))
    save(nn.Sequential(layer), tmp_path / "net.onnx", example_input=(4, 7, 6))
    image = torch.randn(2, 4, 9, 8)
    (output,) = outputs_of(tmp_path / "net.onnx", image.numpy())
    right = conv2attn.set_engine(layer, "dense")(image).detach()
    assert np.abs(output - right.numpy()).max() <= roundoffs([right])


def another(scale):
    """Another network is exported, with an output of another size for some scales."""

    def change(network):
        other = conv2attn.convert(nn.Conv2d(4, 3, 3, padding=1))
        return nn.Sequential(other, nn.Upsample(scale_factor=scale)).eval()

    return change


@torch.no_grad()
def with_a_bias_changed(network):
    network.out.bias.add_(1e-2)
    return network


@pytest.mark.parametrize(
    ("change", "found"),
    [(another(2), "differs by"), (another(3), "gives"), (with_a_bias_changed, "differs by")],
    ids=["another network", "another size", "another bias"],
)
def test_a_program_that_computes_something_else_is_not_kept(pair, tmp_path, monkeypatch, change, found):
    honest = exporting.trace_program
    monkeypatch.setattr(exporting, "trace_program", lambda network, image: honest(change(network), image))
    with pytest.raises(CheckpointError, match=f"C2A309 the file {found}"):
        save(pair[1], tmp_path / "net.pt2", example_input=(4, 8, 6), engine="conv")
    assert not list(tmp_path.iterdir())


def test_compiled_code_and_images_that_do_not_fit_are_refused_in_a_sentence(tmp_path):
    compiled = conv2attn.convert(nn.Sequential(torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3))), nn.Conv2d(4, 2, 1)))
    with pytest.raises(CheckpointError, match=r"C2A309 torch\.export cannot trace it"):
        save(compiled, tmp_path / "net.pt2", example_input=(3, 6, 6))
    assert not list(tmp_path.iterdir())


def test_an_operator_that_onnx_lacks_is_named(tmp_path):
    """The sentence was the first line of torch.onnx's report, with the colours of a terminal in it."""

    class Bessel(nn.Module):
        def forward(self, image):
            return torch.special.bessel_j0(image)

    network = conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), Bessel()))
    with pytest.raises(
        CheckpointError,
        match=r"C2A309 torch\.onnx does not export it \(it cannot translate prims\.bessel_j0\.default\)\. ",
    ):
        save(network, tmp_path / "net.onnx", example_input=(3, 9, 8))


def test_a_generator_of_a_single_pixel_is_exported_with_free_sides(tmp_path):
    stages = nn.ConvTranspose2d(10, 8, 4, bias=False), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()
    network = conv2attn.convert(nn.Sequential(*stages).eval())
    notes = save(network, tmp_path / "net.pt2", example_input=(10, 1, 1))
    assert notes[0] == "free sizes: batch and sides"


def test_a_program_that_does_not_run_on_the_size_it_was_traced_for_is_not_kept(tmp_path):
    """Once an AssertionError of torch's guards: sides of 1 are traced as sides of 9."""
    network = conv2attn.convert(
        nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, 1)).eval()
    )
    with pytest.raises(CheckpointError, match=r"C2A309 the file does not run on 2x3x1x1 \(Guard failed"):
        save(network, tmp_path / "net.pt2", example_input=(3, 1, 1))
    assert not list(tmp_path.iterdir())
