"""The command line: exit codes, one sentence for an error, and nothing lost."""

import ast
import importlib.util
import io
import json
import re
import resource
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from commands import LAYERS, SIZE, call, options_of, refused, save_residual
from forks import run_apart, run_with_streams
from refusals.written import NETWORK
from torch import nn

import conv2attn
from conv2attn.cli import Written, main
from conv2attn.report.progress import progress


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network of two convolutions in it, which is the current one."""
    torch.save(NETWORK, tmp_path / "net.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sentences_of(path):
    """The texts that a file gives to errors: the constants in calls of their classes and in rules."""
    text = path.read_text()
    if "--" not in text:
        return []
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    calls = [call for call in calls if re.search(r"(Error|Rule)$", ast.unparse(call.func))]
    constants = [each.value for call in calls for each in ast.walk(call) if isinstance(each, ast.Constant)]
    return sorted({each for each in constants if isinstance(each, str) and "--" in each})


def test_convert_then_verify(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_residual(tmp_path / "net.pt")
    converted = call("convert", "net.pt", *SIZE, "--report", "report.json")
    assert converted.exit_code == 0
    assert f"holds (proved); layers: {LAYERS} holds, 0 refuted, 0 undecided, 0 unsupported\n" in converted.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], report["strength"], len(report["rows"])) == ("holds", "proved", LAYERS)
    verified = call("verify", "net.pt", "net.attn.pt", *SIZE, "--format", "json")
    assert verified.exit_code == 0
    assert json.loads(verified.stdout)["verdict"] == "holds"
    refused("convert", "net.attn.pt", "-o", "twice.pt", *SIZE, match="C2A101 net.attn.pt holds no convolution")
    refused("convert", "net.pt", "-o", "other.pt", "--arch", "resnet50", match="C2A304")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.attn.pt", "net.pt", "report.json"]


def test_refuted_networks_are_not_written(folder):
    assert call("convert", "net.pt", *SIZE, "--alpha", 3).exit_code == 1
    assert not (folder / "net.attn.pt").exists()
    assert call("convert", "net.pt", *SIZE, "--alpha", 3, "--keep-refuted").exit_code == 1
    assert torch.load("net.attn.pt", weights_only=True)["refuted"] is True


def test_alpha_of_the_paper_is_bounded_and_less_is_warned_of(folder):
    paper = call("convert", "net.pt", *SIZE, "--alpha", 46).stdout
    assert "holds (bounded)" in paper
    assert "C2A131" not in paper
    less = call("convert", "net.pt", "-o", "less.pt", *SIZE, "--alpha", 20).stdout
    assert "holds (bounded)" in less
    assert "C2A131 stem, body: " in less
    assert "alpha = 20 leaves up to 8.2" in less


def test_existing_files_are_kept(folder):
    (folder / "net.attn.pt").write_text("mine")
    refused("convert", "net.pt", *SIZE, match="C2A305")
    (folder / "report.json").write_text("mine too")
    refused("convert", "net.pt", "-o", "new.pt", *SIZE, "--report", "report.json", match="C2A305")
    assert (folder / "net.attn.pt").read_text() == "mine"
    assert (folder / "report.json").read_text() == "mine too"
    assert not (folder / "new.pt").exists()
    assert call("convert", "net.pt", *SIZE, "--force").exit_code == 0


@contextmanager
def full_disk(most=2000):
    """Files take so many bytes, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("output", ["new.pt", "new.safetensors", "new.pt2", "new.onnx"])
def test_a_full_disk_is_one_sentence(folder, output):
    with full_disk():
        refused("convert", "net.pt", *SIZE, "-o", output, match=f"C2A301 {output} cannot be written: ")
    assert [path.name for path in folder.iterdir()] == ["net.pt"]


def test_an_export_says_nothing_of_packages_that_it_does_not_need(folder, monkeypatch, caplog):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "torchvision" else find(name, *of)
    )
    assert call("convert", "net.pt", *SIZE, "-o", "new.onnx").exit_code == 0
    assert not [record for record in caplog.records if record.name.startswith("torch.onnx")]


def test_a_report_or_a_row_that_a_full_disk_cuts_leaves_what_was_there(folder):
    with full_disk(most=100):
        cut = call("inspect", "net.pt", "--report", "report.html")
        assert cut.exit_code == 2
        assert "C2A301 report.html cannot be written: " in cut.stderr
    assert not (folder / "report.html").exists()


