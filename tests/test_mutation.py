"""The runner of mutants on a small package: what the tests pin is killed, what they only execute survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import survivors
from mutation import main
from mutations import mutants_of

pytestmark = pytest.mark.slow
SOURCE = '''
"""A small package."""

STEP = 2


def total(numbers: list[int]) -> int:
    """The sum of those that are not negative, each with STEP added."""
    found = 0
    for number in numbers:
        if number < 0:
            continue
        found += number + STEP
    return found
'''
PINNING = "from small import total\n\ndef test():\n    assert total([0, 1, -1, 6]) == 13\n"
EMPTIED = "from small import total\n\ndef test():\n    total([0, 1, -1, 6])\n"
ELSEWHERE = "import small\n\ndef test():\n    pass\n"
FAILING = "from small import total\n\ndef test():\n    assert total([1]) == 4\n"
ALL = [
    "STEP = 2: 2 -> 3",
    "STEP = 2: 2 -> 1",
    "found = 0: 0 -> 1",
    "found = 0: 0 -> -1",
    "if number < 0:: if not number < 0",
    "if number < 0:: number < 0 -> number <= 0",
    "if number < 0:: number < 0 -> number >= 0",
    "if number < 0:: 0 -> 1",
    "if number < 0:: 0 -> -1",
    "continue: break",
    "found += number + STEP: found += number + STEP -> found -= number + STEP",
    "found += number + STEP: no found += number + STEP",
    "found += number + STEP: + STEP -> - STEP",
    "return found: return None",
]
PROGRAM = """
import json, sys
from pathlib import Path
from mutation import Run
folder, state = map(Path, sys.argv[1:])
sys.path.insert(0, str(folder))
print(json.dumps(list(Run(folder, ["small.py"], ["test_small.py"], state, 2).outcomes_of(["small.py"]).items())))
"""


def run(folder, tests, source=SOURCE):
    """Outcomes of the mutants of `source` under `tests`, by line and change."""
    folder = folder.resolve()
    (folder / "small.py").write_text(source)
    (folder / "test_small.py").write_text(tests)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", PROGRAM, str(folder), str(folder / "state")]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        return result.stderr
    return {f"{line}: {change}": outcome for (_, _, line, change), outcome in json.loads(result.stdout)}


def test_every_mutant_is_killed_where_a_test_pins_the_result(tmp_path):
    assert run(tmp_path, PINNING) == dict.fromkeys(ALL, "killed")


def test_a_constant_is_pinned_by_a_test_that_calls_nothing(tmp_path):
    outcomes = run(tmp_path, "import small\n\ndef test():\n    assert small.STEP == 2\n")
    assert [change for change, outcome in outcomes.items() if outcome == "killed"] == ALL[:2]


def test_every_mutant_survives_tests_without_an_assertion(tmp_path):
    assert run(tmp_path, EMPTIED) == dict.fromkeys(ALL, "survived")


def test_every_mutant_survives_where_no_test_executes_it(tmp_path):
    assert run(tmp_path, ELSEWHERE) == dict.fromkeys(ALL, "survived")


def test_a_mutant_that_does_not_end_is_killed_by_time(tmp_path):
    source = "def count(n):\n    while n > 1:\n        n -= 2\n    return n\n"
    tests = "from small import count\n\ndef test():\n    assert count(4) == 0\n    assert count(1) == 1\n"
    outcomes = run(tmp_path, tests, source)
    assert outcomes["n -= 2: n -= 2 -> n += 2"] == outcomes["n -= 2: no n -= 2"] == "time"
    assert set(outcomes.values()) <= {"time", "killed"}


def test_tests_that_fail_without_a_mutant_end_the_run(tmp_path):
    assert "the unchanged package fails" in run(tmp_path, FAILING)
    assert "the unchanged package fails" in run(tmp_path, "import absent")


def test_a_mutant_that_cannot_be_imported_is_killed(tmp_path):
    source = 'STEP = {"one": 1}\nONE = STEP["one"]\n\n\ndef step():\n    return ONE\n'
    outcomes = run(tmp_path, "from small import step\n\ndef test():\n    step()\n", source)
    assert {line for line, outcome in outcomes.items() if outcome == "killed"} == {
        "STEP = {\"one\": 1}: 'one' -> 'XXone'",
        "ONE = STEP[\"one\"]: 'one' -> 'XXone'",
    }


def test_what_was_found_is_not_tried_again(tmp_path):
    whole = run(tmp_path, PINNING)
    lines = (tmp_path / "state").read_text().splitlines()
    (tmp_path / "state").write_text("\n".join([lines[0].replace("killed", "known"), *lines[1:3]]) + "\n")
    again = run(tmp_path, PINNING)
    assert sorted(again.values()).count("known") == 1
    assert {change: "killed" if outcome == "known" else outcome for change, outcome in again.items()} == whole


def test_texts_for_people_types_and_decorators_are_passed_over():
    source = '''
from a import b
__all__ = ["one", "two"]
Sides = int | str
@frozen(True)
def f(x: int | None = None) -> "int":
    """A text with 3."""
    assert x == 1
    if x is None:
        raise ValueError(f"{x + 1}")
    return zip(x, "a text", strict=True)
'''
    assert [mutant.change for mutant in mutants_of("a.py", source)] == [
        "if not x is None",
        "x is None -> x is not None",
        "no raise ValueError(f'{x + 1}')",
        "return None",
        "zip: drops x",
        "zip: drops 'a text'",
    ]


def test_a_bound_is_halved():
    changes = [mutant.change for mutant in mutants_of("a.py", "def f(x):\n    return up(x)\n")]
    assert changes == ["return None", "half of up(x)", "up -> down"]


def test_survivors_need_a_reason_which_is_kept_until_it_is_stale(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(survivors, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "conv2attn/a").mkdir(parents=True)
    (tmp_path / "conv2attn/a/c.py").touch()
    first, second = ("a/b.py", "f", "x < 0", "x <= 0"), ("a/b.py", "f", "x + 1", "+ 1 -> - 1")

    def update(one, other):
        return survivors.update("a", ["a/b.py"], {first: one, second: other}, tmp_path / "store")

    assert update("survived", "killed") == 1
    assert "survived without a reason | a/b.py | f | x < 0 | x <= 0" in capsys.readouterr().out
    path = tmp_path / "store" / "a.json"
    path.write_text(path.read_text().replace('"reason": ""', '"reason": "never 0"'))
    assert update("survived", "time") == 0
    assert json.loads(path.read_text())["files"] == {"a/b.py": {"mutants": 2, "killed": 1, "by time": 1}}
    page = (tmp_path / "docs/mutants.md").read_text()
    assert "| a/b.py | 2 | 1 | 1 | 1 | 50.0% |" in page
    assert "| conv2attn/a/c.py | not yet mutated |" in page
    assert "| `f` | `x < 0` | `x <= 0` | never 0 |" in page
    assert update("killed", "killed") == 0
    assert "stale: a test kills | a/b.py | f | x < 0 | x <= 0" in capsys.readouterr().out
    assert json.loads(path.read_text())["survivors"] == []


def test_the_files_that_are_run_are_files_of_the_package(capsys):
    for arguments, sentence in ((["--files", "absent"], "absent: no file or folder in"), (["--jobs", "0"], "--jobs 0")):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("part", [path.stem for path in sorted(survivors.STORE.glob("*.json"))])
def test_of_what_was_mutated_enough_is_killed_and_the_rest_is_explained(part):
    """Every file was mutated, 95 of 100 mutants are killed, and the others have their reasons."""
    table = json.loads((survivors.STORE / f"{part}.json").read_text())
    mutants, killed = (sum(counts[name] for counts in table["files"].values()) for name in ("mutants", "killed"))
    assert killed >= 0.95 * mutants > 0
    assert len(table["survivors"]) == mutants - killed
    assert all(entry["reason"] for entry in table["survivors"])
    assert survivors.not_mutated(part, table["files"]) == []
    assert all((survivors.ROOT / file).exists() for file in table["files"])


def test_the_page_shows_the_committed_table():
    assert survivors.page() == (survivors.ROOT / survivors.PAGE).read_text()
