"""The command line: exit codes, one sentence for an error, and nothing lost."""

import functools
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import conv2attn
from conv2attn.cli import main
from conv2attn.cli.network_files import counted
from conv2attn.cli.progress import progress
from conv2attn.errors import RULES

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet18.pt"
SMALL = ["--input-size", "3x32x40"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the example in it, which is the current one."""
    shutil.copy(EXAMPLE, tmp_path / "net.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def refused(*arguments, match):
    """The call ends with exit code 2 and one line on stderr that says why; stdout stays empty."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
    assert match in result.stderr
    assert "weights_only" not in result.stderr


def test_convert_then_verify(folder):
    converted = call("convert", "net.pt", *SMALL, "--report", "report.json")
    assert converted.exit_code == 0
    assert "holds (proved); layers: 20 holds, 0 refuted, 0 undecided, 0 unsupported\n" in converted.stdout
    report = json.loads((folder / "report.json").read_text())
    assert (report["verdict"], report["strength"], len(report["layers"])) == ("holds", "proved", 20)
    verified = call("verify", "net.pt", "net.attn.pt", *SMALL, "--format", "json")
    assert verified.exit_code == 0
    assert json.loads(verified.stdout)["verdict"] == "holds"


def test_a_saved_network_is_the_network_bit_for_bit(folder):
    network = conv2attn.convert(conv2attn.load("net.pt"), alpha=60, stride_by="pooling", encoding="enumerated")
    conv2attn.save(network, "saved.pt")
    again = conv2attn.load("saved.pt")
    mine, theirs = network.state_dict(), again.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[key], theirs[key]) and mine[key].stride() == theirs[key].stride() for key in mine)
    assert str(network) == str(again)
    assert conv2attn.conversion_of(network) == conv2attn.conversion_of(again)
    assert [p.requires_grad for p in network.parameters()] == [p.requires_grad for p in again.parameters()]


@pytest.mark.filterwarnings("ignore:C2A132")
def test_a_saved_layer_is_the_layer(tmp_path):
    layer = conv2attn.convert(torch.nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), trainable=True)
    conv2attn.save(layer, tmp_path / "layer.pt")
    image = torch.randn(2, 4, 9)
    assert torch.equal(conv2attn.load(tmp_path / "layer.pt")(image), layer(image))


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (("sites", "stride"), (0, 0)),
        (("sites", "stride"), (-1, 2)),
        (("sites", "stride"), (2.0, 2.0)),
        (("sites", "stride"), (2,)),
        (("sites", "before"), ("a", "b")),
        (("padding", "spacing"), (0, 0)),
        (("padding", "mode"), "exec"),
        (("groups",), 0),
        (("d_in",), True),
        (("engine",), "evil"),
        (("positions",), [10**30, 2]),
    ],
)
def test_a_saved_layer_of_impossible_geometry_is_refused(folder, place, told):
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "saved.pt")
    content = torch.load("saved.pt", weights_only=True)
    functools.reduce(dict.__getitem__, place[:-1], content["layers"]["conv1"])[place[-1]] = told
    torch.save(content, "false.pt")
    refused("verify", "net.pt", "false.pt", match="C2A303 its plan and its tensors do not fit each other")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_saved_weights_that_are_no_floats_are_refused(folder, dtype):
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "saved.pt")
    content = torch.load("saved.pt", weights_only=True)
    content["state_dict"]["conv1.output"] = content["state_dict"]["conv1.output"].to(dtype)
    torch.save(content, "false.pt")
    refused("verify", "net.pt", "false.pt", match=f"conv1.output is {dtype}")


def test_a_plan_of_more_blocks_than_tensors_is_refused_before_they_are_built(folder):
    conv2attn.save(conv2attn.load("net.pt"), "saved.pt")
    content = torch.load("saved.pt", weights_only=True)
    content["architecture"][1]["depths"] = [10**9, 2, 2, 2]
    torch.save(content, "false.pt")
    refused("verify", "net.pt", "false.pt", match="1000000006 blocks of 122 tensors")


