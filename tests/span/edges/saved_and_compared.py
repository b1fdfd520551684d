"""Attention that torch.save wrote, curves over layers, and tokens that a network says are no pixels."""

import json

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, soft
from commands import call
from torch import nn

from conv2attn import check_span, heads

SHIFTS, SOFT = (torch.from_numpy(each) for each in (hard((4, 4), OFFSETS), soft((4, 4), 0.5)))


def names(result):
    return [(layer["name"], layer["conditions"][0]["verdict"]) for layer in json.loads(result.stdout)["layers"]]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (SHIFTS, ["attention"]),
        ((SHIFTS[None], SHIFTS[None]), ["layer 0", "layer 1"]),
        ([SHIFTS[None]], ["layer 0"]),
        ({"a": SHIFTS, "b": SHIFTS[None]}, ["a", "b"]),
    ],
)
def test_attention_of_torch_save(held, expected, tmp_path):
    torch.save(held, tmp_path / "attention.pt")
    found = call("check-span", tmp_path / "attention.pt", "--format", "json")
    assert names(found) == [(name, "holds") for name in expected]


@pytest.mark.parametrize("held", [{"conv.weight": torch.randn(3, 3, 3, 3)}, [1, 2], SHIFTS.long(), -SHIFTS])
def test_what_is_no_attention_is_refused(held, tmp_path, monkeypatch):
    monkeypatch.setattr("conv2attn.files.registries.MODEL_LIBRARIES", {})  # whose import is slow
    torch.save(held, tmp_path / "other.pt")
    assert call("check-span", tmp_path / "other.pt").exit_code == 2


def test_curves_over_the_layers(tmp_path):
    np.savez(tmp_path / "before.npz", first=SHIFTS, second=SOFT)
    assert call("heads", tmp_path / "before.npz", "--curves", tmp_path / "curves.png").exit_code == 0
    assert (tmp_path / "curves.png").stat().st_size > 0


class Classified(nn.Module):
    """Nine shifts between pixels, behind a class token."""

    def __init__(self):
        super().__init__()
        self.attend = Attend()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images):
        return self.attend(nn.functional.pad(self.scale * images.flatten(2).mT, (0, 0, 1, 0)))


class Attend(nn.Module):
    num_heads = 9

    def forward(self, tokens):
        scores = torch.zeros(9, 17, 17).to(tokens)
        scores[:, 1:, 1:] = 1e9 * SHIFTS.to(tokens)
        return torch.softmax(scores[None], -1) @ tokens[:, None]


@pytest.mark.parametrize("option", [(), ("--extra-tokens", "1")])
def test_a_class_token_is_inferred(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Classified().state_dict(), "model.pt")
    np.save("images.npy", np.zeros((1, 3, 4, 4), np.float32))
    asked = ["check-span", "model.pt", "--arch", f"{__name__}:Classified", "--inputs", "images.npy", *option]
    assert names(call(*asked, "--format", "json")) == [("attend", "holds")]


def test_an_array_of_a_square_and_one_more_is_read_behind_a_class_token_and_says_so():
    behind = np.pad(SHIFTS.numpy().astype(float), ((0, 0), (1, 0), (1, 0)))
    behind[:, 0, 0] = 1
    report = check_span(behind)
    assert (report.verdict.value, report.rows[0].grid) == ("holds", (4, 4))
    for said in (report, heads([behind[None], behind[None]])):
        assert "17 tokens are taken for 1 + 4x4" in " ".join(said.to_text().split())
