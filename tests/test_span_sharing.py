"""Two processes give the verdicts and the figures of one, and none waits for another that has failed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from attentions import LINE, OFFSETS, hard, soft

from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.span.conditions.sharing import Crew, sendable, shared_out

pytestmark = pytest.mark.slow
START = """
import sys
import torch.distributed as dist
from attentions import LINE, OFFSETS, hard, soft
from conv2attn import check_span
from conv2attn.span.mixings import evaluation
from conv2attn.span.conditions import portions
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
CHUNKS = """
import numpy as np
images = np.stack([soft((5, 6), 2.0), soft((5, 6), 1.5), soft((5, 6), 2.5)])
reports = [check_span(images, grid=(5, 6), memory_limit=10**6, sampled=True)]
reports += [check_span(soft((5, 6), 46.0), grid=(5, 6), memory_limit=10**6)]
reports += [check_span(np.stack([hard((7,), LINE), hard((7,), LINE)[::-1]]), 3, grid=(7,))]
print("[" + ",".join(report.to_json() for report in reports) + "]")
if world > 1:
    dist.destroy_process_group()
"""
FAILS = """
if rank == 1:
    def planted(*arguments):
        raise ValueError("planted in one process")
    evaluation.parts_of = planted
try:
    check_span(soft((5, 6), 2.0), grid=(5, 6), memory_limit=10**6)
finally:
    dist.destroy_process_group()
"""
DROPS = """
if rank == 1:
    everything = portions.portions
    portions.portions = lambda *given: (portion for portion in everything(*given) if 7 not in portion.members)
try:
    check_span(soft((5, 6), 2.0), grid=(5, 6), memory_limit=1)
finally:
    dist.destroy_process_group()
"""
VANISHES = """
if rank == 1:
    import os
    evaluation.parts_of = lambda *given: os._exit(9)
check_span(soft((5, 6), 2.0), grid=(5, 6), memory_limit=10**6)
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


def rounding(arrays):
    """What grouping the rows otherwise does to a least-squares mixing: gamma_n kappa^2, n rows (Wedin 1973)."""
    found = 0.0
    for array in arrays:
        rows = np.moveaxis(array.reshape(-1, *array.shape[-3:]), 1, 0).reshape(array.shape[-3], -1)
        singular = np.linalg.svd(rows, compute_uv=False)
        found = max(found, gamma(rows.shape[1], 2.0**-53) * (singular[0] / singular[-1]) ** 2)
    return found


def assert_same(one, two, allowed):
    """Equal in everything but floats, and those to rounding: floors are to `max_phi` times it, for they contain it."""
    for key in one.keys() | two.keys() if isinstance(one, dict) else range(max(len(one), len(two))):
        mine, other = one[key], two[key]
        assert type(mine) is type(other), key
        if key in ("weights", "witness"):
            continue
        if isinstance(mine, dict | list):
            assert_same(mine, other, allowed)
        elif isinstance(mine, float) and key == "floor":
            assert mine == pytest.approx(other, rel=allowed, abs=1e6 * allowed), key
        elif isinstance(mine, float):
            assert mine == pytest.approx(other, rel=allowed, abs=allowed), key
        else:
            assert mine == other, key


def test_images_and_chunks_of_one_layer_are_shared_out(tmp_path, request):
    started = [start(CHUNKS, *who, tmp_path, request.config.rootpath) for who in ((0, 1), (0, 2), (1, 2))]
    assert [run.wait(timeout=120) for _, run in started] == [0, 0, 0], printed(started[1][0], "txt")
    alone, first, second = (json.loads(printed(name)) for name, _ in started)
    assert first == second
    images = np.stack([soft((5, 6), alpha) for alpha in (2.0, 1.5, 2.5)])
    allowed = rounding([images, *images, soft((5, 6), 46.0), hard((7,), LINE)])
    assert allowed < 1e-10
    assert_same(alone, first, allowed)
    assert [report["verdict"] for report in alone] == ["refuted", "holds", "refuted"]
    assert alone[0]["layers"][0]["conditions"][1]["queries"] == 3 * 30


@pytest.mark.parametrize(
    ("script", "message"),
    [(FAILS, "ValueError: planted in one process"), (DROPS, "image 0, query 7 was looked at 0 times, not once")],
)
def test_an_error_in_one_process_ends_both(script, message, tmp_path, request):
    began = time.monotonic()
    started = [start(script, rank, 2, tmp_path, request.config.rootpath) for rank in (0, 1)]
    assert [run.wait(timeout=120) for _, run in started] == [1, 1]
    assert time.monotonic() - began < 100
    assert all(message in printed(name, "txt") for name, _ in started)
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
    asked = ["heads.npz", "--grid", "9x10", "--memory-limit", "1", "--format", "json"]
    alone = subprocess.run(
        [sys.executable, "-m", "conv2attn", "check-span", *asked], capture_output=True, text=True, cwd=arrays
    )
    assert alone.returncode == 1, alone.stderr
    together = torchrun([*asked, "--report", "report.json"], arrays)
    assert together.returncode == 1
    assert_same(
        json.loads(alone.stdout), json.loads(together.stdout), rounding([soft((9, 10), a) for a in (2.0, 46.0)])
    )
    assert (arrays / "report.json").read_text() == together.stdout
    assert "exitcode  : 70" not in together.stderr


def test_torchrun_ends_with_0_where_all_hold(arrays):
    found = torchrun(["hard.npz", "--grid", "9x10", "--output", "report.txt"], arrays)
    assert found.returncode == 0, found.stderr
    assert found.stdout == ""
    assert "1 holds, 0 refuted" in (arrays / "report.txt").read_text()


def test_a_refusal_under_torchrun_is_told_once(arrays):
    found = torchrun(["missing.npz"], arrays)
    assert found.returncode == 1
    assert found.stderr.count("error: C2A301") == 1
    assert "exitcode  : 2" in found.stderr


def test_tasks_of_one_process_are_done_in_order_and_the_first_refusal_counts():
    assert shared_out([lambda crew: 1, lambda crew: crew.size]) == [1, 1]

    def refused(crew):
        raise UsageError("C2A001", "this is refused")

    with pytest.raises(UsageError, match="this is refused"):
        shared_out([lambda crew: 1, refused])
    with pytest.raises(ZeroDivisionError):
        Crew().together(lambda: 1 // 0)


def test_errors_that_cannot_be_sent_are_sent_as_text():
    class Local(Exception):
        pass

    assert str(sendable(Local("here"))) == "Local: here"
    refusal = UsageError("C2A001", "found")
    assert sendable(refusal) is refusal