@pytest.mark.parametrize("damage", ["rename", "drop", "architecture", "layers"])
def test_a_saved_network_with_a_false_plan_is_refused(folder, damage):
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "saved.pt")
    content = torch.load("saved.pt", weights_only=True)
    match damage:
        case "rename":
            content["state_dict"]["conv1.outputs"] = content["state_dict"].pop("conv1.output")
        case "drop":
            del content["state_dict"]["fc.weight"]
        case "architecture":
            content["architecture"][1]["depths"] = [3, 4, 6, 3]
        case "layers":
            content["layers"]["conv1"]["d_out"] = 17
    torch.save(content, "false.pt")
    refused("verify", "net.pt", "false.pt", match="C2A303")


def test_refuted_networks_are_not_written(folder):
    assert call("convert", "net.pt", *SMALL, "--alpha", 3).exit_code == 1
    assert not (folder / "net.attn.pt").exists()
    assert call("convert", "net.pt", *SMALL, "--alpha", 3, "--keep-refuted").exit_code == 1
    assert torch.load("net.attn.pt", weights_only=True)["refuted"] is True
    assert call("verify", "net.pt", "net.attn.pt", *SMALL).exit_code == 1


def test_alpha_of_the_paper_is_bounded_and_less_is_warned_of(folder):
    paper = call("convert", "net.pt", *SMALL, "--alpha", 46).stdout
    assert "holds (bounded)" in paper
    assert "C2A131" not in paper
    less = call("convert", "net.pt", "-o", "less.pt", *SMALL, "--alpha", 20).stdout
    assert "holds (bounded)" in less
    assert "C2A131 conv1, layer1.0.conv1, " in less
    assert "alpha = 20 leaves up to 8.2" in less


def test_existing_files_are_kept(folder):
    (folder / "net.attn.pt").write_text("mine")
    refused("convert", "net.pt", *SMALL, match="C2A305")
    (folder / "report.json").write_text("mine too")
    refused("convert", "net.pt", "-o", "new.pt", *SMALL, "--report", "report.json", match="C2A305")
    assert (folder / "net.attn.pt").read_text() == "mine"
    assert (folder / "report.json").read_text() == "mine too"
    assert not (folder / "new.pt").exists()
    assert call("convert", "net.pt", *SMALL, "--force").exit_code == 0


def test_bad_files(folder):
    refused("convert", "missing.pt", match="C2A301")
    (folder / "empty.pt").write_bytes(b"")
    refused("convert", "empty.pt", match="C2A302")
    (folder / "cut.pt").write_bytes(EXAMPLE.read_bytes()[:100_000])
    refused("convert", "cut.pt", match="C2A302")
    (folder / "text.pt").write_text("hello")
    refused("convert", "text.pt", match="C2A30")
    torch.save({"a.weight": torch.zeros(2, 2)}, "other.pt")
    refused("convert", "other.pt", match="C2A304")
    assert sorted(path.name for path in folder.iterdir()) == ["cut.pt", "empty.pt", "net.pt", "other.pt", "text.pt"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--alpha", "soft"], "C2A130"),
        (["--alpha", "-1"], "C2A130"),
        (["--alpha", "nan"], "C2A130"),
        (["--encoding", "sine"], "C2A001"),
        (["--stride-by", "hope"], "C2A001"),
        (["--only", "layer9*"], "C2A001"),
        (["--arch", "resnet50"], "C2A304"),
        (["--input-size", "224"], "C2A001"),
        (["--input-size", "3x0x5"], "C2A001"),
        (["--images", "missing.npy"], "C2A301"),
        (["--images", "net.pt"], "C2A303 net.pt holds 20 tensors that could be images"),
        (["--device", "cuda:99"], "C2A001"),
        (["--device", "privateuseone"], "C2A001 device 'privateuseone' is not here"),
        (["--device", "meta"], "C2A001 device 'meta' is not here"),
        (["--device", "mkldnn"], "C2A001 device 'mkldnn' is not here"),
        (["--device", ""], "C2A001 device '' is not here"),
        (["--input-size", "3x9999999x9999999"], "C2A001 an image 3x9999999x9999999 has more than 2^26 numbers"),
        (["--input-size", "3x99999999999x9999999999999999"], "has more than 2^26 numbers"),
        (["--input-range", "nan"], "C2A001"),
        (["--input-range", "inf"], "C2A001"),
        (["--input-range", "0"], "C2A001"),
        (["--input-range", "1e39"], "C2A001 an input range of 1e+39 is beyond torch.float32"),
        (["--report", "no/such/report.json"], "C2A301"),
        (["--report", "net.attn.pt"], "C2A001 net.attn.pt is to hold both"),
        (["--report", "net.attn.pt", "--force"], "C2A001 net.attn.pt is to hold both"),
        (["--report", "net.pt"], "C2A001 net.pt is read by this call"),
    ],
)
def test_wrong_options_are_one_sentence(folder, arguments, match):
    refused("convert", "net.pt", *arguments, match=match)
    assert [path.name for path in folder.iterdir()] == ["net.pt"]


