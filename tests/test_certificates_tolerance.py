"""Tolerances, witnesses, and the bound that is carried to the outputs: never below what is measured."""

import json

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from planted import image, network
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.equivalence import certify
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict


def layer(seed=0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(3, 4, 3, **kwargs)


def decided(original, converted, tolerance, **kwargs):
    report = certify(original, converted, input_size=(3, 9, 8), tolerance=tolerance, **kwargs)
    return report.verdict, report


def test_the_bound_decides_for_a_layer():
    original = layer(padding=1)
    converted = conv2attn.convert(original, alpha=3)
    bound = certify(original, converted, input_size=(3, 9, 8)).rows[0].bound
    verdict, report = decided(original, converted, 1.5 * bound)
    assert (verdict, report.strength, report.exit_code) == (Verdict.HOLDS, Strength.BOUNDED, 0)
    verdict, report = decided(original, converted, 0.01)
    assert verdict is Verdict.REFUTED
    assert report.rows[0].decisive.part == "tolerance"
    assert "an input" in report.rows[0].decisive.sentence


def test_between_the_witness_and_the_bound_nothing_is_claimed():
    original = layer(padding=1)
    converted = conv2attn.convert(original, alpha=3)
    report = certify(original, converted, input_size=(3, 9, 8))
    worst, bound = report.witnesses[0].difference, report.rows[0].bound
    assert worst < bound
    assert decided(original, converted, (worst + bound) / 2)[0] is Verdict.UNDECIDED


def test_the_range_counts():
    original = layer()
    converted = conv2attn.convert(original, alpha=3)
    assert decided(original, converted, 2.0)[0] is Verdict.HOLDS
    assert decided(original, converted, 2.0, input_range=50.0)[0] is Verdict.REFUTED


def test_one_ulp_is_within_a_tolerance_and_a_wrong_offset_is_not():
    original = layer()
    converted = conv2attn.convert(original)
    converted.output.data[0, 0, 0] += 1e-6 if converted.value is None else 0
    verdict, report = decided(original, converted, 1e-3)
    assert verdict is Verdict.HOLDS, report.to_text()
    converted.encoding.center.data[0, 0] -= 2
    assert decided(original, converted, 1e-3)[0] is not Verdict.HOLDS


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf")])
def test_a_tolerance_is_a_number(tolerance):
    with pytest.raises(UsageError, match="tolerance"):
        decided(layer(), layer(), tolerance)


def test_a_network_is_decided_by_the_bound_that_reaches_its_outputs():
    original = network()
    converted = conv2attn.convert(original)
    bound = certify(original, converted, images=image(), input_range=4.0).outputs.bound
    report = certify(original, converted, images=image(), input_range=4.0, tolerance=bound)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.BOUNDED)
    report = certify(original, converted, images=image(), tolerance=1e-5)
    assert report.verdict in (Verdict.UNDECIDED, Verdict.REFUTED)
    soft = conv2attn.convert(original, alpha=2)
    report = certify(original, soft, images=image(), tolerance=1e-3)
    assert report.verdict is Verdict.REFUTED
    assert "C2A409" in report.to_text()


