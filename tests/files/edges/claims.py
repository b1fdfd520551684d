"""Files of every kind that claim more than they have: memory and time in proportion, and one sentence or a network."""

import contextlib
import gzip
import json
import os
import signal
import struct
import tarfile
import tempfile
import time
import warnings
import zipfile
import zlib
from functools import cache
from pathlib import Path

import onnx
import pytest
import torch
from files.hostile import STATE, Oversized, zipped
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.errors import Conv2AttnError
from conv2attn.files import arrays_in, inspection_of, kinds, load, read_images, save

MIB = 1 << 20
# The first of each is the worst: Hypothesis begins with it, so that even few examples ask for the worst of each kind.
COUNTS = st.sampled_from([300, 1, 40, 3_000])
SIZES = st.sampled_from([12_000, 0, 1, 7, 200_000, 10**9, 1 << 62])
DEPTHS = st.sampled_from([50, 1, 10, 63, 65, 900, 20_000])
ZEROS = st.sampled_from([256 * MIB, 50_000, 100])
"""Of a compressed entry, which unpacks to so many bytes."""
REPEATS = st.sampled_from([4_000_000, 20_000, 10])


def tree(draw):
    """Containers that name each other, themselves, one storage, and more elements than there are."""
    tensor = torch.zeros(draw(st.sampled_from([1_000_000, 4])))
    pool = [tensor, {"weight": tensor}, []]
    for _ in range(draw(st.integers(0, 30))):
        members = draw(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=3))
        pool.append([pool[each] for each in members] if draw(st.booleans()) else {str(m): pool[m] for m in members})
    nested = pool[-1]
    for _ in range(draw(DEPTHS) % 1000):
        nested = [nested, nested]
    names = {f"k{number}": tensor for number in range(draw(COUNTS))}
    match draw(st.sampled_from(["plan", "nested", "cycle", "view", "state"])):
        case "plan":
            return {**plan(), "state_dict": {**plan()["state_dict"], **names}}
        case "nested":
            return {**STATE, "x": nested}
        case "cycle":
            pool[2].append(pool[-1])
            return {**STATE, **names, "x": pool[2:]}
        case "view":
            return {"weight": Oversized((draw(SIZES), draw(SIZES)), (0, draw(st.integers(0, 1))))}
    return {"state_dict": {**STATE, **names}}


@cache
def plan():
    """The content of a converted network's file."""
    path = Path(tempfile.gettempdir()) / f"plan{os.getpid()}.pt"
    save(conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3))), path)
    content = torch.load(path, weights_only=True)
    path.unlink()
    return content


def pickled(draw):
    """A pickle of many instructions of one byte or two: nested, beside each other, or of one object many times."""
    part = draw(st.sampled_from([b"]", b"}", b"\x8f", b"(", b"N", b")\x85", b"]a", b"K\x01"]))
    return b"\x80\x02](" + part * draw(REPEATS) + draw(st.sampled_from([b"e.", b"."]))


def torch_archive(draw, path):
    torch.save(tree(draw), path)
    if draw(st.integers(0, 2)) == 1:
        with zipfile.ZipFile(path) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        pickle = next(name for name in entries if name.endswith("data.pkl"))
        path.write_bytes(zipped([*{**entries, pickle: pickled(draw)}.items()]))


def legacy(draw, path):
    if draw(st.booleans()):
        torch.save(tree(draw), path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(kinds.LEGACY_HEAD + b"\x80\x02M\xe9\x03.\x80\x02}." + pickled(draw) + b"\x80\x02].")


def safetensors(draw, path):
    size, end = draw(SIZES), draw(st.sampled_from([4, 16, 10**9]))
    entry = {"dtype": "F32", "shape": [size, draw(SIZES)], "data_offsets": [0, end]}
    header = json.dumps({f"k{number}": entry for number in range(draw(COUNTS))}).encode()
    path.write_bytes(struct.pack("<Q", draw(st.sampled_from([len(header), 1 << 29]))) + header + bytes(16))


def folder(draw, path):
    path.mkdir()
    sizes = {
        "hidden_size": draw(SIZES),
        "num_hidden_layers": draw(SIZES),
        "num_attention_heads": draw(st.integers(1, 9)),
    }
    config = {"model_type": draw(st.sampled_from(["vit", "bert"])), "architectures": ["ViTModel"], **sizes}
    (path / "config.json").write_text(json.dumps(config) if draw(st.booleans()) else "[" * draw(DEPTHS))
    torch_archive(draw, path / "pytorch_model.bin")


@cache
def program_entries():
    """The entries of a program of one layer."""
    path = Path(tempfile.gettempdir()) / f"program{os.getpid()}.pt2"
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.zeros(2, 3),)), str(path))
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    path.unlink()
    return entries


