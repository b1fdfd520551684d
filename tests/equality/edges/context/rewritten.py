"""Two networks of which neither was converted: equal graphs prove, otherwise images compare them, and that is said."""

import json
from pathlib import Path

import pytest
import torch
from commands import call
from schemas import complaints
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED
SCHEMA = Path(conv2attn.__file__).parents[1] / "docs" / "certificate.schema.json"
IMAGES = torch.rand(2, 3, 9, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


class Network(nn.Module):
    """A convolution, a batch normalisation and a linear layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, image):
        return self.head(self.norm(self.conv(image)).relu().mean((2, 3)))


def fused(changed=0.0):
    """The network with its normalisation folded into the convolution, and one weight of the head changed."""
    network = Network().eval()
    network.conv, network.norm = fuse_conv_bn_eval(network.conv, network.norm), nn.Identity()
    network.head.weight.data[2, 1] += changed
    return network


class Renamed(nn.Module):
    """A network under other names."""

    def __init__(self, network):
        super().__init__()
        self.body, self.last = nn.ModuleList([network.conv, network.norm]), network.head

    def forward(self, image):
        return self.last(self.body[1](self.body[0](image)).relu().mean((2, 3)))


class Branching(Network):
    """A network that branches on values."""

    def forward(self, image):
        return super().forward(image if image.sum() < 1e6 else -image)


OTHERS = {
    "fused": fused,
    "fused and renamed": lambda: Renamed(fused()).eval(),
    "branching": lambda: Branching().eval(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_graphs_are_sampled_and_a_tolerance_decides_for_the_images(name):
    original, other = Network().eval(), OTHERS[name]()
    report = certify(original, other, images=IMAGES)
    assert (report.verdict, report.exit_code) == (UNDECIDED, 3), report.to_text()
    assert report.outputs.bound is None
    if name != "branching":  # its layers are equal, and have their rows
        assert (report.strength, report.rows, report.counterexamples) == (Strength.SAMPLED, (), ())
    named = report.to_text().partition("on these images: --tolerance ")[2].partition("\n")[0]
    passed = certify(original, other, images=IMAGES, tolerance=float(named))
    assert (passed.verdict, passed.strength) == (HOLDS, Strength.SAMPLED)
    assert passed.claim.endswith("on 2 given images")
    assert passed.to_text().startswith("holds (sampled)")


def test_the_largest_difference_of_each_output_is_given_with_its_place():
    class Twice(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, image):
            return {"scores": self.network(image), "means": self.network.conv(image).mean((2, 3))}

    first, second = Twice(Network().eval()), Twice(fused(changed=1.0))
    ours, theirs = first(IMAGES), second(IMAGES)
    report = certify(first, second, images=IMAGES, tolerance=1e-6)
    assert (report.verdict, report.exit_code) == (REFUTED, 1)
    for gap, key in zip(report.outputs.gaps, ours, strict=True):
        off = (ours[key] - theirs[key]).abs()
        assert gap.output == f"output['{key}']"
        assert gap.difference == pytest.approx(off.max().item(), rel=1e-6, abs=0)
        assert off[gap.place] == off.max()
        assert f"image {gap.place[0]}, class {gap.place[1]}" in report.to_text()
    assert [each.part for each in report.counterexamples] == ["tolerance"]


def test_another_shape_is_refuted_whatever_the_tolerance():
    other = fused()
    other.head = nn.Linear(4, 6)
    report = certify(Network().eval(), other, images=IMAGES, tolerance=1e9)
    assert (report.verdict, [each.part for each in report.counterexamples]) == (REFUTED, ["outputs"])


def test_a_converted_network_is_never_only_sampled():
    original = Network().eval()
    converted = conv2attn.convert(original)
    converted.head.weight.data[2, 1] += 1e-3
    for tolerance, verdict in ((None, REFUTED), (1.0, UNDECIDED), (1e-9, REFUTED)):
        report = certify(original, converted, images=IMAGES, tolerance=tolerance)
        assert (report.verdict, report.sampled) == (verdict, False)


@pytest.mark.parametrize(("changed", "tolerance", "code"), [(0.0, [], 3), (0.0, ["1e-5"], 0), (0.1, ["1e-5"], 1)])
def test_two_exported_programs_from_the_command_line(tmp_path, changed, tolerance, code):
    paths = [str(tmp_path / f"{number}.pt2") for number in (1, 2)]
    for path, network in zip(paths, (Network().eval(), fused(changed)), strict=True):
        torch.export.save(torch.export.export(network, (IMAGES[:1],)), path)
    size = ["--input-size", "3x9x8", *(["--tolerance", *tolerance] if tolerance else [])]
    result = call("verify", *paths, *size, "--format", "json")
    assert result.exit_code == code, result.output
    body = json.loads(result.stdout)
    assert body["strength"] == "sampled" or code == 1
    assert complaints(body, json.loads(SCHEMA.read_text())) == []
    assert body["outputs"]["gaps"][0]["axes"].keys() == {"image", "class"}


def test_programs_that_take_no_single_image_are_refuted_without_a_counterexample(tmp_path):
    for name, network in (("1.pt2", Network().eval()), ("2.pt2", fused(changed=1.0))):
        torch.export.save(torch.export.export(network, (IMAGES,)), tmp_path / name)
    first, second = (conv2attn.load(tmp_path / name) for name in ("1.pt2", "2.pt2"))
    report = certify(first, second, images=IMAGES, tolerance=1e-6)
    assert (report.verdict, report.counterexamples) == (REFUTED, ())
    assert report.unshown == ("tolerance: the first takes no single image",)
