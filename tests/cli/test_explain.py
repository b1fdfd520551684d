"""Each code is explained with a call that gives it, and the call gives it."""

import contextlib
import io
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.errors import ERROR_RULES, Conv2AttnError

EXAMPLE_FILES = Path(conv2attn.__file__).parents[1] / "examples"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the examples name."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE_FILES / "resnet18.pt", tmp_path)
    shutil.copy(EXAMPLE_FILES / "attention-quadratic.pt", "attention.pt")
    conv2attn.save(conv2attn.convert(nn.Conv2d(3, 4, 3)), "layer.pt")
    Path("empty.pt").touch()
    Path("notes.txt").write_text("hello")
    torch.save({"a.weight": torch.zeros(2, 2)}, "other.pt")
    np.savez("heads.npz", heads=np.full((9, 25, 25), 1 / 25))


@pytest.mark.parametrize("code", ERROR_RULES)
def test_the_example_of_a_code_gives_it(code, folder):
    mark, _, call = ERROR_RULES[code].example.partition(" ")
    said = io.StringIO()
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(said):
        warnings.simplefilter("always")
        if mark == "$":
            said.write(CliRunner().invoke(main, shlex.split(call)[1:]).output)
        else:
            try:
                exec(call, {"__name__": "__main__", "torch": torch, "nn": nn, "conv2attn": conv2attn})
            except Conv2AttnError as error:
                said.write(str(error))
    assert code in said.getvalue() + " ".join(str(each.message) for each in told)


def test_explain_gives_cause_example_and_remedy():
    listing = " ".join(CliRunner().invoke(main, ["explain"]).stdout.split())
    for code, rule in ERROR_RULES.items():
        text = CliRunner().invoke(main, ["explain", code.lower()], env={"COLUMNS": "80"}).stdout
        said = " ".join(text.split())
        assert all(part in said for part in (rule.why, rule.example, rule.remedy)), code
        assert max(len(line) for line in text.splitlines() if not line.startswith("  ")) <= 80
        assert f"{code} {rule.title}" in listing
