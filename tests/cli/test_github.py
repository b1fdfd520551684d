"""An annotation of a run on GitHub."""

import pytest
import torch
from commands import SIZE, call
from refusals.written import NETWORK
from torch import nn

import conv2attn


@pytest.mark.parametrize(("shift", "level", "verdict"), [(0.0, "notice", "holds"), (1.0, "error", "refuted")])
def test_a_report_is_annotated_for_github(tmp_path, monkeypatch, shift, level, verdict):
    monkeypatch.chdir(tmp_path)
    torch.save(NETWORK, "net.pt")
    other = conv2attn.convert(NETWORK)
    with torch.no_grad():
        other.stem.bias += shift
    conv2attn.save(other, "other.pt")
    lines = call("verify", "net.pt", "other.pt", *SIZE, "--format", "github").stdout.splitlines()
    summary = lines[0].split(";")[0]
    assert summary.startswith(f"{verdict} (")
    assert lines[-1].startswith(f"::{level} title=conv2attn {verdict}::{summary}")
    assert len([line for line in lines if line.startswith("::")]) == 1


def test_an_annotation_is_one_line():
    first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    certificate = conv2attn.certify(first, conv2attn.convert(first).train(), input_size=(3, 6, 7))
    last = certificate.to_github().splitlines()[-1]
    assert last.startswith("::error title=conv2attn refuted::refuted (sampled)")
    assert "%0Athe first network is in evaluation mode" in last