def test_skipped_layers_do_not_count(folder):
    result = call("convert", "net.pt", *SIZE, "--skip", "b*")
    assert result.exit_code == 0
    assert "holds (proved); layers: 1 holds, 0 refuted, 0 undecided, 0 unsupported, 1 skipped" in result.stdout


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_dtypes(folder, dtype):
    assert call("convert", "net.pt", *SIZE, "--dtype", dtype).exit_code == 0


def test_images_of_the_user(folder):
    torch.save({"images": torch.randn(2, 3, 32, 32)}, "images.pt")
    assert "2 images of images.pt" in call("convert", "net.pt", "--inputs", "images.pt").stdout


def test_demo_ends_with_three_commands_that_can_be_typed(tmp_path):
    result = call("demo", "-o", tmp_path / "kept.pt")
    assert result.exit_code == 0
    assert "same top-1 class: 10 of 10" in result.stdout
    written, *following = result.stderr.splitlines()
    assert written == f"wrote {tmp_path / 'kept.pt'}"
    assert len(conv2attn.conversion_of(conv2attn.load(tmp_path / "kept.pt")).rows) == 20
    refused("demo", "-o", tmp_path / "kept.pt", match="C2A305")
    commands = [shlex.split(line) for line in following if line.startswith("  ")]
    assert [command[1] for command in commands] == ["convert", "verify", "explore"]
    for program, name, *arguments in commands:
        assert program == "conv2attn"
        assert Path(arguments[0]).is_file()
        made = [tmp_path / word if word[0] not in "-." and word != arguments[0] else word for word in arguments]
        if name != "verify":
            main.commands[name].make_context(name, [*map(str, made)])


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


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [(ZeroDivisionError("planted"), 70, "ZeroDivisionError: planted"), (KeyboardInterrupt(), 130, "interrupted\n")],
)
def test_a_crash_or_an_interruption_is_not_a_refutation(folder, monkeypatch, raised, code, told):
    def crash(*arguments, **options):
        raise raised

    monkeypatch.setattr("conv2attn.cli.network_files.certify", crash)
    result = call("convert", "net.pt", *SIZE)
    assert (result.exit_code, told in result.stderr) == (code, True)
    assert not (folder / "net.attn.pt").exists()


COMMANDS = main.commands


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


OPTIONS = {name: options_of(each) for name, each in COMMANDS.items()}


def test_options_mean_the_same_in_every_command():
    """What a network runs on is --inputs or --input-size, and layers are chosen by --only and --skip."""
    assert {name for name, own in OPTIONS.items() if "--only" in own} == {
        *("convert", "soften", "explore", "heads", "check-span", "recover", "distil", "train")
    }
    assert all(("--skip" in own) == ("--only" in own) for own in OPTIONS.values())
    assert all(("--inputs" in own) == ("--input-size" in own) for own in OPTIONS.values())
    assert not any({"--images", "--image"} & own for own in OPTIONS.values())


SENTENCES = [
    (path, text)
    for path in sorted(Path(conv2attn.__file__).parent.rglob("*.py"))
    for text in sentences_of(path)
    if "conv2attn " not in text
]


@pytest.mark.parametrize(("path", "text"), SENTENCES, ids=lambda each: each.name if isinstance(each, Path) else "")
def test_every_option_that_an_error_names_is_one_of_a_command(path, text):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))
    assert named <= set().union(*OPTIONS.values())


def test_what_torch_logs_of_an_export_that_fails_is_left_out(folder):
    """Some 300 lines of traceback stood above the verdict."""
    torch.save(nn.Sequential(nn.Linear(3, 4)), "linear.pt")
    exit_code, told = forked(MAIN.format(["verify", "net.pt", "linear.pt", *SIZE]), folder / "told.txt")
    assert exit_code in (1, 3)
    assert "linear.pt" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("suffix", ["json", "md", "html", "svg", "tex", "csv", "txt"])
def test_a_report_is_written_in_the_form_that_its_suffix_names(folder, suffix):
    form = {"md": "markdown", "tex": "latex", "txt": "text"}.get(suffix, suffix)
    shown = call("inspect", "net.pt", "--format", form, "--report", f"report.{suffix}", "--wide")
    assert shown.exit_code == 0
    assert shown.stdout == (folder / f"report.{suffix}").read_text()


