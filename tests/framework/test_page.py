"""Every example of the page about the framework runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "framework.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def run(blocks: list[str]) -> subprocess.CompletedProcess[str]:
    arguments = ["-W", "error", "-W", "ignore:`torch.jit.script` is deprecated:DeprecationWarning"]
    return subprocess.run([sys.executable, *arguments, "-c", "\n".join(blocks)], capture_output=True, text=True)


def test_the_examples_run_one_after_the_other():
    assert len(BLOCKS) >= 16
    done = run(BLOCKS)
    assert done.returncode == 0, done.stderr


def test_an_example_that_is_wrong_is_caught():
    planted = [block.replace("== 5  # order", "== 9  # order") for block in BLOCKS]
    assert planted != BLOCKS
    assert "AssertionError" in run(planted).stderr
