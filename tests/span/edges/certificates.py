"""Certificates of verdicts are confirmed by the reader of their format, and refused once a number is changed."""

import numpy as np
import pytest
from attentions import LINE, OFFSETS, hard, mixed, soft
from click.testing import CliRunner

from conv2attn.cli import main
from proofs.certificates import answers

CASES = {
    "soft": (soft((3, 4), 1.0), "3x4", 1, ()),
    "soft with a class token": (
        np.random.default_rng(0).dirichlet(np.ones(13), (4, 13)),
        "3x4",
        1,
        ("--extra-tokens", "1"),
    ),
    "hard": (hard((3, 4), OFFSETS), "3x4", 0, ()),
    "a head less": (hard((3, 4), OFFSETS[1:]), "3x4", 1, ()),
    "mixture": (mixed(hard((9,), LINE), 4), "9", 0, ("--kernel-size", "3")),
    "single precision": (soft((8,), 2.0, LINE).astype(np.float32), "8", 1, ("--kernel-size", "3")),
}


@pytest.mark.parametrize("name", CASES)
def test_what_decides_is_confirmed_as_integers(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    array, grid, code, options = CASES[name]
    np.save("heads.npy", array)
    result = CliRunner().invoke(main, ["check-span", "heads.npy", "--grid", grid, "--certificate", "it.txt", *options])
    assert result.exit_code == code, result.output
    text = (tmp_path / "it.txt").read_text()
    found = answers(text)
    assert all(found)
    assert len(found) == text.count("# ") - text.count("without a certificate")
    assert found
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    _, kind, heads, queries, *_ = map(int, lines[0])
    wrong = range(2 + heads + 1, 2 + queries * (heads + 2), heads + 2) if kind else [2]
    for at in wrong:
        lines[at] = [str(-int(number)) for number in lines[at]]
    assert not all(answers("\n".join(map(" ".join, lines))))