WRITING = [
    (name, option) for name, each in main.commands.items() for option in each.params if isinstance(option.type, Written)
]


@pytest.mark.parametrize(("name", "option"), WRITING, ids=lambda each: each if isinstance(each, str) else each.name)
def test_every_file_that_is_written_has_a_suffix_of_its_option(folder, name, option):
    """Also where it begins with a suffix of another kind: `explore -o page.doc` wrote HTML."""
    asked = [*shlex.split(main.commands[name].example)[2:], option.opts[0], "made.doc"]
    for word in asked:
        if word.endswith((".pt", ".json", ".toml")) and not (folder / word).exists():
            (folder / word).touch()
    refused(name, *asked, "--force", match=f"C2A308 {option.opts[0]} made.doc has none of the suffixes .")
    assert not (folder / "made.doc").exists()


def test_files_and_options_are_checked_before_torch_is_imported(folder):
    (folder / "run").mkdir()
    (folder / "run" / "metrics.csv").touch()
    for asked in (
        "convert missing.pt",
        "verify net.pt missing.pt",
        "explore net.pt -o page.gif",
        "symmetric net.pt",
        "train quadratic --data digits -o run",
        "distil net.pt -o out.pt --max-loss 0",
        "distil net.pt -o out.pt --max-loss 1 --kernel-size 4",
        "distil net.pt -o out.pt --max-loss 1",
    ):
        run = f"from conv2attn.cli import main\ntry: main({asked.split()})\nexcept SystemExit as end: code = end.code"
        probe = f"{run}\nimport sys; assert code == 2 and 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)


def test_quiet_says_the_verdict_alone_and_verbose_says_more(folder):
    tensors = torch.load(save_residual(folder / "weights.pt"), weights_only=True)
    verdict, _, rest = call("inspect", "weights.pt").stdout.partition("\n")
    assert call("inspect", "weights.pt", "-q").stdout == f"{verdict}\n"
    assert f"{len(tensors)} tensors" in rest
    assert "layer1.0.conv1.weight" in call("inspect", "weights.pt", "-v").stdout


def forked(code, output, *closed):
    """The exit code of code in a process that has imported libraries, and what it says."""
    exit_code = run_apart(run_with_streams, code, output, closed)
    return exit_code, output.read_text() if output.exists() else ""


def test_a_closed_output_keeps_the_exit_code_of_the_verdict(folder):
    """As a job of cron leaves it: Python has None in place of the stream."""
    call_closed = f"exec {sys.executable} -m conv2attn convert missing.pt >&- 2>&-"
    assert subprocess.run(["sh", "-c", call_closed], check=False).returncode == 2
    verify = MAIN.format(["verify", "net.pt", "net.pt", *SIZE])
    assert forked(verify, folder / "said.txt", "stdout", "stderr") == (0, "")
    assert forked(MAIN.format(["inspect", "net.pt"]), folder / "said.txt", "stdout") == (0, "")


MAIN = "from conv2attn.cli import main; main({})"
INTERRUPTED = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
class Pressing:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressing())
{MAIN.format(["inspect", "net.pt"])}
"""
STARTING = ["click", "conv2attn.lab", "numpy", "torch", "torch._C", "torch.nn.functional"]


@pytest.mark.parametrize("module", STARTING)
def test_an_interruption_while_the_program_starts_is_one_word(folder, module):
    run = subprocess.run(
        [sys.executable, "-c", f"MODULE = {module!r}\n{INTERRUPTED}"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "interrupted\n")


def test_an_interruption_once_torch_is_there_is_one_word(folder):
    code = f"MODULE = 'conv2attn.files.inspection'\n{INTERRUPTED}"
    assert forked(code, folder / "said.txt") == (130, "interrupted\n")


def test_a_link_stays_one_and_what_it_leads_to_is_written(folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "kept.pt").touch()
    (folder / "link.pt").symlink_to("elsewhere/kept.pt")
    assert call("convert", "net.pt", "-o", "link.pt", *SIZE, "--force").exit_code == 0
    assert (folder / "link.pt").is_symlink()
    assert (folder / "elsewhere" / "kept.pt").stat().st_size > 1000
    assert sorted(each.name for each in (folder / "elsewhere").iterdir()) == ["kept.pt"]
