"""Two processes give the verdicts and the figures of one, and none waits for another that has failed."""

import json
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, soft
from forks import FORKS

from conv2attn.errors import UsageError
from conv2attn.span.sharing import Crew, sendable, shared_out

pytestmark = pytest.mark.slow
START = """
import os
import sys
sys.stdout, sys.stderr = open(name + ".json", "w"), open(name + ".txt", "w")
import torch.distributed as dist
from attentions import LINE, OFFSETS, hard, soft
from conv2attn import check_span
from conv2attn.span import planes
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
"""
LAYERS = """
layers = {f"alpha {a}": soft((4, 5), a) for a in (0.5, 2.0, 46.0)} | {"hard": hard((4, 5), OFFSETS)}
print(check_span(layers, grid=(4, 5)).to_json())
try:
    check_span(layers | {"broken": 2 * hard((4, 5), OFFSETS)}, grid=(4, 5))
except Exception as error:
    print(error, file=sys.stderr)
if world > 1:
    dist.destroy_process_group()
"""
FAILS = """
if rank == 1:
    def planted(*arguments):
        raise ValueError("planted in one process")
    planes.left_by = planted
try:
    check_span({"one": soft((4, 5), 2.0), "two": soft((4, 5), 2.0)}, grid=(4, 5))
finally:
    dist.destroy_process_group()
"""
VANISHES = """
if rank == 1:
    planes.left_by = lambda *given: os._exit(9)
check_span({"one": soft((4, 5), 2.0), "two": soft((4, 5), 2.0)}, grid=(4, 5))
"""
COMMAND = """
import os
import sys
sys.stdout, sys.stderr = open(name + ".json", "w"), open(name + ".txt", "w")
os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store}
os.chdir(folder)
from conv2attn.cli import main
from conv2attn.span import planes
exec(planted.get(rank, ""))
main(arguments)
"""


def run(script, ranks, folder, **given):
    """Exit codes of processes (rank, world), and what they print as files."""
    started = []
    for rank, world in ranks:
        name = str(folder / f"{rank} of {world}")
        known = {"name": name, "rank": rank, "world": world, "store": str(folder / "store"), "folder": str(folder)}
        started.append(FORKS.Process(target=exec, args=(script, known | given)))
        started[-1].start()
    for each in started:
        each.join(120)
    return [each.exitcode for each in started], [folder / f"{rank} of {world}" for rank, world in ranks]


def printed(name, ending="json"):
    return Path(f"{name}.{ending}").read_text()


def test_layers_are_shared_out(tmp_path):
    codes, names = run(START + LAYERS, ((0, 1), (0, 2), (1, 2)), tmp_path)
    assert codes == [0, 0, 0], printed(names[0], "txt")
    reports = {printed(name) for name in names}
    assert len(reports) == 1
    verdicts = [layer["conditions"][0]["verdict"] for layer in json.loads(reports.pop())["layers"]]
    assert verdicts == ["refuted", "refuted", "holds", "holds"]
    assert all("broken: image 0, head 0, query 0 sums to 2" in printed(name, "txt") for name in names)


def test_an_error_in_one_process_ends_both(tmp_path):
    began = time.monotonic()
    codes, names = run(START + FAILS, ((0, 2), (1, 2)), tmp_path)
    assert codes == [1, 1]
    assert time.monotonic() - began < 100
    assert all("ValueError: planted in one process" in printed(name, "txt") for name in names)
    assert all("told to all processes by" in printed(name, "txt") for name in names)


def test_a_process_that_vanishes_ends_the_other(tmp_path):
    (first, second), names = run(START + VANISHES, ((0, 2), (1, 2)), tmp_path)
    assert first != 0
    assert second == 9
    assert printed(names[0], "txt").count("another process has ended or does not answer") == 1


def command(arguments, folder, world=2, planted=()):
    """Exit codes of the command line in processes with the environment that torchrun makes, and what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [(rank, world) for rank in range(world)]
    given = {"arguments": ["check-span", *arguments], "planted": dict(planted)}
    codes, names = run(COMMAND, ranks, folder, store=port, **given)
    return codes, [printed(name) for name in names], [printed(name, "txt") for name in names]


def test_the_command_line_of_two_processes_says_the_same_once(tmp_path):
    np.savez(tmp_path / "heads.npz", soft=soft((5, 6), 2.0), hard=hard((5, 6), OFFSETS), sharp=soft((5, 6), 46.0))
    asked = ["heads.npz", "--grid", "5x6", "--memory-limit", "12", "--format", "json"]
    codes, (alone,), _ = command(asked, tmp_path, 1)
    assert codes == [1]
    codes, (first, second), _ = command([*asked, "--report", "report.json"], tmp_path)
    assert codes == [1, 1]
    assert first == alone
    assert second == ""
    assert (tmp_path / "report.json").read_text() == alone
    codes, _, (first, second) = command(["missing.npz"], tmp_path)
    assert (codes, first.count("error: C2A301"), second) == ([2, 2], 1, "")


ELSEWHERE = "os.mkdir('elsewhere'); os.chdir('elsewhere')"
INTERRUPTED = "planes.left_by = lambda *given: signal.raise_signal(signal.SIGINT)"
ENDED = "planes.left_by = lambda *given: os._exit(9)"


@pytest.mark.parametrize(
    ("code", "rank", "exits", "said"),
    [
        (ELSEWHERE, 0, [2, 2], ("error: C2A301 heads.npz does not exist", "")),
        (ELSEWHERE, 1, [2, 2], ("error: C2A301 heads.npz does not exist", "")),
        (INTERRUPTED, 0, [130, 2], ("interrupted", "")),
        (INTERRUPTED, 1, [2, 130], ("error: C2A011 another process has ended", "interrupted")),
        (ENDED, 1, [2, 9], ("error: C2A011 another process has ended", "")),
    ],
)
def test_what_one_process_meets_ends_both_with_one_sentence(tmp_path, code, rank, exits, said):
    np.savez(tmp_path / "heads.npz", one=soft((5, 6), 2.0), two=soft((5, 6), 2.0))
    codes, _, errors = command(["heads.npz", "--grid", "5x6"], tmp_path, planted={rank: f"import os, signal; {code}"})
    assert codes == exits
    for error, sentence in zip(errors, said, strict=True):
        lines = [line for line in error.splitlines() if "Gloo" not in line and line.strip()]
        assert len(lines) == bool(sentence), error
        assert sentence in error


def test_tasks_of_one_process_are_done_in_order_and_the_first_refusal_counts():
    assert shared_out([lambda: 1, lambda: 2]) == [1, 2]

    def refused():
        raise UsageError("C2A001", "this is refused", "Call it otherwise.")

    with pytest.raises(UsageError, match="this is refused"):
        shared_out([lambda: 1, refused])
    with pytest.raises(ZeroDivisionError):
        Crew().together(lambda: 1 // 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_result_is_that_of_the_first_process(rank, monkeypatch):
    def gather(everyone, own):
        everyone[:] = [(7, None), (None, None)]
        assert own == everyone[rank]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert Crew(rank, 2).together(lambda: 7) == 7


def test_errors_that_cannot_be_sent_are_sent_as_text():
    class Local(Exception):
        pass

    assert str(sendable(Local("here"))) == "Local: here"
    refusal = UsageError("C2A001", "found", "Call it otherwise.")
    assert sendable(refusal) is refusal
