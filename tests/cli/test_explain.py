"""Each code is explained with a call that gives it, and the call gives it."""

import contextlib
import io
import json
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from commands import SIZE, call, save_residual
from torch import nn

import conv2attn
from conv2attn import proofs
from conv2attn.cli import main
from conv2attn.errors import ERROR_RULES, Conv2AttnError, UsageError

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


@pytest.mark.rotated
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


def test_a_row_is_explained_down_to_the_axioms(folder):
    """Its numbers, the claims they name and nothing else, what they need, and what does not hold."""
    save_residual(Path("net.pt"))
    call("convert", "net.pt", *SIZE)
    call("verify", "net.pt", "net.attn.pt", *SIZE, "--report", "certificate.json")
    document = json.loads(Path("certificate.json").read_text())
    row = next(each for each in document["rows"] if each["name"] == "layer1.0.conv1")
    said = " ".join(CliRunner().invoke(main, ["explain", "--row", row["name"], "certificate.json"]).stdout.split())
    named = {*row["licensed_by"]["bound"], *row["licensed_by"]["leak"], "L1", "T1p"}
    assert said.endswith("--formal")
    assert set(said.partition("Check it: conv2attn prove ")[2].split()[:-1]) == named
    for name in named:
        assert f"{name}: {proofs.decide(name).claim.title}" in said
    assert f"bound {row['bound']:.3g}: " in said
    assert "Classical_Prop.classic" in said
    row["licensed_by"]["missing"] = ["ROW: every target is a key"]
    row["licensed_by"]["bound"] = ["steps without a theorem"]
    said = " ".join(proofs.explain_row(document, row["name"]).split())
    assert "Premises that do not hold here: ROW: every target is a key." in said
    assert "FLOAT: Computed attention" not in said
    with pytest.raises(UsageError, match=r"^C2A004 the certificate has no row 'layer9'"):
        proofs.explain_row(document, "layer9")
    for spoilt in ({**document, "rows": [1]}, {**document, "rows": [{"name": "conv1"}]}, {"rows": [row]}):
        with pytest.raises(UsageError, match=r"^C2A303 the certificate has not what one of this version has"):
            proofs.explain_row(spoilt, row["name"] if row in spoilt["rows"] else "conv1")


@pytest.mark.parametrize("name", proofs.CLAIMS)
def test_a_claim_is_explained_with_its_premises_and_theorems(name):
    claim = proofs.load(name, proofs.CLAIMS)
    said = " ".join(CliRunner().invoke(main, ["explain", name.lower()]).stdout.split())
    assert said.startswith(f"{name}: {claim.title}")
    assert all(f"Premise: {each[:20]}" in said for each in claim.conditions)
    assert f"conv2attn prove {name} --formal" in said