class Opaque(nn.Module):
    """A network with something that no bound is carried through."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image):
        return torch.cumsum(self.conv(image), 1)


def test_where_no_bound_passes_the_certificate_says_so():
    original = Opaque()
    report = certify(original, conv2attn.convert(original), input_size=(3, 9, 8), tolerance=1.0)
    assert report.verdict is Verdict.UNDECIDED
    assert "no bound passes cumsum" in report.to_text()
    assert report.outputs.bound is None


def sequences(draw):
    """Small networks of the layers that a bound is carried through."""
    channels, parts = 3, []
    for _ in range(draw(st.integers(1, 3))):
        wider = draw(st.integers(1, 5))
        parts.append(nn.Conv2d(channels, wider, draw(st.sampled_from([1, 2, 3])), padding=draw(st.integers(0, 1))))
        channels = wider
        others = {
            "norm": nn.BatchNorm2d(channels),
            "relu": nn.ReLU(),
            "mean": nn.AvgPool2d(2, 1),
            "max": nn.MaxPool2d(2, 1),
        }
        parts.append(others[draw(st.sampled_from(sorted(others)))])
    parts += [nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(2 * channels, 3)]
    return nn.Sequential(*parts).eval()


@given(st.data())
def test_the_propagated_bound_is_never_exceeded(data):
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    original = sequences(data.draw)
    alpha = data.draw(st.sampled_from(["auto", 60, 20, 3, 0.5]))
    converted = conv2attn.convert(original, alpha=alpha)
    reach = data.draw(st.sampled_from([1e-3, 1.0, 100.0]))
    images = (torch.randint(0, 2, (4, 3, 12, 13)) * 2.0 - 1) * reach
    outputs = certify(original, converted, images=images, input_range=reach).outputs
    assert outputs.bound is not None
    assert 0 <= outputs.max_difference <= outputs.bound


def test_an_error_of_the_bound_would_be_seen():
    """The bound of a leaking network is of the size of the difference, so a bound that forgot the leak would fail."""
    original = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
    outputs = certify(original, conv2attn.convert(original, alpha=3), input_size=(3, 12, 13)).outputs
    assert outputs.bound / 100 < outputs.max_difference <= outputs.bound


@pytest.mark.parametrize("channels", [4, 40])
def test_a_witness_shows_what_it_says(channels):
    original = nn.Conv2d(3, channels, (3, 2), padding=1, stride=(1, 2))
    converted = conv2attn.convert(original, alpha=3)
    witness = certify(original, converted, input_size=(3, 9, 8), input_range=2.0).witnesses[0]
    assert witness.image.abs().max() == 2
    conv2attn.set_engine(converted, "dense")
    given_image = witness.image[None]
    with torch.no_grad():
        shown = [net(given_image)[0][witness.place].item() for net in (original, converted)]
    assert shown == pytest.approx([witness.original, witness.converted], rel=1e-5)
    assert witness.difference > 0.5


def test_one_ulp_has_a_witness_too():
    original = layer(bias=False)
    converted = conv2attn.convert(original)
    weight = (converted.output if converted.value is None else converted.value).data
    weight[1, 2, 4] = torch.nextafter(weight[1, 2, 4], torch.tensor(9.0))
    report = certify(original, converted, input_size=(3, 9, 8))
    witness = report.witnesses[0]
    assert witness.place[0] == 1
    assert 0 < witness.difference < 1e-6
    assert witness.image.count_nonzero() == 1


def test_witnesses_are_saved_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    conv2attn.save(conv2attn.convert(layer()), "hard.pt")
    conv2attn.save(conv2attn.convert(layer(), alpha=3), "soft.pt")
    arguments = ["verify", "hard.pt", "soft.pt", "--input-size", "3x9x8", "--format", "json"]
    result = CliRunner().invoke(main, [*arguments, "--save-witness", "shown.pt"])
    assert result.exit_code == 1
    kept = torch.load("shown.pt", weights_only=True)["witnesses"]
    told = json.loads(result.stdout)
    assert kept[0]["layer"] == told["witnesses"][0]["layer"] == "(root)"
    assert kept[0]["converted"] == told["witnesses"][0]["converted"]
    assert told["circumstances"]["command"] == "conv2attn verify hard.pt soft.pt --input-size 3x9x8"
    assert CliRunner().invoke(main, [*arguments, "--tolerance", "9"]).exit_code == 0


def test_a_tolerance_of_zero_is_repeated_with_its_zero(tmp_path, monkeypatch):
    """Without it the command would ask another question, to which the answer may be yes."""
    monkeypatch.chdir(tmp_path)
    conv2attn.save(conv2attn.convert(layer()), "hard.pt")
    conv2attn.save(conv2attn.convert(layer(), alpha=3), "soft.pt")
    arguments = ["verify", "hard.pt", "soft.pt", "--input-size", "3x9x8", "--tolerance", "0"]
    again = "conv2attn verify hard.pt soft.pt --tolerance 0.0"
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, f"to repeat it: {again} --input-size 3x9x8\n" in result.stdout) == (1, True)
    result = CliRunner().invoke(main, [*arguments, "--save-witness", "shown.pt"])
    replay = ["replay", "shown.pt", "hard.pt", "soft.pt", "--tolerance", "0.0"]
    assert f"to repeat it: conv2attn {' '.join(replay)}\n" in result.stdout
    assert CliRunner().invoke(main, replay).exit_code == 1