def test_skipped_layers_do_not_count(folder):
    result = call("convert", "net.pt", *SMALL, "--skip", "layer[1-4]*")
    assert result.exit_code == 0
    assert "holds (proved); layers: 1 holds, 0 refuted, 0 undecided, 0 unsupported, 19 skipped" in result.stdout


def test_nothing_checked_is_not_green(folder):
    result = call("convert", "net.pt", *SMALL, "--skip", "*")
    assert result.exit_code == 3
    assert "nothing was checked" in result.stdout


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(folder, dtype):
    assert call("convert", "net.pt", *SMALL, "--dtype", dtype).exit_code == 0


def test_images_of_the_user(folder):
    torch.save({"images": torch.randn(2, 3, 32, 32)}, "images.pt")
    assert "2 images of images.pt" in call("convert", "net.pt", "--images", "images.pt").stdout


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("text.npy", np.array(["no", "image"]), "C2A303 text.npy holds no images"),
        ("object.npy", np.array([{}], dtype=object), "C2A303 object.npy is not an array of images"),
        ("complex.npy", np.zeros((1, 3, 8, 8), np.complex64), "C2A303 complex.npy holds 1x3x8x8 numbers of"),
        ("none.npy", np.zeros((0, 3, 8, 8), np.float32), "C2A303 none.npy holds 0x3x8x8 numbers"),
        ("flat.npy", np.zeros((8, 8), np.float32), "C2A303 flat.npy holds 8x8 numbers"),
        ("flat.pt", {"images": torch.zeros(8, 8)}, "C2A303 flat.pt holds 8x8 numbers"),
        ("two.pt", {"a": torch.zeros(1, 3, 8, 8), "b": torch.zeros(1, 3, 8, 8)}, "C2A303 two.pt holds 2 tensors"),
    ],
)
def test_files_without_images_are_refused(folder, name, content, match):
    np.save(name, content) if isinstance(content, np.ndarray) else torch.save(content, name)
    refused("verify", "net.pt", "net.pt", "--images", name, match=match)


def test_demo(tmp_path):
    result = call("demo", "-o", tmp_path / "kept.pt")
    assert result.exit_code == 0
    assert "same top-1 class: 10 of 10" in result.stdout
    assert result.stderr == f"wrote {tmp_path / 'kept.pt'}\n"
    assert call("verify", EXAMPLE, tmp_path / "kept.pt", *SMALL).exit_code == 0
    refused("demo", "-o", tmp_path / "kept.pt", match="C2A305")


def test_explain_knows_every_code():
    listing = call("explain").stdout
    for code, rule in RULES.items():
        assert f"{code}  {rule.title}" in listing
        assert rule.remedy in call("explain", code.lower()).stdout
    refused("explain", "C2A999", match="C2A999")


def test_prove_from_the_command_line(tmp_path):
    assert call("prove", "L2a", "--format", "json", "--report", tmp_path / "proof.json").exit_code == 0
    assert json.loads((tmp_path / "proof.json").read_text())["exit_code"] == 0
    refused("prove", "L99", match="L99")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "terminal"), [(Terminal, True), (io.StringIO, False)])
