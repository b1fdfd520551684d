"""Differences that the derived bound on rounding cannot refute are told beside the rounding that was measured."""

import copy
import re

import pytest
import torch
from torch import nn

from conv2attn.equality import certify
from conv2attn.verdicts import Verdict

TIMES = r"([\d.e+]+) times what rounding to float32 changes in either there"


def deep() -> nn.Sequential:
    """Thirty orthogonal layers: rounding stays small, while a bound by absolute values grows by a factor a layer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(16, 16) for _ in range(30)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight)
    return nn.Sequential(*layers).eval()


def told(change: float) -> str:
    """What is said of `deep` and a copy whose last bias is larger by `change`; it refutes nothing."""
    first = deep()
    second = copy.deepcopy(first)
    with torch.no_grad():
        second[-1].bias[0] += change
    images = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    report = certify(first, second, images=images)
    assert report.verdict is Verdict.UNDECIDED
    return report.to_text(verbose=True)


@pytest.mark.parametrize("change", [0.17, 0.01])
def test_a_difference_is_told_as_a_multiple_of_the_measured_rounding(change):
    text = " ".join(told(change).split())
    assert "no number shows" not in text
    assert "the bound that is derived on rounding is larger yet, so this refutes nothing" in text
    assert "rounding to float32 may explain it" not in text
    times = float(re.search(TIMES, text)[1])
    assert change / 2e-5 < times < change / 1e-7


def test_a_difference_of_a_few_roundings_is_no_multiple_of_them():
    text = " ".join(told(1e-6).split())
    assert "of the size of rounding weights to float32" in text
    assert "times what rounding" not in text
