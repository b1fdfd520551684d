"""Inputs that show a difference: each shows what is said of it, can be kept, and can be shown again."""

import json
import os
import shlex
from fractions import Fraction

import pytest
import torch
from click.testing import CliRunner
from equivalence import planted
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.equivalence import certify, replay
from conv2attn.equivalence.evidence.pointwise import exact_value
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models.zoo.resnet import ResNetPlan, build
from conv2attn.verdicts import Verdict

SIZE = ["--input-size", "3x12x10"]


def call(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def refused(*arguments, match):
    """The call ends with exit code 2 and one line on stderr that says why; stdout stays empty."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
    assert match in result.stderr


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A small residual network, its conversion, and one in which a weight is off by one ulp, in the current folder."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(build(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5, stem="cifar")).state_dict(), "net.pt")
    network = conv2attn.convert(conv2attn.load("net.pt"))
    conv2attn.save(network, "right.pt")
    planted.ulp(planted.taps(network.layer2.get_submodule("0.conv1")), (3, 2, 1))
    conv2attn.save(network, "wrong.pt")
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt"), alpha=3), "soft.pt")
    return tmp_path


@pytest.mark.parametrize("wrong", ["wrong.pt", "soft.pt"])
def test_what_was_saved_is_shown_again_by_the_command_in_the_report(files, wrong):
    refuted = call("verify", "net.pt", wrong, *SIZE, "--save-witness", "shown.pt")
    assert (refuted.exit_code, refuted.stderr) == (1, "wrote shown.pt\n")
    command = next(line for line in refuted.stdout.splitlines() if line.startswith("to repeat it: "))
    program, *arguments = shlex.split(command.removeprefix("to repeat it: "))
    assert (program, arguments) == ("conv2attn", ["replay", "shown.pt", "net.pt", wrong])
    again = call(*arguments)
    assert again.exit_code == 1
    assert again.stdout.splitlines()[-1].endswith("saved inputs show a difference: refuted")
    for word in ("output channel", "row", "column", "off by", "rounding allows"):
        assert word in again.stdout.splitlines()[0]
    assert ("in exact arithmetic it is off by" in again.stdout) == (wrong == "wrong.pt")


def test_what_no_longer_differs_shows_nothing_and_is_not_green(files):
    assert call("verify", "net.pt", "soft.pt", *SIZE, "--save-witness", "shown.pt").exit_code == 1
    again = call("replay", "shown.pt", "net.pt", "right.pt")
    assert again.exit_code == 3
    assert "0 of 4 saved inputs show a difference: undecided (and nothing is known of other inputs)" in again.stdout
    body = json.loads(call("replay", "shown.pt", "net.pt", "right.pt", "--format", "json").stdout)
    assert (body["schema"], body["verdict"], body["exit_code"]) == ("conv2attn.replay/1", "undecided", 3)
    assert len(body["shown"]) == 4
    listed = call("replay", "shown.pt", "net.pt", "right.pt", "--format", "markdown").stdout
    assert all(line.startswith("- ") for line in listed.splitlines())


def test_a_refutation_without_a_saved_input_repeats_itself(files):
    refuted = call("verify", "net.pt", "wrong.pt", *SIZE)
    assert "to repeat it: conv2attn verify net.pt wrong.pt --input-size 3x12x10" in refuted.stdout
    assert "to repeat it" not in call("verify", "net.pt", "right.pt", *SIZE).stdout


def test_nothing_is_saved_where_nothing_is_refuted(files):
    result = call("verify", "net.pt", "right.pt", *SIZE, "--save-witness", "shown.pt")
    assert (result.exit_code, result.stderr) == (0, "shown.pt was not written: no input shows a difference\n")
    assert not (files / "shown.pt").exists()


@pytest.fixture
def between(files):
    """The same, with a network in which only a batch normalisation is off by one ulp."""
    network = conv2attn.load("right.pt")
    planted.ulp(network.layer2.get_submodule("0.bn2").weight.data, (3,))
    conv2attn.save(network, "between.pt")
    return files


def test_an_image_is_saved_and_shown_again_where_something_between_is_refuted(between):
    refuted = call("verify", "net.pt", "between.pt", *SIZE, "--save-witness", "shown.pt")
    assert refuted.exit_code == 1
    assert "(network): an input 3x12x10 within +-" in refuted.stdout
    assert "(image 0) shows it: with the layers of the first in both, output, class " in refuted.stdout
    assert "to repeat it: conv2attn replay shown.pt net.pt between.pt" in refuted.stdout
    again = call("replay", "shown.pt", "net.pt", "between.pt")
    assert again.exit_code == 1
    assert again.stdout.splitlines()[0].startswith("(network) structure: with the layers of the first in both, output")
    right = call("replay", "shown.pt", "net.pt", "right.pt")
    assert (right.exit_code, right.stderr) == (3, "")
    assert "0 of 1 saved inputs show a difference: undecided (and nothing is known of other inputs)" in right.stdout


def test_a_tolerance_is_part_of_the_command_that_repeats(files):
    loose = ["--tolerance", "1e-6"]
    refuted = call("verify", "net.pt", "soft.pt", *SIZE, *loose, "--save-witness", "shown.pt")
    command = next(line for line in refuted.stdout.splitlines() if line.startswith("to repeat it: "))
    assert command == "to repeat it: conv2attn replay shown.pt net.pt soft.pt --tolerance 1e-06"
    again = call(*shlex.split(command)[4:])
    assert (refuted.exit_code, again.exit_code) == (1, 1)
    assert "(network) tolerance: output, class " in again.stdout
    assert "the tolerance allows 1e-06" in again.stdout
    assert call("replay", "shown.pt", "net.pt", "right.pt", "--tolerance", "1e-3").exit_code == 3


def test_a_counter_that_no_operator_reads_is_no_part_of_the_map(files):
    network = conv2attn.load("right.pt")
    network.bn1.num_batches_tracked += 1
    conv2attn.save(network, "counted.pt")
    assert call("verify", "net.pt", "counted.pt", *SIZE).exit_code == 0


SPOILT = {
    "nothing in it": lambda entry: [],
    "no list": lambda entry: 7,
    "no place": lambda entry: [{**entry, "place": None}],
    "a place that is none": lambda entry: [{**entry, "place": (0, 10**6, 0)}],
    "a place of strings": lambda entry: [{**entry, "place": ("a", "b", "c")}],
    "a place before the first": lambda entry: [{**entry, "place": (0, -1, 0)}],
    "no image": lambda entry: [{**entry, "image": 3}],
    "an image of whole numbers": lambda entry: [{**entry, "image": entry["image"].long()}],
    "an image that is not finite": lambda entry: [{**entry, "image": entry["image"] * torch.nan}],
    "another layer": lambda entry: [{**entry, "layer": "layer9"}],
    "no convolution": lambda entry: [{**entry, "layer": "layer1.0.conv9"}],
    "too many channels": lambda entry: [{**entry, "image": entry["image"].repeat(2, 1, 1)}],
    "another dtype": lambda entry: [{**entry, "image": entry["image"].double()}],
    "another part": lambda entry: [{**entry, "part": "odds"}],
    "a layer's input for a network": lambda entry: [{**entry, "part": "outputs"}],
    "a call that is none": lambda entry: [{**entry, "part": "call", "image": torch.ones(3, 12, 10)}],
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_file_is_one_sentence(files, how):
    call("verify", "net.pt", "soft.pt", *SIZE, "--save-witness", "shown.pt")
    entry = torch.load("shown.pt", weights_only=True)["witnesses"][0]
    torch.save({"witnesses": SPOILT[how](entry)}, "spoilt.pt")
    refused("replay", "spoilt.pt", "net.pt", "soft.pt", match="spoilt.pt")


def test_other_files_are_one_sentence(files):
    refused("replay", "none.pt", "net.pt", "soft.pt", match="C2A301 none.pt does not exist")
    refused("replay", "net.pt", "net.pt", "soft.pt", match="C2A303 net.pt holds no saved witnesses")
    (files / "text.pt").write_text("hello")
    torch.save([1.0], "list.pt")
    none = "C2A303 text.pt is a text file, so it is no witness file. Write one by verify --save-witness."
    refused("replay", "text.pt", "net.pt", "soft.pt", match=f"error: {none}\n")
    for name, told in (("text.pt", "is a text file"), ("list.pt", "holds a list"), ("net.pt", "holds no saved")):
        refused("replay", name, "net.pt", "soft.pt", match=f"C2A303 {name} {told}")
        refused("replay", name, "net.pt", "soft.pt", match=". Write one by verify --save-witness.")
        refused("replay", name, "net.pt", "soft.pt", match="witness")
    (files / "cut.pt").write_bytes((files / "net.pt").read_bytes()[:1000])
    refused("replay", "cut.pt", "net.pt", "soft.pt", match="C2A302 cut.pt")
    refused("replay", "net.pt", "net.pt", "soft.pt", "--tolerance", "nan", match="tolerance=nan is not")
    refused("verify", "net.pt", "soft.pt", *SIZE, "--tolerance", "-1", match="tolerance=-1.0 is not")
    refused("verify", "net.pt", "soft.pt", *SIZE, "--save-witness", "no/such.pt", match="C2A301 no is not a folder")
    refused("recheck", "none.json", match="none.json is not a regular file")


@pytest.mark.parametrize("writing", ["--output", "--report", "--save-witness"])
def test_what_is_read_is_never_overwritten(files, writing):
    before = (files / "right.pt").read_bytes()
    told = "right.pt is read by this call, and would be overwritten. Name another file."
    refused("verify", "net.pt", "right.pt", *SIZE, writing, "./right.pt", "--force", match=told)
    refused("verify", "net.pt", "soft.pt", "--images", "right.pt", writing, "right.pt", "--force", match=told)
    refused("convert", "right.pt", "-o", "right.pt", "--force", match=told)
    assert (files / "right.pt").read_bytes() == before


def test_a_folder_that_takes_no_files_is_refused_before_any_work(files, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK)
    told = "C2A301 r.json cannot be written: its folder takes no files from this user"
    refused("verify", "net.pt", "right.pt", *SIZE, "--report", "r.json", match=told)


def saved(layer, image, place):
    return {"witnesses": [{"layer": layer, "image": image, "place": place}]}


def test_what_has_another_shape_or_does_not_run_is_refuted():
    original = nn.Conv2d(2, 3, 3, padding=1)
    content = saved("(root)", torch.ones(2, 5, 4), (0, 2, 2))
    grown = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=2))
    report = replay(content, "shown.pt", original, grown)
    assert (report.verdict, report.shown[0].sentence) == (Verdict.REFUTED, "the outputs are of other shapes")
    wider = replay(content, "shown.pt", original, conv2attn.convert(nn.Conv2d(4, 3, 3, padding=1)))
    assert "does not run on it" in wider.shown[0].sentence
    assert wider.verdict is Verdict.REFUTED


def test_a_tolerance_is_what_a_single_layer_may_differ_by():
    original = nn.Conv1d(2, 3, 3)
    soft = conv2attn.convert(original, alpha=3)
    content = {"witnesses": [vars(certify(original, soft, input_size=(2, 9)).witnesses[0])]}
    assert replay(content, "shown.pt", original, soft).verdict is Verdict.REFUTED
    assert replay(content, "shown.pt", original, soft, tolerance=1e-6).verdict is Verdict.REFUTED
    within = replay(content, "shown.pt", original, soft, tolerance=100.0)
    assert within.verdict is Verdict.UNDECIDED
    assert "the tolerance allows 100" in within.shown[0].sentence
    assert "output channel" in within.shown[0].sentence
    assert "position" in within.shown[0].sentence


def test_a_file_with_nothing_in_it_is_an_error():
    with pytest.raises(CheckpointError, match="no saved witnesses"):
        replay({}, "shown.pt", nn.Conv1d(1, 1, 1), nn.Conv1d(1, 1, 1))
    with pytest.raises(UsageError, match="which these networks have not"):
        replay(saved("more", torch.ones(1, 1), (0, 0)), "shown.pt", nn.Conv1d(1, 1, 1), nn.Conv1d(1, 1, 1))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_the_exact_output_is_that_of_fractions(groups, mode):
    original = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(1, 2), groups=groups, padding_mode=mode)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.copy_((parameter * 64).round() / 8)
    converted = conv2attn.convert(original)
    planted.rewritten(converted)
    image = torch.randint(-8, 9, (4, 7, 6), generator=torch.Generator().manual_seed(0)).float() / 4
    expected = original(image).detach()
    for layer in (original, conv2attn.convert(original), converted):
        for place in ((0, 0, 0), (5, 1, 3), (2, *(side - 1 for side in expected.shape[1:]))):
            assert exact_value(reading_of(layer), image, place) == Fraction(expected[place].item())
    converted.encoding.alpha.data.fill_(60)
    assert exact_value(reading_of(converted), image, (0, 0, 0)) is None


def test_the_channel_that_is_wrong_is_found_among_many():
    original = nn.Conv2d(3, 64, 3)
    converted = conv2attn.convert(original)
    planted.ulp(planted.taps(converted), (4, 37, 1))
    witness = certify(original, converted, input_size=(3, 9, 8)).witnesses[0]
    assert witness.place[0] == 37
    assert not witness.exceeds
    assert 0 < abs(witness.exact) < 1e-7


def test_rounding_alone_is_no_witness():
    """A leak too small to be seen is refuted without an input, where any difference may be of rounding."""
    original = nn.Conv2d(30, 4, 3)
    report = certify(original, conv2attn.convert(original, alpha=16), input_size=(30, 9, 8))
    assert report.verdict is Verdict.REFUTED
    assert all(witness.exceeds for witness in report.witnesses)