def test_progress_is_shown_on_a_terminal_and_nowhere_else(monkeypatch, stream, terminal):
    """With the name of the layer, how many are done, and the time that remains."""
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setenv("TERM", "xterm")
    with progress() as shown:
        shown(1, 7, "conv1")
        shown(4, 7, "conv4")
    assert [part in sys.stderr.getvalue() for part in ("conv4", "3/7", ":")] == [terminal] * 3


def test_a_certificate_counts_the_runs_of_its_layers(monkeypatch):
    from torch.nn.modules import module

    conv = torch.nn.Conv1d(1, 1, 1)
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with counted(conv, conv2attn.convert(conv)):
        conv(torch.ones(1, 1, 1))
    assert "1/4" in sys.stderr.getvalue()
    assert not module._global_forward_hooks


def test_a_crash_is_not_a_refutation(folder, monkeypatch):
    def crash(*arguments, **options):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("conv2attn.cli.network_files.certify", crash)
    result = call("convert", "net.pt", *SMALL)
    assert result.exit_code == 70
    assert "ZeroDivisionError: planted" in result.stderr
    assert not (folder / "net.attn.pt").exists()


def test_a_file_without_convolutions_is_not_converted(folder):
    assert call("convert", "net.pt", *SMALL).exit_code == 0
    refused("convert", "net.attn.pt", "-o", "twice.pt", *SMALL, match="C2A101 net.attn.pt holds no convolution")
    assert not (folder / "twice.pt").exists()


COMMANDS = {name: each for name, each in main.commands.items() if name != "reproduce"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_its_example_can_be_typed(name):
    lines = call(name, "--help").stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert not any("..." in line for line in lines if not line.startswith("Usage: "))
    program, command, *arguments = shlex.split(COMMANDS[name].example)
    assert (program, command) == ("conv2attn", name)
    assert f"  {COMMANDS[name].example}" in lines
    COMMANDS[name].make_context(name, arguments)


def test_every_command_stands_once_in_the_help_on_a_line_that_is_not_cut():
    text = call("--help").stdout
    listed = [line.split()[0] for line in text.splitlines() if re.match(r"  [a-z][a-z-]+  ", line)]
    assert sorted(listed) == sorted(main.commands)
    assert "..." not in text.partition("Options:")[2]


@pytest.mark.parametrize("wrong", ["--mean abc --std 1", "--mean 0.5", "--mean 0 --std 0", "--allow Name"])
def test_wrong_options_are_refused_though_no_image_and_no_pickle_is_read(folder, wrong):
    refused("convert", "net.pt", "-o", "wrong.pt", *wrong.split(), *SMALL, match="C2A001")
    assert not (folder / "wrong.pt").exists()


def test_wrong_words_are_one_sentence():
    refused("convert", match="C2A001 Missing argument 'MODEL'. See conv2attn convert --help")
    refused("convert", "net.pt", "--no-such-option", match="C2A001 No such option")
    refused("no-such-command", match="C2A001 No such command")


def test_an_interrupted_command_exits_with_130(folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("conv2attn.cli.network_files.certify", interrupted)
    result = call("convert", "net.pt", *SMALL)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("suffix", ["json", "md", "html", "svg", "tex", "csv", "txt"])
def test_a_report_is_written_in_the_form_that_its_suffix_names(folder, suffix):
    form = {"md": "markdown", "tex": "latex", "txt": "text"}.get(suffix, suffix)
    shown = call("inspect", "net.pt", "--format", form, "--report", f"report.{suffix}", "--wide")
    assert shown.exit_code == 0
    assert shown.stdout == (folder / f"report.{suffix}").read_text()
    refused("inspect", "net.pt", "--report", "report.doc", match="C2A308 --report report.doc names no form")


def test_quiet_says_the_verdict_alone_and_verbose_says_more(folder):
    verdict, _, rest = call("inspect", "net.pt").stdout.partition("\n")
    assert (call("inspect", "net.pt", "-q").stdout, "122 tensors" in rest) == (f"{verdict}\n", True)
    assert "layer1.0.conv1.weight" in call("inspect", "net.pt", "-v").stdout
