"""Kinds of networks at small sizes, and small data sets on disk in every format that is read."""

import gzip
import io
import os
import struct
import sys
import tarfile
from dataclasses import replace

import numpy as np

from conv2attn.cli import main
from conv2attn.lab.data import read_images_of
from conv2attn.lab.training import TrainingRecipe, loop

KINDS = ("quadratic", "generalised", "learned", "content", "resnet")
"""Kinds of networks, and "content": the learned one whose queries meet keys and positions, the paper's fourth."""
SIZES = {"width": 16, "heads": 4, "layers": 2, "hidden": 24, "positions": 8}


def small(kind, **changes):
    """A recipe for a small network on 40 digits: two epochs of four steps."""
    given = {"data": "digits", "images": 40, "batch": 10, "epochs": 2, **SIZES, **changes}
    return TrainingRecipe("learned", terms="qk+qr", **given) if kind == "content" else TrainingRecipe(kind, **given)


def quiet(line):
    """A report that prints nothing."""


def without_times(run):
    """The metrics of a run but for how long they took."""
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in run.metrics()]


def few_test_images(source):
    """The images of a source, but of those for tests 30: on all of the digits a test takes longer than an epoch."""
    images = read_images_of(source)
    return replace(images, test_pixels=images.test_pixels[:30], test_labels=images.test_labels[:30])


def command(arguments, said, environment=None):
    """`conv2attn train` on few test images, in a fork: what it says goes to the file `said`."""
    os.environ.update(environment or {})
    loop.read_images_of = few_test_images
    with open(said, "w") as sys.stderr:
        main(["train", *arguments], prog_name="conv2attn")


def drawn(count, *shape):
    """Bytes that a seed draws."""
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def write_idx(path, array):
    """An idx file of bytes, gzipped."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">i", side) for side in array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def cifar_files(classes, images=4):
    """The files of CIFAR-10 or CIFAR-100 by name, with a few images each: (files, pixels by file, labels by file)."""
    fine = classes == 100
    names = ["train.bin", "test.bin"] if fine else [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    files, pixels, labels = {}, {}, {}
    for place, name in enumerate(names):
        pixels[name] = drawn(images, 3, 32, 32) ^ place
        labels[name] = np.arange(images, dtype=np.uint8) + place
        coarse = [np.full(images, 99, np.uint8)] if fine else []
        rows = np.concatenate(
            [*(c[:, None] for c in coarse), labels[name][:, None], pixels[name].reshape(images, -1)], 1
        )
        files[name] = rows.tobytes()
    files["fine_label_names.txt" if fine else "batches.meta.txt"] = "".join(f"c{n}\n" for n in range(classes)).encode()
    return files, pixels, labels


def archive(path, files):
    """A gzipped tar archive that holds the files in a folder."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"cifar/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path
