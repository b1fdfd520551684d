"""Every example of the page about the framework runs as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "framework.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def run(blocks: list[str]) -> None:
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "framework.md"})


def test_the_examples_run_one_after_the_other():
    assert len(BLOCKS) >= 15
    run(BLOCKS)


def test_an_example_that_is_wrong_is_caught():
    at = next(place for place, block in enumerate(BLOCKS) if "== (8, 16, " in block)
    with pytest.raises(AssertionError):
        run([*BLOCKS[:at], BLOCKS[at].replace("== (8, 16, ", "== (8, 15, ")])
