"""Every command of docs/check-span.md and docs/heads.md runs as written, on files of the kinds that it names."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard
from commands import call
from safetensors.torch import save_file

import conv2attn
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan

ROOT = Path(conv2attn.__file__).parent.parent
PAGES = {"check-span": (0, 1), "heads": (0,)}
"""Exit codes of the commands of each page."""
SELF = '''
import torch


class SelfAttention(torch.nn.MultiheadAttention):
    """Its image's pixels attend to each other."""

    def forward(self, image):
        tokens = image.flatten(2).mT
        return super().forward(tokens, tokens, tokens)


def factory():
    return SelfAttention(4, 2, batch_first=True)
'''
ELSEWHERE = "timm:"
"""Models of packages are asked for in tests/real."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the commands name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "module.py").write_text(SELF)
    np.savez("heads.npz", heads=hard((14, 14), OFFSETS))
    with_class = np.zeros((9, 26, 26))
    with_class[:, 0, 0], with_class[:, 1:, 1:] = 1, hard((5, 5), OFFSETS)
    np.save("heads.npy", with_class)
    np.save("boxes.npy", hard((4, 4), OFFSETS).astype(np.int64))
    np.save("images.npy", np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32))
    plan = ClassifierPlan(encoding="quadratic", layers=1, width=4, side=10, patch=2)
    conv2attn.save(AttentionClassifier(plan), "model.pt")
    space = {}
    exec(SELF, space)
    save_file(space["factory"]().state_dict(), "model.safetensors")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs(page, folder):
    commands = re.findall(r"^conv2attn (.*?)(?:\s+#.*)?$", (ROOT / "docs" / f"{page}.md").read_text(), re.M)
    assert len(commands) >= 7
    for command in commands:
        if ELSEWHERE in command:
            continue
        result = call(*shlex.split(command), *after(command))
        assert result.exception is None or isinstance(result.exception, SystemExit), command
        assert result.exit_code in PAGES[page], (command, result.output)


def after(command):
    """Attention of a class token that nobody names has the sides of its pixels and one more."""
    unnamed = command.startswith("check-span heads.npy") and "--extra" not in command
    return ["--grid", "26", "--kernel-size", "3"] if unnamed else []
