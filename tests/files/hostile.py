"""Files that are damaged, of another kind, or hostile: each made in a folder, none of which may run or be taken."""

import io
import os
import pickle
import random
import struct
import subprocess
import warnings
import zipfile
from collections import OrderedDict
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import torch
from safetensors.torch import save as save_tensors
from safetensors.torch import save_file
from torch import nn

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([0.5, 1.0])}
MARKER = "MARKER"


class Runs:
    """An object whose pickle calls a function when it is loaded carelessly."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def gadgets(marker: str) -> dict[str, object]:
    """Well-known ways to run code from a pickle; each would create the marker."""
    create = f"open({marker!r}, 'w').close()"
    return {
        "os.system": Runs(os.system, f"touch '{marker}'"),
        "os.mkdir": Runs(os.mkdir, marker),
        "os.mknod": Runs(os.mknod, marker),
        "subprocess.run": Runs(subprocess.run, ["touch", marker]),
        "subprocess.call": Runs(subprocess.call, ["touch", marker]),
        "subprocess.Popen": Runs(subprocess.Popen, ["touch", marker]),
        "eval": Runs(eval, create),
        "exec": Runs(exec, create),
        "open": Runs(open, marker, "w"),
        "compile": Runs(compile, create, "x", "exec"),
        "import": Runs(__import__, "antigravity"),
        "Path.touch": Runs(Path.touch, Path(marker)),
        "torch.load": Runs(torch.load, marker),
        "torch.save": Runs(torch.save, [0], marker),
        "torch.hub.load": Runs(torch.hub.load, "owner/name", "model"),
        "numpy.save": Runs(np.save, marker, [0]),
        "pickle.loads": Runs(pickle.loads, pickle.dumps(Runs(os.mkdir, marker))),
        "bytearray": Runs(bytearray, 1 << 40),
        "module": nn.Conv2d(3, 4, 3),
    }


def replaced_forward() -> nn.Module:
    """A module whose forward is another function's, and whose attributes lie."""
    module = nn.Conv2d(3, 4, 3)
    module.forward = print
    module.in_channels = 99
    return module


class Oversized:
    """A tensor whose pickle claims `size` elements of a storage of four."""

    def __init__(self, size, stride):
        self.size, self.stride = size, stride

    def __reduce__(self):
        storage = torch.arange(4.0)._typed_storage()
        return torch._utils._rebuild_tensor_v2, (storage, 0, self.size, self.stride, False, OrderedDict())


CONTENTS = {
    "a list": [STATE],
    "a tensor": STATE["weight"],
    "numbers": {"weight": 1.0},
    "nothing": {},
    "numbered": {0: STATE["weight"]},
    "huge view": {"weight": Oversized((200_000, 200_000), (200_000, 1))},
    "view one too long": {"weight": Oversized((5,), (1,))},
    "huge view, legacy": {"weight": Oversized((20_000, 20_000), (20_000, 1))},
    "repeated view": {"state_dict": {"weight": Oversized((200_000, 200_000), (0, 0))}},
    "meta": {"weight": torch.empty(3, device="meta")},
    "sparse": {"weight": torch.eye(3).to_sparse()},
    "complex": {"weight": torch.zeros(2, dtype=torch.complex64)},
    "whole": {"weight": torch.zeros(2, 2, dtype=torch.int8)},
}
"""Contents of files of torch.save that are not state dicts of dense tensors."""
ENTRIES = {
    "an entry twice": lambda name, data: (name, data),
    "an entry twice but for case": lambda name, data: (name.upper(), b""),
    "a second pickle": lambda name, data: ("other/data.pkl", b"N."),
    "constants of a script": lambda name, data: ("archive/constants.pkl", b"N."),
}
"""Entries that an archive has beside its own, made from its first."""


