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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.errors import Conv2AttnError
from conv2attn.files import kinds, load, read_images, save
from conv2attn.files.array_files import arrays_in
from conv2attn.files.inspection import inspection_of
from conv2attn.files.kinds import KINDS, kind_of_path

MIB = 1 << 20
COUNTS = st.sampled_from([1, 3, 40, 300, 3_000])
SIZES = st.sampled_from([0, 1, 7, 4_000, 200_000, 10**9, 1 << 62])
DEPTHS = st.sampled_from([1, 10, 63, 65, 900, 20_000])
ZEROS = st.sampled_from([100, 50_000, 256 * MIB])
"""Of a compressed entry, which unpacks to so many bytes."""
REPEATS = st.sampled_from([10, 20_000, 4_000_000])


def tree(draw):
    """Containers that name each other, themselves, one storage, and more elements than there are."""
    tensor = torch.zeros(draw(st.sampled_from([4, 1_000_000])))
    size = draw(SIZES)
    pool = [tensor, {"weight": tensor}, [], {"weight": Oversized((size,), (draw(st.integers(0, 1)),))}]
    for _ in range(draw(st.integers(0, 30))):
        members = draw(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=3))
        pool.append([pool[each] for each in members] if draw(st.booleans()) else {str(m): pool[m] for m in members})
    if draw(st.booleans()):
        pool[2].append(pool[-1])  # often a cycle
    names = {f"k{number}": tensor for number in range(draw(COUNTS))}
    return {**draw(st.sampled_from([{}, STATE, plan()])), draw(st.sampled_from(["x", "state_dict"])): pool[-1], **names}


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
    body = b"(" + part * draw(REPEATS) + b"l" if draw(st.booleans()) else b"]" + part * draw(REPEATS)
    return b"\x80\x02" + body + b"."


def torch_archive(draw, path):
    torch.save(tree(draw), path)
    if draw(st.booleans()):
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
    entry["tensor_meta"] = dict(entry["tensor_meta"], sizes=[{"as_int": draw(SIZES)}], strides=[{"as_int": 1}])
    config["config"] |= {f"x{number}": entry for number in range(draw(COUNTS))}
    entries |= {name: json.dumps(config).encode(), f"{name.rpartition('/')[0]}/big": bytes(4 * draw(COUNTS) * 1000)}
    model = next(each for each in entries if each.endswith("model.json"))
    nested = b"[" * draw(DEPTHS) if draw(st.booleans()) else b'{"x": [' + b"[]," * draw(REPEATS) + b"[]]}"
    path.write_bytes(zipped([*{**entries, **({model: nested} if draw(st.booleans()) else {})}.items()]))


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

    size, outside, data = draw(SIZES), draw(st.booleans()), bytes(draw(st.sampled_from([8, 4 * MIB])))
    path.with_name(path.name + ".data").write_bytes(data)
    shape = onnx.helper.make_tensor("s", onnx.TensorProto.INT64, [1], [min(draw(SIZES), 1 << 40)])
    nodes = [onnx.helper.make_node("ConstantOfShape", ["s"], ["z"]), onnx.helper.make_node("Add", ["x", "z"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [shape, *map(weight, range(min(draw(COUNTS), 300)))])
    opset = onnx.helper.make_opsetid("", 18)
    path.write_bytes(onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString())


def arrays(draw, path):
    shape = f"({draw(SIZES)}, {draw(st.sampled_from([1, 4_000]))}, )"
    header = f"{{'descr': '{draw(st.sampled_from(['<f4', '|u1', '|O']))}', 'fortran_order': False, 'shape': {shape}}}"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + bytes(draw(ZEROS))
    if draw(st.booleans()):
        path.write_bytes(zipped([("a.npy", array)], zipfile.ZIP_DEFLATED))
    else:
        path.write_bytes(array[: 4 * MIB])


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

    side = draw(st.sampled_from([1, 9_000, 20_000, 1 << 30]))
    header = struct.pack(">IIBBBBB", side, side, 8, draw(st.sampled_from([0, 2])), 0, 0, 0)
    data = zlib.compress(bytes(draw(ZEROS)), 1)
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


def read(path):
    """Everything that reads a file which somebody else names."""
    for reader in (load, inspection_of, arrays_in, lambda it: read_images(str(it))):
        with contextlib.suppress(Conv2AttnError):
            reader(path)


def growth(path, reader, most, seconds):
    """MiB by which a fork of this process grew while it read, its exit code, and its seconds; ended beyond a limit."""
    start, child = time.monotonic(), os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            reader(path)
            code = 0
        os._exit(code)
    first = last = 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        status = Path(f"/proc/{child}/status").read_text()
        sizes = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")]
        first, last = first or sum(sizes), max(last, sum(sizes))
        if last - first > most or time.monotonic() - start > seconds:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.003)
    return last - first, os.waitstatus_to_exitcode(ended[1]), time.monotonic() - start


def size_of(path):
    files = [*path.iterdir()] if path.is_dir() else [path, *path.parent.glob(path.name + ".data")]
    return sum(each.stat().st_size for each in files) / MIB


def test_every_kind_is_drawn():
    assert BUILDERS.keys() == {*KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.words[:30])
def test_a_file_takes_memory_and_time_in_proportion(tmp_path, kind):
    warnings.simplefilter("ignore")
    read(Path(__file__))  # what readers import is not the file's
    numbers = iter(range(10**6))

    @settings(
        max_examples=settings.default.max_examples // 10,
        deadline=None,
        suppress_health_check=[*HealthCheck],
        database=None,
    )
    @given(data=st.data())
    def law(data):
        path = tmp_path / f"{next(numbers)}{'.png' * (kind is kinds.IMAGE)}"
        BUILDERS[kind](data.draw, path)
        assert kind_of_path(path) is kind
        size = size_of(path)
        grown, code, seconds = growth(path, read, 10 * size + 200, 5 + size)
        assert code == 0, f"{path.name}: {size:.2f} MiB, grew by {grown:.0f} MiB in {seconds:.1f} s, exit {code}"

    law()


def test_growth_and_errors_are_seen(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    assert growth(tmp_path / "file", lambda _: len(bytearray(b"x" * 300 * MIB)), 200, 5)[1] == -signal.SIGKILL
    assert growth(tmp_path / "file", lambda _: time.sleep(9), 200, 0.1)[1] == -signal.SIGKILL
    assert growth(tmp_path / "file", lambda _: 1 / 0, 200, 5)[1] == 1
    assert growth(tmp_path / "file", len, 200, 5)[1] == 1
    assert growth(tmp_path / "file", str, 200, 5)[1] == 0
