"""The table of devices in docs/engines.md, run: each public name on the CPU and on the imitated devices."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from imitated_device import DEVICE, counting, imitated
from public_calls import CALLS
from torch import nn

from conv2attn.cli import main
from conv2attn.errors import Conv2AttnError

PAGE = Path(__file__).parent.parent / "docs" / "engines.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \|$", re.M)
TABLE = {name: cells for name, *cells in ROW.findall(PAGE.read_text())}


def outcome(name, device, file):
    """Whether the call is run or refused in a sentence; any other error is one of a test."""
    build, call = CALLS[name]
    made = build()
    try:
        call(made.to(device) if isinstance(made, nn.Module) else made, device, file)
    except Conv2AttnError:
        return "refused"
    return "run"


def test_the_table_has_each_public_name_that_is_called():
    assert TABLE.keys() == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_the_table_says_what_runs_where(name, tmp_path):
    found = [outcome(name, torch.device("cpu"), tmp_path / "cpu.pt")]
    for float64 in (True, False):
        with imitated(float64):
            ran = outcome(name, DEVICE, tmp_path / f"{float64}.pt")
            found.append({"run": "imitated"}.get(ran, ran))
    assert found == TABLE[name]


def tensors_of(result):
    """The tensors of a result: of modules, sequences, mappings and dataclasses."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, nn.Module):
        return [*result.parameters(), *result.buffers()]
    if isinstance(result, Mapping):
        return [each for value in result.values() for each in tensors_of(value)]
    if isinstance(result, tuple | list):
        return [each for value in result for each in tensors_of(value)]
    if is_dataclass(result):
        return [each for field in fields(result) for each in tensors_of(getattr(result, field.name))]
    return []


@pytest.mark.parametrize("name", sorted({*CALLS} - {"load"}))
def test_what_is_returned_lives_where_the_input_lives(name, device, tmp_path):
    build, call = CALLS[name]
    returned = call(build().to(device), device, tmp_path / "it.pt")
    assert {tensor.device for tensor in tensors_of(returned)} <= {torch.empty(0).to(device).device}


def test_tensors_are_found_in_all_that_is_returned():
    made = {name: call(build(), "cpu", None) for name, (build, call) in CALLS.items() if name not in ("load", "save")}
    with_tensors = {name for name, result in made.items() if tensors_of(result)}
    assert with_tensors >= {"as_basis", "capture", "convert", "express", "recover", "to_mha", "to_torch"}


BUILD = "from torch import nn\nbuild = lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 1))\n"
COMMANDS = {
    "convert": ["net.pt", "--arch", "net.py:build", "--input-size", "2x5x6", "-o", "new.pt"],
    "symmetric": ["net.pt", "--arch", "net.py:build", "--input-size", "2x5x6", "--flip"],
    "train": ["quadratic", "--data", "digits", "--layers", "1", "--width", "9", "--epochs", "1", "-o", "run"],
    "verify": ["net.pt", "net.pt", "--arch", "net.py:build", "--input-size", "2x5x6"],
}
"""Arguments of the commands that take --device."""


def commands_with_a_device(command, *names):
    """The commands below this one that have an option --device."""
    below = getattr(command, "commands", {})
    found = [each for name, sub in below.items() for each in commands_with_a_device(sub, *names, name)]
    return [*found, " ".join(names)] if any("--device" in each.opts for each in command.params) else found


def test_the_page_names_the_commands_that_take_a_device():
    named = re.search(r"The commands (.*) take `--device`", PAGE.read_text())[1]
    assert re.findall(r"`([\w ]+)`", named) == sorted(commands_with_a_device(main))
    assert sorted(COMMANDS) == sorted(commands_with_a_device(main))


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_on_the_device(name, float64, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(BUILD)
    torch.save(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 1)).state_dict(), "net.pt")
    with imitated(float64), counting() as counts:
        done = CliRunner().invoke(main, [name, *COMMANDS[name], "--device", DEVICE.type])
    assert done.exit_code == (1 if name == "symmetric" else 0), done.output
    assert counts.operators
