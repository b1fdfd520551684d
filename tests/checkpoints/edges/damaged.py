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


class Runs:
    """An object whose pickle calls a function when it is loaded carelessly."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


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


def missing(folder: Path) -> Path:
    return folder / "missing.pt"


def directory(folder: Path) -> Path:
    return folder


def under_a_file(folder: Path) -> Path:
    return saved(folder / "file.pt", STATE) / "inside.pt"


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def empty(folder: Path) -> Path:
    (folder / "empty.pt").touch()
    return folder / "empty.pt"


def truncated(folder: Path, legacy: bool = False) -> Path:
    path = saved(folder / "file.pt", STATE, _use_new_zipfile_serialization=not legacy)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def truncated_legacy(folder: Path) -> Path:
    return truncated(folder, legacy=True)


def flipped_weight(folder: Path) -> Path:
    path = saved(folder / "file.pt", STATE)
    data, number = bytearray(path.read_bytes()), np.float32(4).tobytes()
    data[data.index(number)] ^= 1
    path.write_bytes(data)
    return path


def duplicate(folder: Path) -> Path:
    source = saved(folder / "source.pt", STATE)
    return repacked(folder / "file.pt", source, lambda entries: [*entries, entries[0]])


def case_collision(folder: Path) -> Path:
    source = saved(folder / "source.pt", STATE)
    return repacked(folder / "file.pt", source, lambda entries: [*entries, (entries[0][0].upper(), b"")])


def two_pickles(folder: Path) -> Path:
    source = saved(folder / "source.pt", STATE)
    return repacked(folder / "file.pt", source, lambda entries: [*entries, ("other/data.pkl", b"N.")])


def compressed(folder: Path) -> Path:
    source, path = saved(folder / "source.pt", STATE), folder / "file.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return path


def no_pickle(folder: Path) -> Path:
    np.savez(folder / "file.npz", weight=np.ones(3))
    return folder / "file.npz"


def script(folder: Path) -> Path:
    source = saved(folder / "source.pt", STATE)
    return repacked(folder / "file.pt", source, lambda entries: [*entries, ("archive/constants.pkl", b"N.")])


def text(folder: Path) -> Path:
    (folder / "notes.txt").write_text("conv1.weight = 0.5")
    return folder / "notes.txt"


def plain_pickle(folder: Path) -> Path:
    (folder / "file.pkl").write_bytes(pickle.dumps({"weight": 1.0}, protocol=2))
    return folder / "file.pkl"


def a_list(folder: Path) -> Path:
    return saved(folder / "file.pt", [STATE])


def a_tensor(folder: Path) -> Path:
    return saved(folder / "file.pt", STATE["weight"])


def numbers(folder: Path) -> Path:
    return saved(folder / "file.pt", {"weight": 1.0})


def nothing(folder: Path) -> Path:
    return saved(folder / "file.pt", {})


def numbered(folder: Path) -> Path:
    return saved(folder / "file.pt", {0: STATE["weight"]})


def huge_view(folder: Path) -> Path:
    return saved(folder / "file.pt", {"weight": Oversized((200_000, 200_000), (200_000, 1))})


def view_one_too_long(folder: Path) -> Path:
    return saved(folder / "file.pt", {"weight": Oversized((5,), (1,))})


def huge_view_legacy(folder: Path) -> Path:
    content = {"weight": Oversized((20_000, 20_000), (20_000, 1))}
    return saved(folder / "file.pt", content, _use_new_zipfile_serialization=False)


def repeated_view(folder: Path) -> Path:
    return saved(folder / "file.pt", {"state_dict": {"weight": Oversized((200_000, 200_000), (0, 0))}})


def meta(folder: Path) -> Path:
    return saved(folder / "file.pt", {"weight": torch.empty(3, device="meta")})


def sparse(folder: Path) -> Path:
    return saved(folder / "file.pt", {"weight": torch.eye(3).to_sparse()})


BAD = {
    missing: ("C2A301", "does not exist"),
    directory: ("C2A301", "is a directory without a config.json"),
    under_a_file: ("C2A301", "cannot be read: Not a directory"),
    fifo: ("C2A301", "not a regular file"),
    empty: ("C2A302", "is empty"),
    truncated: ("C2A302", "is truncated or damaged"),
    truncated_legacy: ("C2A302", "is truncated"),
    flipped_weight: ("C2A302", "'file/data/0' does not match its checksum"),
    duplicate: ("C2A303", "two entries named 'source/data.pkl'"),
    case_collision: ("C2A303", "two entries named 'source/data.pkl'"),
    two_pickles: ("C2A303", "2 entries named data.pkl"),
    compressed: ("C2A303", "'source/data.pkl' is compressed"),
    no_pickle: ("C2A303", "is a file of NumPy arrays"),
    script: ("C2A303", "is a TorchScript program"),
    text: ("C2A303", "is a text file"),
    plain_pickle: ("C2A303", "is a pickle that torch.save did not write"),
    a_list: ("C2A303", "holds a list"),
    a_tensor: ("C2A303", "holds a Tensor"),
    numbers: ("C2A303", "but not one of names and tensors"),
    nothing: ("C2A303", "but not one of names and tensors"),
    numbered: ("C2A303", "but not one of names and tensors"),
    huge_view: ("C2A303", "claims more elements than are stored"),
    view_one_too_long: ("C2A303", "claims more elements than are stored"),
    huge_view_legacy: ("C2A303", "claims more elements than are stored"),
    repeated_view: ("C2A303", "'state_dict.weight' claims 40000000000 elements, more than are stored"),
    meta: ("C2A303", "'weight' is not a plain dense tensor"),
    sparse: ("C2A303", "'weight' is not a plain dense tensor"),
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, make):
    code, found = BAD[make]
    path = make(tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(found)) as caught:
        read_tensors(path)
    assert caught.value.code == code
    assert str(path) in caught.value.found
    assert "\n" not in str(caught.value)
    assert "weights_only=False" not in str(caught.value)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("function", [os.mkdir, eval, os.system])
def test_code_in_a_file_is_not_executed(tmp_path, function, legacy):
    planted = tmp_path / "planted"
    argument = {
        os.mkdir: str(planted),
        eval: f"__import__('os').mkdir({str(planted)!r})",
        os.system: f"mkdir '{planted}'",
    }[function]
    bomb = {"weight": STATE["weight"], "bias": Runs(function, argument)}
    path = saved(tmp_path / "file.pt", bomb, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(CheckpointError, match="which is code, and nothing was run"):
        read(path)
    assert not planted.exists()
    torch.load(path, weights_only=False)
    assert planted.exists(), "the planted file must be one that a careless reader would execute"


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
