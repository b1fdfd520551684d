"""The table of devices in docs/engines.md, run: each public name on the CPU and on the imitated devices."""

import re
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