def program(draw, path):
    entries = dict(program_entries())
    name = next(each for each in entries if each.endswith("_weights_config.json"))
    config = json.loads(entries[name])
    entry = dict(next(iter(config["config"].values())), path_name="big")
    size = draw(st.sampled_from([MIB, 0, 3, 10**9, 1 << 62]))
    entry["tensor_meta"] = dict(entry["tensor_meta"], sizes=[{"as_int": size}], strides=[{"as_int": 1}])
    config["config"] |= {f"x{number}": entry for number in range(draw(COUNTS))}
    entries |= {name: json.dumps(config).encode(), f"{name.rpartition('/')[0]}/big": bytes(4 * MIB)}
    model = next(each for each in entries if each.endswith("model.json"))
    claim = draw(st.sampled_from(["storages", "values", "depth"]))
    if claim == "values":
        entries[model] = b'{"x": [' + b"[]," * draw(REPEATS) + b"[]]}"
    elif claim == "depth":
        entries[model] = b"[" * draw(DEPTHS)
    path.write_bytes(zipped([*entries.items()]))


def onnx_model(draw, path):
    def weight(number):
        tensor = onnx.TensorProto(name=f"w{number}", data_type=onnx.TensorProto.FLOAT, dims=[min(size, 1 << 62), 2])
        if outside:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", path.name + ".data"), ("offset", "0"), ("length", str(len(data)))):
                tensor.external_data.add(key=key, value=value)
        else:
            tensor.raw_data = bytes(8)
        return tensor

    data = bytes(draw(st.sampled_from([4 * MIB, 8])))
    size = draw(st.sampled_from([len(data) // 8, 0, 7, 10**9, 1 << 62]))
    outside = draw(st.sampled_from([True, False]))
    path.with_name(path.name + ".data").write_bytes(data)
    shape = onnx.helper.make_tensor("s", onnx.TensorProto.INT64, [1], [min(draw(SIZES), 1 << 40)])
    nodes = [onnx.helper.make_node("ConstantOfShape", ["s"], ["z"]), onnx.helper.make_node("Add", ["x", "z"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [shape, *map(weight, range(min(draw(COUNTS), 300)))])
    opset = onnx.helper.make_opsetid("", 18)
    path.write_bytes(onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString())


def arrays(draw, path):
    zeros = draw(ZEROS)
    shape = draw(st.sampled_from([(1, zeros), (1 << 40, 3), (1 << 62, 1 << 62), (0, 1 << 40)]))
    kind = draw(st.sampled_from(["|u1", "<f4", "|O"]))
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(zeros)
    if draw(st.booleans()):
        path.write_bytes(array[: 4 * MIB])
    else:
        path.write_bytes(zipped([("a.npy", array)], zipfile.ZIP_DEFLATED))


def compressed(draw, path):
    path.write_bytes(gzip.compress(bytes(draw(ZEROS)), 1))


def tar(draw, path):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("a")
        archive.addfile(info)
    path.write_bytes(path.read_bytes() + bytes(min(draw(ZEROS), MIB)))


def picture(draw, path):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    side = draw(st.sampled_from([9_000, 1, 20_000, 1 << 30]))
    header = struct.pack(">IIBBBBB", side, side, 8, draw(st.sampled_from([2, 0])), 0, 0, 0)
    data = zlib.compress(bytes((3 * side + 1) * side if side == 9_000 else 100), 1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def headed(head):
    """A file of a kind that is refused by its head, followed by many bytes."""
    return lambda draw, path: path.write_bytes(head + b" " * min(draw(ZEROS), 8 * MIB))


def archive_of(*names):
    """An archive with these entries, of compressed zeros."""
    return lambda draw, path: path.write_bytes(zipped([(n, bytes(draw(ZEROS))) for n in names], zipfile.ZIP_DEFLATED))


BUILDERS = {
    kinds.TORCH: torch_archive,
    kinds.LEGACY: legacy,
    kinds.SAFETENSORS: safetensors,
    kinds.FOLDER: folder,
    kinds.EXPORT: program,
    kinds.ONNX: onnx_model,
    kinds.SCRIPT: archive_of("archive/constants.pkl", "archive/data.pkl"),
    kinds.ARRAYS: arrays,
    kinds.PICKLE: lambda draw, path: path.write_bytes(pickled(draw)),
    kinds.TAR: tar,
    kinds.ZIP: archive_of("a", "b"),
    kinds.COMPRESSED: compressed,
    kinds.HDF5: headed(b"\x89HDF\r\n\x1a\n"),
    kinds.KERAS: archive_of("model.weights.h5"),
    kinds.GGUF: headed(b"GGUF\3\0\0\0" + b"\xff" * 16),
    kinds.POINTER: headed(b"version https://git-lfs.github.com/spec/v1\n"),
    kinds.PAGE: headed(b"<!doctype html>"),
    kinds.IMAGE: picture,
    kinds.TEXT: headed(b"text "),
    kinds.UNKNOWN: headed(b"\x00\x01\x02\xff\xfe"),
}


READERS = (load, inspection_of, arrays_in, lambda path: read_images(str(path)))
"""Everything that reads a file which somebody else names."""


def growth(path, reader, most, seconds):
    """MiB by which a fork of this process grew while it read, its exit code, and its seconds; ended beyond a limit.

    The seconds are those of a processor, which others use too; of a reader that waits, a tenth of the clock's.
    """
    start, child = time.monotonic(), os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            with contextlib.suppress(Conv2AttnError):
                reader(path)
            code = 0
        os._exit(code)
    first = last = spent = 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        status = Path(f"/proc/{child}/status").read_text()
        sizes = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")]
        first, last = first or sum(sizes), max(last, sum(sizes))
        ticks = sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]))
        spent = max(ticks / os.sysconf("SC_CLK_TCK"), (time.monotonic() - start) / 10)
        if last - first > most or spent > seconds:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.003)
    return last - first, os.waitstatus_to_exitcode(ended[1]), spent


def size_of(path):
    files = [*path.iterdir()] if path.is_dir() else [path, *path.parent.glob(path.name + ".data")]
    return sum(each.stat().st_size for each in files) / MIB


def test_every_kind_is_drawn():
    assert BUILDERS.keys() == {*kinds.KINDS}


@pytest.mark.rotated
@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.words[:30])
def test_a_file_takes_memory_and_time_in_proportion(tmp_path, kind):
    warnings.simplefilter("ignore")
    torch.save(plan(), tmp_path / "plan.pt")
    for reader in READERS:  # what they import is not the file's
        with contextlib.suppress(Conv2AttnError):
            reader(tmp_path / "plan.pt")
    numbers = iter(range(10**6))

    @settings(
        max_examples=settings.default.max_examples // 10,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.generate],  # an example that takes the whole limit would be made smaller for many minutes
        database=None,
    )
    @given(data=st.data())
    def law(data):
        path = tmp_path / f"{next(numbers)}{'.png' * (kind is kinds.IMAGE)}"
        BUILDERS[kind](data.draw, path)
        assert kinds.kind_of_path(path) is kind
        size = size_of(path)
        for number, reader in enumerate(READERS):
            grown, code, seconds = growth(path, reader, 10 * size + 200, 5 + size)
            told = f"{path.name}, reader {number}: {size:.2f} MiB, +{grown:.0f} MiB, {seconds:.1f} s, exit {code}"
            assert code == 0, told

    law()


def test_growth_and_errors_are_seen(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    assert growth(tmp_path / "file", lambda _: len(bytearray(b"x" * 300 * MIB)), 200, 5)[1] == -signal.SIGKILL
    assert growth(tmp_path / "file", lambda _: time.sleep(9), 200, 0.01)[1] == -signal.SIGKILL
    assert growth(tmp_path / "file", lambda _: all(iter(lambda: 1, 0)), 200, 0.1)[1] == -signal.SIGKILL
    assert growth(tmp_path / "file", lambda _: 1 / 0, 200, 5)[1] == 1
    assert growth(tmp_path / "file", len, 200, 5)[1] == 1
    assert growth(tmp_path / "file", str, 200, 5)[1] == 0
