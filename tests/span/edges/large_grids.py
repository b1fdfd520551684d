"""check-span of large grids: hard heads without their attention, soft heads under a limit of memory."""

import os
import re
import tracemalloc
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import LINE, OFFSETS, hard, soft
from click.testing import CliRunner

from conv2attn import MultiHeadSelfAttention, check_span, convert
from conv2attn.attention import QuadraticEncoding
from conv2attn.cli import main
from conv2attn.errors import UsageError
from conv2attn.span.conditions.problem import shifts
from conv2attn.span.programme.memory import least_limit
from conv2attn.span.sources.reading import MEMORY_LIMIT, read_array
from conv2attn.verdicts import Strength, Verdict

MIB = 2**20
KEPT = 12
"""MiB that the allocator and the solver keep beside what is counted: 1 to 10, as measured."""


def test_a_hard_layer_whose_attention_would_not_fit():
    stem = convert(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3))
    report = check_span(stem, grid=(80, 80))
    assert [c.verdict for c in report.rows[0].conditions] == [Verdict.HOLDS] * 3
    assert [c.queries for c in report.rows[0].conditions] == [40**2] * 3
    assert 4 * report.rows[0].heads * 40**2 * prod(report.rows[0].grid) > MEMORY_LIMIT
    assert {c.strength for c in report.rows[0].conditions} == {Strength.PROVED}
    wider = check_span(stem, 9, grid=(80, 80))
    assert wider.verdict is Verdict.REFUTED
    assert [t.verdict for t in wider.rows[0].deciding.targets].count(Verdict.HOLDS) == 49


def two_images(offsets, sides):
    """The array, after modules have been imported."""
    check_span(soft((3, 3), 2.0), grid=(3, 3))
    return np.stack([soft(sides, alpha, offsets).astype(np.float32) for alpha in (1.5, 2.0)])


def test_memory_stays_under_the_least_limit_that_is_accepted():
    images = two_images([(0, 0)], (7, 7))
    with pytest.raises(UsageError, match="MiB of memory") as refused:
        check_span(images, 5, grid=(7, 7), memory_limit=MIB)
    limit = int(re.search(r"need (\d+) MiB", str(refused.value))[1])
    tracemalloc.start()
    check_span(images, 5, grid=(7, 7), memory_limit=limit * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= limit * MIB


def resident(kind):
    """MiB of this process: VmRSS, or VmHWM at most so far."""
    return int(re.search(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of resident memory")
def test_resident_memory_stays_under_the_least_limit_once_libraries_are_loaded():
    layer = MultiHeadSelfAttention(1, 1, QuadraticEncoding(torch.tensor(OFFSETS, dtype=torch.float32), 0.9))
    check_span(layer, grid=(12, 12))
    with pytest.raises(UsageError, match="MiB of memory") as refused:
        check_span(layer, grid=(20, 20), memory_limit=MIB)
    limit = int(re.search(r"need (\d+) MiB", str(refused.value))[1])
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        check_span(layer, grid=(20, 20), memory_limit=limit * MIB)
        os._exit(min(255, round(resident("VmHWM") - before)))
    used = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert limit / 3 < used <= limit + KEPT


@pytest.mark.parametrize(
    ("offsets", "kernel_size", "sides", "limit"),
    [
        (OFFSETS, 3, (16, 17), 4),
        ([(0, 0)], 7, (16, 17), 4),
        (list(product(range(-2, 3), repeat=2)), 5, (12, 13), 8),
    ],
)
def test_a_limit_that_was_exceeded_is_refused(offsets, kernel_size, sides, limit):
    with pytest.raises(UsageError, match="MiB of memory"):
        check_span(two_images(offsets, sides), kernel_size, grid=sides, memory_limit=limit * MIB)


@pytest.mark.parametrize(("images", "heads", "kernel_size"), [(64, 12, 7), (1, 16, 9), (300, 9, 3)])
def test_the_default_limit_is_enough_for_problems_of_an_ordinary_size(images, heads, kernel_size):
    one = read_array("x", np.full((1, 196, 196), 1 / 196), grid=(14, 14), dimensions=2, memory_limit=MIB)
    around = range(-(kernel_size // 2), kernel_size // 2 + 1)
    asked = shifts(one.grid, list(product(around, repeat=2)))
    assert least_limit(replace(one, images=images, heads=heads), asked, 3 + images) <= MEMORY_LIMIT


def test_the_limit_is_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("line.npy", hard((9,), LINE))

    def call(*options):
        return CliRunner().invoke(main, ["check-span", "line.npy", "--grid", "9", "--kernel-size", "3", *options])

    assert call("--memory-limit", "1").stdout == call().stdout
    refused = call("--memory-limit", "0")
    assert refused.exit_code == 2
    assert "'--memory-limit': 0 is not in the range x>=1" in refused.stderr
