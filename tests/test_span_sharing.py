"""Two processes give the verdicts and the figures of one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch.distributed as dist
from attentions import OFFSETS, hard, soft
from conv2attn import check_span
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
layers = {f"alpha {a}": soft((5, 6), a) for a in (0.5, 2.0, 46.0)} | {"hard": hard((5, 6), OFFSETS)}
print(check_span(layers, grid=(5, 6)).to_json())
try:
    check_span(layers | {"broken": 2 * hard((5, 6), OFFSETS)}, grid=(5, 6))
except Exception as error:
    print(error, file=sys.stderr)
if world > 1:
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_gloo_processes_agree_with_one(tmp_path, request):
    def start(rank, world):
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(rank), str(world), str(tmp_path / "store")]
        name = tmp_path / f"{rank} of {world}"
        with open(f"{name}.json", "w") as report, open(f"{name}.txt", "w") as errors:
            run = subprocess.Popen(command, stdout=report, stderr=errors, cwd=request.config.rootpath / "tests")
        return name, run

    started = [start(0, 1), start(0, 2), start(1, 2)]
    assert [run.wait(timeout=120) for _, run in started] == [0, 0, 0]
    reports = {Path(f"{name}.json").read_text() for name, _ in started}
    assert len(reports) == 1
    verdicts = [layer["verdict"] for layer in json.loads(reports.pop())["layers"]]
    assert verdicts == ["refuted", "refuted", "holds", "holds"]
    assert all("broken: image 0, head 0, query 0 sums to 2" in Path(f"{name}.txt").read_text() for name, _ in started)
