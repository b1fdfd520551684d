"""Every domain mutant is killed by the test named for it, which passes without the mutant."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTANTS, ROOT


@pytest.fixture(scope="module")
def outcome():
    """The exit codes of all tests, on mutated packages and on the package as it is; in one process."""
    environment = {**os.environ, "CONV2ATTN_PROFILE": "dev", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("mutants.py")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    body = json.loads(result.stdout)
    assert body["home"], "the tests ran on another copy of the package"
    return body["mutants"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(outcome, name):
    assert outcome[name] == {"whole": 0, "mutated": 1}


def test_there_are_enough_mutants_and_all_are_different():
    assert len(MUTANTS) >= 20
    assert all(mutant.old != mutant.new for mutant in MUTANTS.values())
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_finds_the_code_that_it_changes(name):
    mutant = MUTANTS[name]
    assert (ROOT / "conv2attn" / mutant.file).read_text().count(mutant.old) == 1
