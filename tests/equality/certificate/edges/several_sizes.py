"""Several sizes and modes of gradients in one certificate: the claim names them, and the worst decides."""

import copy
import json
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
import torch
from commands import call
from equality.pairs import Net
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality import Certificate
from conv2attn.verdicts import Strength, Verdict

SIZES = (3, 8, 8), (3, 9, 11)
BOTH = "2x3x8x8 and 2x3x9x11"


WEIGHT = torch.linspace(-1, 1, 108).reshape(4, 3, 3, 3)


def pooled(net, image):
    return F.adaptive_avg_pool2d(F.conv2d(image, net.weight), 1)


def mean(net, image):
    """The same formula in other words."""
    return F.conv2d(image, net.weight).mean((2, 3), keepdim=True)


def other_wide(net, image):
    """Another function of images that are 11 pixels wide."""
    return mean(net, image) if image.shape[-1] != 11 else F.conv2d(image, net.weight).amax((2, 3), True)


def other_where(is_enabled):
    """Another function in a mode of gradients."""
    return lambda net, image: mean(net, image) * (1 + 1e-5 * is_enabled())


def certify(second, **asked):
    """The certificate of `pooled` and another code at the first size."""
    networks = (Net(code, weight=nn.Parameter(WEIGHT)).eval() for code in (pooled, second))
    return conv2attn.certify(*networks, input_size=SIZES[0], **asked)


def test_formulas_at_two_sizes_are_claimed_for_both_and_for_no_other():
    certificate = certify(mean, also_sizes=[SIZES[1]])
    assert certificate.identified is not None
    assert f"of {BOTH}, without gradients" in certificate.claim
    alone = certify(mean)
    assert alone.identified is not None
    assert "1x3x9x11" not in alone.claim
    assert certificate.identified.log2_chance > alone.identified.log2_chance  # two chances to be wrong
    assert "gradients each" not in certificate.claim.replace("without gradients", "")


def test_a_difference_at_the_second_size_refutes_with_an_input_of_that_size():
    assert certify(other_wide).verdict is Verdict.HOLDS
    certificate = certify(other_wide, also_sizes=[SIZES[1]])
    assert certificate.verdict is Verdict.REFUTED
    assert not certificate.claim
    assert certificate.input_shown is not None
    assert certificate.input_shown.shape == SIZES[1]
    assert "at 3x9x11" in str(certificate)
    assert "one formula" not in str(certificate)


@pytest.mark.parametrize(
    ("is_enabled", "mode"), [(torch.is_grad_enabled, "gradients"), (torch.is_inference_mode_enabled, "inference")]
)
def test_formulas_hold_for_the_modes_that_were_run_alone(is_enabled, mode):
    assert certify(other_where(is_enabled)).verdict is Verdict.HOLDS
    certificate = certify(other_where(is_enabled), also_modes=[mode])
    assert certificate.verdict is Verdict.UNDECIDED
    assert "returns something else than without" in str(certificate)
    claim = certify(mean, also_modes=["gradients", "inference"]).claim
    assert claim.endswith("with gradients and in inference mode each returns the same on the inputs that were run")


def test_a_conversion_runs_in_inference_mode_and_sees_a_planted_difference():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    converted = conv2attn.convert(network)
    certificate = conv2attn.certify(
        network, converted, input_size=SIZES[0], also_sizes=SIZES[1:], also_modes=["inference"]
    )
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.PROVED)
    assert certificate.state.sizes == SIZES
    assert certificate.state.gradients == ("no gradients", "inference")


def test_the_row_of_a_layer_is_of_one_size_alone():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    rows = [
        conv2attn.certify(network, conv2attn.convert(network), input_size=SIZES[0], also_sizes=more).rows[0]
        for more in ([], SIZES[1:])
    ]
    assert rows[0].grid == (6, 6)
    assert rows[0] == rows[1]


def looking_in_inference(net, image):
    """Asks in inference mode what its layer is."""
    attends = torch.is_inference_mode_enabled() and "Attention" in net.layer.__class__.__name__
    return net.layer(image) * (2 if attends else 1)


def test_code_that_looks_at_its_layers_in_inference_mode_is_seen_where_that_mode_is_run():
    network = Net(looking_in_inference, layer=nn.Conv2d(3, 4, 3)).eval()
    converted = conv2attn.convert(network)
    certificate = conv2attn.certify(network, converted, input_size=SIZES[0], also_modes=["inference"])
    assert certificate.verdict is Verdict.UNDECIDED
    assert "in inference mode" in str(certificate)


CODE = """import torch
from torch import nn
from torch.nn import functional as F
class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3, 3, 3))
    def forward(self, image):
        return F.conv2d(image, self.weight).mean((2, 3))
"""
FORGED = {
    "nothing": (lambda body: None, 0),
    "a size that was not run": (lambda body: body["identified"]["sizes"].append([1, 3, 20, 20]), 1),
    "another size": (lambda body: body["identified"].update(sizes=[[1, 3, 20, 20]]), 1),
    "another mode": (lambda body: body["identified"].update(mode="with gradients, in training mode"), 1),
    "a size where only the bits are claimed": (lambda body: body["state"]["sizes"].append([3, 10, 10]), 1),
}


def without_derived(kind, body):
    """The document of a type without what its structures derive from their fields; anything else as it is."""
    if isinstance(body, list):
        return [without_derived((get_args(kind) or (None,))[0], each) for each in body]
    structures = [
        each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    if not isinstance(body, dict) or not structures:
        return body
    hints, derived = get_type_hints(structures[0]), getattr(structures[0], "derived", ())
    return {key: without_derived(hints.get(key), value) for key, value in body.items() if key not in derived}


def rewritten(body, forge):
    """A document with a change in its findings, from which all that is derived follows."""
    changed = copy.deepcopy(body)
    forge(changed)
    return msgspec.convert(without_derived(Certificate, changed), Certificate).to_json()


def test_recheck_refutes_what_formulas_were_not_compared_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CODE)
    for name in ("a.pt", "b.pt"):
        torch.save({"weight": WEIGHT}, name)
    arch = ["--arch", "net.py:Pooled"]
    asked = ["--input-size", "3x8x8", "--also-size", "3x9x11", "--also-mode", "inference", "--report", "c.json"]
    assert call("verify", "a.pt", "b.pt", *arch, *asked).exit_code == 0
    assert call("recheck", "c.json", *arch).output.count("1x3x") == 2
    body = json.loads(Path("c.json").read_text())
    for name, (forge, code) in FORGED.items():
        Path("forged.json").write_text(rewritten(body, forge))
        assert call("recheck", "forged.json", *arch).exit_code == code, name
