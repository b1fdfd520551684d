"""Two processes give the verdicts and the figures of one, and none waits for another that has failed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from attentions import OFFSETS, hard, soft

from conv2attn.errors import UsageError
from conv2attn.span.conditions.sharing import Crew, sendable, shared_out

pytestmark = pytest.mark.slow
START = """
import sys
import torch.distributed as dist
from attentions import LINE, OFFSETS, hard, soft
from conv2attn import check_span
from conv2attn.span.programme import cuts
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
"""
LAYERS = """
layers = {f"alpha {a}": soft((5, 6), a) for a in (0.5, 2.0, 46.0)} | {"hard": hard((5, 6), OFFSETS)}
print(check_span(layers, grid=(5, 6)).to_json())
try:
    check_span(layers | {"broken": 2 * hard((5, 6), OFFSETS)}, grid=(5, 6))
except Exception as error:
    print(error, file=sys.stderr)
if world > 1:
    dist.destroy_process_group()
"""
FAILS = """
if rank == 1:
    def planted(*arguments):
        raise ValueError("planted in one process")
    cuts.left_by = planted
try:
    check_span({"one": soft((5, 6), 2.0), "two": soft((5, 6), 2.0)}, grid=(5, 6))
finally:
    dist.destroy_process_group()
"""
VANISHES = """
if rank == 1:
    import os
    cuts.left_by = lambda *given: os._exit(9)
check_span({"one": soft((5, 6), 2.0), "two": soft((5, 6), 2.0)}, grid=(5, 6))
"""


def start(script, rank, world, folder, root):
    """A process in the tests' folder, and what it prints as files."""
    name = folder / f"{rank} of {world}"
    command = [sys.executable, "-W", "ignore", "-c", START + script, str(rank), str(world), str(folder / "store")]
    with open(f"{name}.json", "w") as report, open(f"{name}.txt", "w") as errors:
        return name, subprocess.Popen(command, stdout=report, stderr=errors, cwd=root / "tests")


def printed(name, ending="json"):
    return Path(f"{name}.{ending}").read_text()


def test_layers_are_shared_out(tmp_path, request):
    started = [start(LAYERS, *who, tmp_path, request.config.rootpath) for who in ((0, 1), (0, 2), (1, 2))]
    assert [run.wait(timeout=120) for _, run in started] == [0, 0, 0]
    reports = {printed(name) for name, _ in started}
    assert len(reports) == 1
    verdicts = [layer["verdict"] for layer in json.loads(reports.pop())["layers"]]
    assert verdicts == ["refuted", "refuted", "holds", "holds"]
    assert all("broken: image 0, head 0, query 0 sums to 2" in printed(name, "txt") for name, _ in started)


def test_an_error_in_one_process_ends_both(tmp_path, request):
    began = time.monotonic()
    started = [start(FAILS, rank, 2, tmp_path, request.config.rootpath) for rank in (0, 1)]
    assert [run.wait(timeout=120) for _, run in started] == [1, 1]
    assert time.monotonic() - began < 100
    assert all("ValueError: planted in one process" in printed(name, "txt") for name, _ in started)
    assert all("told to all processes by" in printed(name, "txt") for name, _ in started)


def test_a_process_that_vanishes_ends_the_other(tmp_path, request):
    started = [start(VANISHES, rank, 2, tmp_path, request.config.rootpath) for rank in (0, 1)]
    first, second = (run.wait(timeout=120) for _, run in started)
    assert first != 0
    assert second == 9
    assert printed(started[0][0], "txt").count("another process has ended or does not answer") == 1


def torchrun(arguments, folder):
    """Two processes of the command line under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "conv2attn", "check-span"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=folder, timeout=240)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    np.savez(folder / "heads.npz", soft=soft((9, 10), 2.0), hard=hard((9, 10), OFFSETS), sharp=soft((9, 10), 46.0))
    np.savez(folder / "hard.npz", hard=hard((9, 10), OFFSETS))
    return folder


def test_the_command_line_under_torchrun_says_the_same_once(arrays):
    asked = ["heads.npz", "--grid", "9x10", "--memory-limit", "12", "--format", "json"]
    alone = subprocess.run(
        [sys.executable, "-m", "conv2attn", "check-span", *asked], capture_output=True, text=True, cwd=arrays
    )
    assert alone.returncode == 1, alone.stderr
    together = torchrun([*asked, "--report", "report.json"], arrays)
    assert together.returncode == 1
    assert alone.stdout == together.stdout
    assert (arrays / "report.json").read_text() == together.stdout
    assert "exitcode  : 70" not in together.stderr


def test_torchrun_ends_with_0_where_all_hold(arrays):
    found = torchrun(["hard.npz", "--grid", "9x10", "--report", "report.txt", "-q"], arrays)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("holds")
    assert "1 holds, 0 refuted" in (arrays / "report.txt").read_text()


def test_a_refusal_under_torchrun_is_told_once(arrays):
    found = torchrun(["missing.npz"], arrays)
    assert found.returncode == 1
    assert found.stderr.count("error: C2A301") == 1
    assert "exitcode  : 2" in found.stderr


def test_tasks_of_one_process_are_done_in_order_and_the_first_refusal_counts():
    assert shared_out([lambda: 1, lambda: 2]) == [1, 2]

    def refused():
        raise UsageError("C2A001", "this is refused")

    with pytest.raises(UsageError, match="this is refused"):
        shared_out([lambda: 1, refused])
    with pytest.raises(ZeroDivisionError):
        Crew().together(lambda: 1 // 0)


def test_errors_that_cannot_be_sent_are_sent_as_text():
    class Local(Exception):
        pass

    assert str(sendable(Local("here"))) == "Local: here"
    refusal = UsageError("C2A001", "found")
    assert sendable(refusal) is refusal
