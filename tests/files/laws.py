"""Laws of every file that holds no network: nothing runs, one sentence with a code says why, nothing is written."""

import contextlib
import os
import resource
import signal
import time
from pathlib import Path

import pytest
import torch
from commands import call
from files.hostile import MARKER, STATE, bad_files, gadgets, good_bytes, good_files, torch_file
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.errors import CheckpointError, Conv2AttnError
from conv2attn.files import contents_of, inspection_of, load, save, write_atomically

NETWORK = nn.Linear(3, 2)
HOMES = {"_io.open": "io.open", "pathlib._local.": "pathlib."}
"""Homes of the standard library that later versions of Python moved."""
GOLDEN = Path(__file__).parents[1] / "golden" / "bad-files.txt"


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    return bad_files(tmp_path_factory.mktemp("hostile") / "files")


def test_bad_files_are_refused_in_one_sentence_and_not_run(bad):
    sentences = []
    for name, path in bad.items():
        with pytest.raises(Conv2AttnError) as caught:
            load(path, model=NETWORK)
        assert caught.value.exit_code == 2, name
        assert not (path.parent.parent / MARKER).exists(), name
        sentence = str(caught.value)
        for word, instead in {str(path): "FILE", **HOMES}.items():
            sentence = sentence.replace(word, instead)
        sentences.append(f"{name}: {sentence}\n")
    assert "".join(sentences) == GOLDEN.read_text()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", ["os.mkdir", "os.system", "eval"])
def test_the_planted_code_would_run_in_a_careless_reader(tmp_path, name, legacy):
    path = torch_file(tmp_path / "file.pt", {"weight": gadgets(str(tmp_path / MARKER))[name]}, legacy)
    with pytest.raises(CheckpointError, match="which is code, and nothing was run"):
        contents_of(path)
    torch.load(path, weights_only=False)
    assert (tmp_path / MARKER).exists()


def test_inspect_describes_or_refuses_bad_files_and_runs_nothing(bad, monkeypatch):
    monkeypatch.setattr("conv2attn.files.registries.MODEL_LIBRARIES", {})  # importing them anew for each file is slow
    for name, path in bad.items():
        with contextlib.suppress(CheckpointError):
            assert inspection_of(path).to_text(), name
        assert not (path.parent.parent / MARKER).exists(), name


def test_commands_refuse_bad_files_in_one_line_and_write_nothing(bad, tmp_path):
    for name in ("os.system, zip", "cut at 0.5", "page", "hostile program", "a bomb", "missing", "folder"):
        for command in (["convert"], ["verify", str(bad[name])], ["check-span"]):
            result = call(*command, str(bad[name]), *(["-o", "out.pt"] * (command == ["convert"])))
            assert (result.exit_code, result.stdout) == (2, ""), (name, command, result.output)
            assert len(result.stderr.splitlines()) == 1, (name, command, result.output)
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", ["convert", "heads", "check-span", "inspect"])
def test_commands_do_not_wait_for_a_pipe(command):
    """Once `heads` opened a named pipe to see what is in it, and waited forever."""
    os.mkfifo("net.pt")
    result = call(command, "net.pt")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "is not a regular file" in result.stderr


def test_the_whole_file_is_read(tmp_path):
    (tmp_path / "net.pt").write_bytes(good_bytes())
    assert torch.equal(load(tmp_path / "net.pt", model=NETWORK).weight, STATE["weight"])


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=5000)
@given(data=st.data())
def test_changed_bytes_raise_errors_of_this_project_only(tmp_path_factory, data):
    files = good_files()
    good = bytearray(files[data.draw(st.integers(0, len(files) - 1))])
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(good) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip":
                good[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut" if place:
                del good[place:]
            case "insert":
                good[place:place] = data.draw(st.binary(max_size=16))
            case "repeat":
                good[place:place] = good[: min(place, 64)]
    path = tmp_path_factory.getbasetemp() / "fuzzed.pt"
    path.write_bytes(bytes(good))
    with contextlib.suppress(Conv2AttnError):
        load(path, model=NETWORK)


@pytest.mark.filterwarnings("ignore")
def test_unchanged_files_are_read(tmp_path):
    for content in good_files():
        (tmp_path / "file").write_bytes(content)
        contents = contents_of(tmp_path / "file")
        assert contents.content or isinstance(contents.network, nn.Module)


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    layer = conv2attn.convert(nn.Conv2d(8, 8, 3))
    for name in ("net.pt", "net.safetensors"):
        child = os.fork()
        if not child:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                save(layer, tmp_path / name)
            except CheckpointError as error:
                os._exit(7 if error.code == "C2A301" else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, name
        assert not list(tmp_path.iterdir()), name


def test_a_killed_writer_leaves_the_old_file_whole(tmp_path):
    path, old, new = tmp_path / "net.pt", {"weight": torch.zeros(5_000)}, {"weight": torch.ones(5_000)}
    write_atomically(path, old)
    sums = set()
    for kill in range(40):
        written, write = os.pipe()
        child = os.fork()
        if not child:
            while True:
                write_atomically(path, new if kill % 2 else old, force=True)
                os.write(write, b".")
        os.read(written, 1)
        os.close(written)
        os.close(write)
        time.sleep(0.002 * (kill % 20))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sums.add(float(torch.load(path, weights_only=True)["weight"].sum()))
    assert sums == {0.0, 5_000.0}
