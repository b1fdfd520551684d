"""The table of devices in docs/engines.md, run: each public name on the CPU and on the imitated devices."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import torch
from imitated_device import DEVICE, imitated
from public_calls import CALLS
from torch import nn

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
    assert with_tensors >= {"as_basis", "capture", "convert", "express", "from_mha", "recover", "to_mha", "to_torch"}
