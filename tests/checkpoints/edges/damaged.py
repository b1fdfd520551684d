"""Files that are damaged, lie, or name code are refused in one clear sentence; the whole one is read bit for bit."""

import os
import pickle
import random
import re
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conv2attn.checkpoints.contents import contents_of
from conv2attn.checkpoints.reading import read
from conv2attn.checkpoints.states import readings, state_in
from conv2attn.errors import CheckpointError

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([0.5, float("nan")])}


def read_tensors(path: Path) -> dict:
    """The state dict in a file, without the prefixes that all names share."""
    state = state_in(contents_of(path).content)
    if state is None:
        raise CheckpointError("C2A303", f"{path} holds a dict, but not one of names and tensors")
    return list(readings(state))[-1].tensors


def saved(path: Path, content: object, **options: bool) -> Path:
    torch.save(content, path, **options)
    return path


def repacked(path: Path, source: Path, change) -> Path:
    """The archive `source` with its (name, bytes) entries passed through `change`, checksums right again."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in change([(entry.filename, old.read(entry)) for entry in old.infolist()]):
            new.writestr(name, data)
    return path


def same_bits(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one.values(), other.values(), strict=True)
    )


class Oversized:
    """A tensor whose pickle claims `size` elements of a storage of four."""

    def __init__(self, size, stride):
        self.size, self.stride = size, stride

    def __reduce__(self):
        storage = torch.arange(4.0)._typed_storage()
        return torch._utils._rebuild_tensor_v2, (storage, 0, self.size, self.stride, False, OrderedDict())


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_tensors_come_back_bit_for_bit(tmp_path, legacy, wrapper, prefix):
    state = {prefix + key: tensor for key, tensor in STATE.items()}
    content = state if wrapper is None else {"epoch": 3, wrapper: state}
    path = saved(tmp_path / "file.pt", content, _use_new_zipfile_serialization=not legacy)
    assert same_bits(read_tensors(path), STATE)


def test_a_prefix_that_not_all_keys_have_is_kept(tmp_path):
    state = {"module.weight": STATE["weight"], "bias": STATE["bias"]}
    assert same_bits(read_tensors(saved(tmp_path / "file.pt", state)), state)


def test_parameters_and_attributes_of_tensors_are_not_carried_over(tmp_path):
    parameter = nn.Parameter(torch.ones(2))
    parameter.clone = "not callable"
    tensor = read_tensors(saved(tmp_path / "file.pt", {"weight": parameter}))["weight"]
    assert type(tensor) is torch.Tensor
    assert torch.equal(tensor.clone(), torch.ones(2))


def test_nested_content_of_tensors_and_plain_values_is_read(tmp_path):
    content = {"format": "x/1", "plan": {"depths": (1, 2), "name": None}, "tensors": [STATE["weight"], True, 0.5]}
    back = read(saved(tmp_path / "file.pt", content))
    assert back["plan"] == content["plan"]
    assert torch.equal(back["tensors"][0], STATE["weight"])


def test_content_that_holds_itself_is_read(tmp_path):
    content: dict = {"weight": STATE["weight"]}
    content["self"] = content
    assert read(saved(tmp_path / "file.pt", content)).keys() == {"weight", "self"}


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def cut(folder: Path, legacy: bool) -> Path:
    path = saved(folder / "file.pt", STATE, _use_new_zipfile_serialization=not legacy)
    return written(path, path.read_bytes()[:-40])


def flipped(folder: Path) -> Path:
    data, number = bytearray(saved(folder / "file.pt", STATE).read_bytes()), np.float32(4).tobytes()
    data[data.index(number)] ^= 1
    return written(folder / "file.pt", data)


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def with_entry(folder: Path, change) -> Path:
    """An archive with one more entry, which `change` makes of the first."""
    source = saved(folder / "source.pt", STATE)
    return repacked(folder / "file.pt", source, lambda entries: [*entries, change(*entries[0])])


def compressed(folder: Path) -> Path:
    source, path = saved(folder / "source.pt", STATE), folder / "file.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return path


def arrays(folder: Path) -> Path:
    np.savez(folder / "file.npz", weight=np.ones(3))
    return folder / "file.npz"


NO_STATE, TOO_LONG = ("C2A303", "but not one of names and tensors"), ("C2A303", "claims more elements than are stored")
TWICE, NOT_DENSE = ("C2A303", "two entries named 'source/data.pkl'"), ("C2A303", "'weight' is not a plain dense tensor")
MADE = {
    "missing": (lambda folder: folder / "missing.pt", "C2A301", "does not exist"),
    "directory": (lambda folder: folder, "C2A301", "is a directory without a config.json"),
    "under a file": (
        lambda folder: saved(folder / "file.pt", STATE) / "inside.pt",
        "C2A301",
        "cannot be read: Not a directory",
    ),
    "fifo": (fifo, "C2A301", "not a regular file"),
    "empty": (lambda folder: written(folder / "empty.pt", b""), "C2A302", "is empty"),
    "truncated": (lambda folder: cut(folder, False), "C2A302", "is truncated or damaged"),
    "truncated legacy": (lambda folder: cut(folder, True), "C2A302", "is truncated"),
    "flipped weight": (flipped, "C2A302", "'file/data/0' does not match its checksum"),
    "duplicate": (lambda folder: with_entry(folder, lambda *entry: entry), *TWICE),
    "case collision": (lambda folder: with_entry(folder, lambda name, data: (name.upper(), b"")), *TWICE),
    "two pickles": (
        lambda folder: with_entry(folder, lambda *entry: ("other/data.pkl", b"N.")),
        "C2A303",
        "2 entries named data.pkl",
    ),
    "script": (
        lambda folder: with_entry(folder, lambda *entry: ("archive/constants.pkl", b"N.")),
        "C2A303",
        "is a TorchScript program",
    ),
    "compressed": (compressed, "C2A303", "'source/data.pkl' is compressed"),
    "arrays": (arrays, "C2A303", "is a file of NumPy arrays"),
    "text": (lambda folder: written(folder / "notes.txt", b"conv1.weight = 0.5"), "C2A303", "is a text file"),
    "plain pickle": (
        lambda folder: written(folder / "file.pkl", pickle.dumps({"weight": 1.0}, protocol=2)),
        "C2A303",
        "is a pickle that torch.save did not write",
    ),
}
STORED = {
    "list": ([STATE], "C2A303", "holds a list"),
    "tensor": (STATE["weight"], "C2A303", "holds a Tensor"),
    "numbers": ({"weight": 1.0}, *NO_STATE),
    "nothing": ({}, *NO_STATE),
    "numbered": ({0: STATE["weight"]}, *NO_STATE),
    "huge view": ({"weight": Oversized((200_000, 200_000), (200_000, 1))}, *TOO_LONG),
    "view one too long": ({"weight": Oversized((5,), (1,))}, *TOO_LONG),
    "huge view, legacy": ({"weight": Oversized((20_000, 20_000), (20_000, 1))}, *TOO_LONG),
    "repeated view": (
        {"state_dict": {"weight": Oversized((200_000, 200_000), (0, 0))}},
        "C2A303",
        "'state_dict.weight' claims 40000000000 elements, more than are stored",
    ),
    "meta": ({"weight": torch.empty(3, device="meta")}, *NOT_DENSE),
    "sparse": ({"weight": torch.eye(3).to_sparse()}, *NOT_DENSE),
}
BAD = MADE | {
    name: (
        lambda folder, name=name, content=content: saved(
            folder / "file.pt", content, _use_new_zipfile_serialization="legacy" not in name
        ),
        *expected,
    )
    for name, (content, *expected) in STORED.items()
}


@pytest.mark.parametrize(("make", "code", "found"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, make, code, found):
    path = make(tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(found)) as caught:
        read_tensors(path)
    assert caught.value.code == code
    assert str(path) in caught.value.found
    assert "\n" not in str(caught.value)
    assert "weights_only=False" not in str(caught.value)


def test_every_flipped_bit_is_found_or_harmless(tmp_path):
    path, generator = saved(tmp_path / "file.pt", STATE), random.Random(0)
    good, found = path.read_bytes(), 0
    flips = [(position, generator.randrange(8)) for position in range(len(good))]
    first = good.index(
        b"PK\1\2"
    )  # sizes and places of entries have no checksum: every bit is tried of one and of the end
    second, last = good.index(b"PK\1\2", first + 1), good.rindex(b"PK\5\6")
    flips += [(position, bit) for position in (*range(first, second), *range(last, len(good))) for bit in range(8)]
    for position, bit in flips:
        bad = bytearray(good)
        bad[position] ^= 1 << bit
        path.write_bytes(bad)
        try:
            assert same_bits(read_tensors(path), STATE), f"bit {bit} of byte {position}"
        except CheckpointError:
            found += 1
    assert found > len(flips) / 4


@pytest.mark.parametrize("legacy", [False, True])
def test_every_truncation_is_found(tmp_path, legacy):
    path = saved(tmp_path / "file.pt", STATE, _use_new_zipfile_serialization=not legacy)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=r"C2A30[23]"):
            read(path)


def test_sizes_are_capped_before_reading(tmp_path, monkeypatch):
    path = saved(tmp_path / "file.pt", STATE)
    with pytest.raises(CheckpointError, match=f"C2A307 .* has {path.stat().st_size:,} bytes, more than 100"):
        read(path, limit=100)
    monkeypatch.setattr("conv2attn.checkpoints.preflight.LARGEST_PICKLE", 10)
    with pytest.raises(CheckpointError, match=r"C2A307 .* data\.pkl has"):
        read(path)
