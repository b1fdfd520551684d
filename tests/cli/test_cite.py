"""One sentence that cites a result, and an annotation of a run on GitHub."""

import hashlib
import re
from importlib import metadata
from pathlib import Path

import pytest
import torch
from commands import SIZE, call, residual
from torch import nn

import conv2attn
from conv2attn.cli.cite import PAPER


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    conv2attn.save(residual(), "net.pt")
    conv2attn.save(conv2attn.convert(residual()), "net.attn.pt")
    other = conv2attn.convert(residual())
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    conv2attn.save(other, "other.pt")
    return tmp_path


@pytest.mark.parametrize(("other", "verdict", "code"), [("net.attn.pt", "holds", 0), ("other.pt", "refuted", 1)])
def test_a_verification_is_cited_in_one_sentence(folder, other, verdict, code):
    result = call("verify", "net.pt", other, *SIZE, "--cite")
    sentence, _, bibtex = result.stdout.partition("\n\n")
    assert result.exit_code == code
    assert f": {verdict}" in sentence
    for name in ("net.pt", other):
        assert f"{name} (sha256 {hashlib.sha256((folder / name).read_bytes()).hexdigest()})" in sentence
    assert "1 random image 3x12x10" in sentence
    assert metadata.version("conv2attn") in sentence
    assert f"`conv2attn verify net.pt {other} --input-size 3x12x10`" in sentence
    assert re.findall(r"^@(\w+)\{", bibtex, re.M) == ["software", "inproceedings"]


def test_heads_are_cited_with_their_inputs(folder):
    result = call("heads", "net.attn.pt", "--grid", "12x10", "--cite")
    assert result.exit_code == 0
    assert "net.attn.pt (sha256 " in result.stdout.splitlines()[0]
    assert "measured 84 heads" in result.stdout.splitlines()[0]


def test_the_paper_is_that_of_the_citation_file():
    file = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    for line in (
        "On the Relationship between Self-Attention and Convolutional Layers",
        "https://arxiv.org/abs/1911.03584",
    ):
        assert line in file
        assert line in PAPER


@pytest.mark.parametrize(("other", "level"), [("net.attn.pt", "notice"), ("other.pt", "error")])
def test_a_report_is_annotated_for_github(folder, other, level):
    text = call("verify", "net.pt", other, *SIZE).stdout
    annotated = call("verify", "net.pt", other, *SIZE, "--format", "github").stdout
    *_, last = annotated.splitlines()
    assert last.startswith(f"::{level} title=conv2attn ")
    assert text.split(";")[0] in last
    assert len([line for line in annotated.splitlines() if line.startswith("::")]) == 1


def test_an_annotation_is_one_line():
    first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    certificate = conv2attn.certify(first, conv2attn.convert(first).train(), input_size=(3, 6, 7))
    last = certificate.to_github().splitlines()[-1]
    assert last.startswith("::error title=conv2attn refuted::refuted (sampled)")
    assert "%0Athe first network is in evaluation mode" in last
