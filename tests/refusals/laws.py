"""Wrong calls end in one sentence that says what is wrong, by their error or exit code, and write nothing.

The other files of this folder are the rows, a file or more for each room. `REFUSALS` has by error, then by words that
its sentence holds, the call, or a list of calls. `COMMANDS` has by command line the words. A call may write what it
reads; files named new are results, and none is there afterwards.
"""

import shlex
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import pytest
from commands import refused
from refusals.written import write_files

ROOMS = [import_module(f"refusals.{path.stem}") for path in sorted(Path(__file__).parent.glob("*.py"))[::-1]]
ROWS = [
    (error, words, call)
    for room in ROOMS
    for error, rows in getattr(room, "REFUSALS", {}).items()
    for words, calls in rows.items()
    for call in (calls if isinstance(calls, list) else [calls])
]
COMMANDS = {command: words for room in ROOMS for command, words in getattr(room, "COMMANDS", {}).items()}


@pytest.mark.parametrize(("error", "words", "call"), ROWS)
def test_a_wrong_call_is_refused_in_a_sentence_and_writes_nothing(error, words, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        call()
    assert not [*tmp_path.rglob("new*")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files that the command lines name."""
    folder = tmp_path_factory.mktemp("wrong")
    with chdir(folder):
        write_files()
    return folder


def contents(folder):
    """Every file of a folder with its bytes."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_is_refused_in_one_line_and_changes_nothing(command, files):
    before = contents(files)
    with chdir(files):
        refused(*shlex.split(command), match=COMMANDS[command])
    assert contents(files) == before
