"""Images, recipes and layers that the experiments do not take."""

import gzip
import pickle
from pathlib import Path

import torch
from lab.cases import archive, cifar_files, drawn, quiet, small, write_idx
from lab.edges.lines import SIZES
from lab.explore.cases import Transformer, converted, image

from conv2attn.errors import CheckpointError, UnsupportedError, UsageError
from conv2attn.lab.data import read_idx, read_images_of
from conv2attn.lab.explore import captured_layers, explored_layers, explored_photo
from conv2attn.lab.training import TrainingRecipe, train


def cifar(change):
    """Reads an archive of CIFAR-10 with other files."""
    files, _, _ = cifar_files(10)
    changed = {name: content for name, content in (files | change(files)).items() if content is not None}
    read_images_of(str(archive(Path("cifar.tar.gz").absolute(), changed)))


def idx(change):
    """Reads an IDX file whose bytes were changed."""
    write_idx(Path("a.gz"), drawn(3, 4, 5))
    Path("changed").write_bytes(change(gzip.decompress(Path("a.gz").read_bytes())))
    read_idx(Path("changed"))


def windows():
    network = Transformer(1)
    network.windows = 3
    captured_layers(network, image())


def not_finite():
    network = Transformer(0)
    network.embed.weight.data[0] = torch.nan
    captured_layers(network, image())


def trained(kind, **sizes):
    train(small(kind, **SIZES | sizes), Path("new"), report=quiet)


REFUSALS = {
    CheckpointError: {
        r"C2A302 data_batch_3\.bin": lambda: cifar(lambda files: {"data_batch_3.bin": files["data_batch_3.bin"][:-1]}),
        "a test label is none of 10": lambda: cifar(
            lambda files: {"test_batch.bin": b"\x0b" + files["test_batch.bin"][1:]}
        ),
        "pickled": lambda: cifar(lambda files: {"data_batch_1": pickle.dumps({"data": 1})}),
        r"lacks data_batch_3\.bin": lambda: cifar(lambda files: {"data_batch_3.bin": None}),
        "C2A302": [
            lambda: idx(lambda raw: raw[:-1]),
            lambda: idx(lambda raw: raw + b"x"),
            lambda: idx(lambda raw: raw[:6]),
        ],
        "C2A303": lambda: idx(lambda raw: b"\x00\x00\x0d" + raw[3:]),
    },
    UsageError: {
        "C2A002 kind='cubic' is not one of": lambda: TrainingRecipe("cubic"),
        "C2A007 .*lines of 48": lambda: trained("resnet"),
        "C2A007 .*images of 48 pixels": lambda: trained("learned", patch=5),
        "C2A008 the pattern 'none' fits no layer that attends": lambda: captured_layers(
            Transformer(1), image(), ["none"]
        ),
    },
    UnsupportedError: {
        "in windows of a larger image": windows,
        "attention: its attention is not finite": not_finite,
        "no attention layer of such a name": lambda: explored_layers(converted(), image(), ["none"]),
        "C2A110 an image of 2 channels is not a colour photo": lambda: explored_photo(
            Transformer(1).eval(), torch.rand(1, 2, 7, 9)
        ),
    },
}
