"""CIFAR-10 and CIFAR-100 in their published binary versions (cs.toronto.edu/~kriz/cifar.html); no pickle is read."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError, first_line
from conv2attn.lab.data.labelled_images import LabelledImages

TEN = tuple(f"data_batch_{n}.bin" for n in range(1, 6)), ("test_batch.bin",), "batches.meta.txt"
HUNDRED = ("train.bin",), ("test.bin",), "fine_label_names.txt"
BYTES = 3 * 32 * 32
CIFAR_REMEDY = "Take the binary version: cifar-10-binary.tar.gz or cifar-100-binary.tar.gz."


def read_cifar(path: Path) -> LabelledImages | None:
    """The data set in a binary archive or its unpacked folder, or None where it holds nothing of CIFAR.

    Raises:
        CheckpointError: a file of it is missing or damaged (C2A302), or it is the Python version (C2A303).
    """
    files = files_of(path)
    if any(name in files for name in ("data_batch_1", "meta")):
        raise CheckpointError("C2A303", f"{path} is the Python version of CIFAR, which is pickled", CIFAR_REMEDY)
    for name, (training, test, names), labels in (("cifar-10", TEN, 1), ("cifar-100", HUNDRED, 2)):
        if training[0] not in files:
            continue
        if missing := [file for file in (*training, *test, names) if file not in files]:
            raise CheckpointError("C2A302", f"{path} lacks {missing[0]}", "Unpack the archive again.")
        classes = tuple(line for line in files[names].decode().split("\n") if line.strip())
        parts = (*cifar_records(path, files, training, labels), *cifar_records(path, files, test, labels))
        return LabelledImages(name, *parts, classes)
    return None


def files_of(path: Path) -> Mapping[str, bytes]:
    """The contents of the files of CIFAR in a folder or archive, by their names without folders."""
    names = {*TEN[0], *TEN[1], TEN[2], *HUNDRED[0], *HUNDRED[1], HUNDRED[2], "data_batch_1", "meta"}
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir() if file.name in names and file.is_file()}
    try:
        with tarfile.open(path) as archive:
            members = [m for m in archive if m.isfile() and Path(m.name).name in names]
            return {Path(m.name).name: member.read() for m in members if (member := archive.extractfile(m))}
    except (tarfile.TarError, OSError, EOFError) as error:
        reason = first_line(error).rstrip(":")
        raise CheckpointError("C2A303", f"{path} is not an archive of images ({reason})", CIFAR_REMEDY) from error


def cifar_records(path: Path, files: Mapping[str, bytes], names: tuple[str, ...], labels: int) -> tuple[Tensor, Tensor]:
    """Pixels and labels of the records in these files: `labels` bytes, of which the last counts, and an image."""
    arrays = []
    for name in names:
        size = len(files[name])
        if size % (labels + BYTES) or not size:
            raise CheckpointError(
                "C2A302",
                f"{name} in {path} has {size} bytes, not records of {labels + BYTES}",
                "Download the archive again.",
            )
        arrays.append(np.frombuffer(files[name], np.uint8).reshape(-1, labels + BYTES))
    rows = torch.from_numpy(np.concatenate(arrays))
    return rows[:, labels:].reshape(-1, 3, 32, 32).clone(), rows[:, labels - 1].long()
