"""The sources of images and lines: a Debian package, scikit-learn, CIFAR's archives, a folder, or a seed."""

import gzip
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError
from conv2attn.extras import optional
from conv2attn.lab.data.cifar import read_cifar
from conv2attn.lab.data.folder import read_folder
from conv2attn.lab.data.labelled_images import LabelledImages
from conv2attn.lab.data.motifs import make_motifs

FASHION = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
DIGITS_FOR_TRAINING = 1437  # four fifths of 1,797; the last fifth is by other writers


def read_images_of(source: str) -> LabelledImages:
    """The data set that `source` names.

    Args:
        source: "fashion-mnist" (Debian's package dataset-fashion-mnist), "digits" (scikit-learn's 8x8 digits),
            "motifs" (lines of symbols, made here), a CIFAR-10 or CIFAR-100 archive or its unpacked folder, or a folder
            of images, train/CLASS/FILE and test/CLASS/FILE.
    Raises:
        CheckpointError: nothing is there (C2A301), or it is damaged (C2A302) or of another kind (C2A303).
        UsageError: a package that reads it is not installed (C2A003).
    """
    if source == "fashion-mnist":
        return read_fashion_mnist(FASHION)
    if source == "digits":
        return read_digits()
    if source == "motifs":
        return make_motifs()
    path = Path(source)
    if not path.exists():
        raise CheckpointError(
            "C2A301",
            f"{source} is neither fashion-mnist nor digits nor motifs nor a file or folder here",
            "Check the path.",
        )
    return read_cifar(path) or read_folder(path)


def read_fashion_mnist(folder: Path) -> LabelledImages:
    """Fashion-MNIST (Zalando SE): 60,000 and 10,000 grey images of 28x28, ten classes, from its four idx files."""
    if not folder.is_dir():
        raise CheckpointError("C2A301", f"{folder} is not there", "Install it: apt-get install dataset-fashion-mnist.")
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    pixels, labels, test_pixels, test_labels = (read_idx(folder / f"{part}-ubyte.gz") for part in parts)
    return LabelledImages(
        "fashion-mnist", pixels[:, None], labels.long(), test_pixels[:, None], test_labels.long(), GARMENTS
    )


def read_digits() -> LabelledImages:
    """Optical digits (Alpaydin and Kaynak 1998), as scikit-learn has them: 1,797 grey images of 8x8, ten classes."""
    bunch = optional("sklearn.datasets", "the data set digits").load_digits()
    pixels = torch.from_numpy(bunch.images / 16 * 255).round().to(torch.uint8)[:, None]
    labels, cut = torch.from_numpy(bunch.target).long(), DIGITS_FOR_TRAINING
    return LabelledImages(
        "digits", pixels[:cut], labels[:cut], pixels[cut:], labels[cut:], tuple(map(str, range(10))), mirrors=False
    )


def read_idx(path: Path) -> Tensor:
    """The bytes of an idx file, in the shape that its header gives.

    Raises:
        CheckpointError: it is missing (C2A301), damaged (C2A302), or not an idx file of bytes (C2A303).
    """
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from error
    except (OSError, EOFError) as error:
        raise CheckpointError("C2A302", f"{path} cannot be unpacked ({error})", "Download it again.") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise CheckpointError("C2A303", f"{path} is not an idx file of bytes", "Download it again.")
    axes = raw[3]
    start = 4 + 4 * axes
    shape = [int(side) for side in np.frombuffer(raw[4:start], ">i4")] if len(raw) >= start else [-1]
    if len(raw) - start != math.prod(shape):
        raise CheckpointError(
            "C2A302", f"{path} holds {len(raw) - start} bytes, and its header asks for {shape}", "Download it again."
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())
