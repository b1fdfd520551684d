"""An annotation of a run on GitHub."""

import pytest
import torch
from commands import SIZE, call, residual
from torch import nn

import conv2attn


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