def zipped(entries: list[tuple[str, str | bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these entries."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression, compresslevel=1) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in entries:
            archive.writestr(name, data)
    return stream.getvalue()


def torch_file(path: Path, content: object, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def good_bytes(legacy: bool = False) -> bytes:
    stream = io.BytesIO()
    torch.save(STATE, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


@cache
def good_files() -> list[bytes]:
    """A small file of each kind that is read: state dicts, a whole module, safetensors, a program, an ONNX model."""
    module, program, stored = io.BytesIO(), io.BytesIO(), save_tensors(STATE)
    torch.save(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), module)
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.zeros(2, 3),)), program)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {0.5, 1.0}> { y = Add (x, w) }""").SerializeToString()
    return [good_bytes(), good_bytes(True), module.getvalue(), stored, program.getvalue(), model]


def bad_files(folder: Path) -> dict[str, Path]:
    """More than sixty files that hold no network, by name."""
    folder.mkdir(exist_ok=True)
    marker, paths = str(folder.parent / MARKER), {}

    def put(name: str, data: bytes) -> None:
        paths[name] = folder / f"{len(paths)}.pt"
        paths[name].write_bytes(data)

    for name, gadget in gadgets(marker).items():
        for legacy in (False, True):
            path = folder / f"{len(paths)}.pt"
            paths[f"{name}, {'legacy' if legacy else 'zip'}"] = torch_file(path, {"weight": gadget}, legacy)
    paths["replaced forward"] = torch_file(folder / "forward.pt", replaced_forward())
    good, generator = good_bytes(), random.Random(0)
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        put(f"cut at {share}", good[: int(len(good) * share)])
        put(f"legacy cut at {share}", good_bytes(True)[: int(len(good_bytes(True)) * share)])
    weights = good.index(STATE["weight"].numpy().tobytes())
    for _ in range(6):
        data = bytearray(good)
        data[weights + generator.randrange(24)] ^= 1 << generator.randrange(8)
        put(f"bit {len(paths)} flipped", bytes(data))
    put("empty", b"")
    put("page", b"<!DOCTYPE html><html>404</html>")
    put("pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    put("picture", b"\x89PNG\r\n\x1a\n" + bytes(64))
    put("text", b"conv1.weight = 0.5\n")
    put("noise", generator.randbytes(4096))
    put("bare pickle", pickle.dumps(STATE["weight"].tolist()))
    put("bare pickle of protocol 2", pickle.dumps({"weight": 1.0}, protocol=2))
    put("bare hostile pickle", pickle.dumps(Runs(os.mkdir, marker)))
    put("gzip", b"\x1f\x8b" + bytes(64))
    put("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(64))
    put("safetensors with a long header", struct.pack("<Q", 1 << 29) + b"{" + bytes(600))
    put(
        "safetensors that lies",
        struct.pack("<Q", 60) + b'{"w":{"dtype":"F32","shape":[9,9],"data_offsets":[0,4]}}    ' + bytes(4),
    )
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    for name, entry in ENTRIES.items():
        put(name, zipped([*entries, entry(*entries[0])]))
    put("compressed", zipped(entries, zipfile.ZIP_DEFLATED))
    put("a bomb", zipped([("a/data.pkl", bytes(1 << 24))], zipfile.ZIP_DEFLATED))
    bare = pickle.dumps(Runs(os.mkdir, marker), protocol=2)
    put("two pickles", zipped([("a/data.pkl", bare), ("b/data.pkl", b"N.")]))
    program = ("e/models/model.json", '{"target": "torch.os.system"}')
    put("hostile program", zipped([("e/archive_format", "pt2"), program, ("e/data/sample_inputs/model.pt", bare)]))
    arrays = io.BytesIO()
    np.savez(arrays, weight=np.ones(3))
    put("arrays", arrays.getvalue())
    for name, content in CONTENTS.items():
        paths[name] = torch_file(folder / f"{name}.pt", content, "legacy" in name)
    paths["program of jit"] = folder / "jit.pt"
    torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())).save(str(paths["program of jit"]))
    save_file(STATE, folder / "whole.safetensors")
    put("safetensors cut", (folder / "whole.safetensors").read_bytes()[:-5])
    paths["missing"], paths["folder"] = folder / "missing.pt", folder / "inside"
    paths["folder"].mkdir()
    paths["under a file"], paths["fifo"] = paths["empty"] / "inside.pt", folder / "fifo"
    os.mkfifo(paths["fifo"])
    return paths
