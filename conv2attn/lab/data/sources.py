"""The sources of images and lines: a Debian package, scikit-learn, CIFAR's archives, a folder, or a seed."""

import gzip
import math
import tarfile
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError, first_line
from conv2attn.extras import optional
from conv2attn.lab.data.labelled_images import LabelledImages

FASHION = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
DIGITS_FOR_TRAINING = 1437  # four fifths of 1,797; the last fifth is by other writers


def read_images_of(source: str) -> LabelledImages:
    """The data set named by `source`.

    Args:
        source: "fashion-mnist" (Debian's package dataset-fashion-mnist), "digits" (scikit-learn's 8x8 digits),
            "motifs" (lines of symbols, made here), a CIFAR-10 or CIFAR-100 archive or its unpacked folder, or a folder
            of images, train/CLASS/FILE and test/CLASS/FILE.
    Raises:
        CheckpointError: the source is missing (C2A301), damaged (C2A302) or of another kind (C2A303).
        UsageError: a required package is not installed (C2A003).
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
    """The bytes of an idx file, in the shape of its header.

    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), or not an idx file of bytes (C2A303).
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


TEN = tuple(f"data_batch_{n}.bin" for n in range(1, 6)), ("test_batch.bin",), "batches.meta.txt"
HUNDRED = ("train.bin",), ("test.bin",), "fine_label_names.txt"
BYTES = 3 * 32 * 32
CIFAR_REMEDY = "Take the binary version: cifar-10-binary.tar.gz or cifar-100-binary.tar.gz."


def read_cifar(path: Path) -> LabelledImages | None:
    """The data set in a binary archive or its unpacked folder, or None if it has nothing of CIFAR.

    Raises:
        CheckpointError: a file is missing or damaged (C2A302), or it is the Python version (C2A303).
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


IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FOLDER_REMEDY = "Sort the images into train/CLASS/ and test/CLASS/."


def read_folder(path: Path) -> LabelledImages:
    """The images in `path`/train/CLASS and `path`/test/CLASS; grey if every image is, otherwise RGB.

    Raises:
        CheckpointError: no such folders, no images, or images that differ in size or cannot be read (C2A303).
        UsageError: pillow is not installed (C2A003).
    """
    if not (path / "train").is_dir() or not (path / "test").is_dir():
        raise CheckpointError("C2A303", f"{path} has no folders train and test", FOLDER_REMEDY)
    classes = tuple(sorted(folder.name for folder in (path / "train").iterdir() if folder.is_dir()))
    if unknown := sorted({f.name for f in (path / "test").iterdir() if f.is_dir()} - {*classes}):
        raise CheckpointError("C2A303", f"{path}/test/{unknown[0]} has no images in train", FOLDER_REMEDY)
    files_of_part = {part: [*labelled_files(path / part, classes)] for part in ("train", "test")}
    for part, files in files_of_part.items():
        if not files:
            raise CheckpointError("C2A303", f"{path / part} holds no images", FOLDER_REMEDY)
    grey = all(image_mode(file) in ("1", "L") for files in files_of_part.values() for file, _ in files)
    arrays = [read_all([file for file, _ in files], "L" if grey else "RGB") for files in files_of_part.values()]
    labels = [torch.tensor([label for _, label in files]) for files in files_of_part.values()]
    return LabelledImages(path.name, arrays[0], labels[0], arrays[1], labels[1], classes)


def labelled_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """The image files of each class, sorted, with their labels."""
    return [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).glob("*"))
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]


def image_mode(file: Path) -> str:
    """Pillow's mode of an image file, such as L for grey."""
    pillow = optional("PIL.Image", "a folder of images")
    try:
        with pillow.open(file) as image:
            return str(image.mode)
    except OSError as error:
        raise CheckpointError("C2A303", f"{file} is not an image ({error})", FOLDER_REMEDY) from error


def read_all(files: list[Path], mode: str) -> Tensor:
    """The pixels of images of one size: bytes (images, channels, rows, columns)."""
    pixels: list[Tensor] = []
    for file in files:
        try:
            with optional("PIL.Image").open(file) as image:
                array = torch.from_numpy(np.array(image.convert(mode)))
        except OSError as error:
            raise CheckpointError("C2A303", f"{file} cannot be read ({error})", "Remove it.") from error
        if pixels and array.shape != pixels[0].shape:
            sizes = ["x".join(map(str, each.shape[:2])) for each in (array, pixels[0])]
            raise CheckpointError("C2A303", f"{file} is {sizes[0]}, and {files[0]} {sizes[1]}", "Resize the images.")
        pixels.append(array)
    stacked = torch.stack(pixels)
    return stacked[:, None] if mode == "L" else stacked.permute(0, 3, 1, 2).contiguous()


SYMBOLS, LENGTH = 8, 48
MOTIFS = tuple(permutations(range(3)))
"""One motif per class; counts of symbols do not distinguish them."""
TRAINING, TEST, SEED = 4000, 1000, 0


def make_motifs() -> LabelledImages:
    """4,000 and 1,000 lines of 48 symbols, a channel for each of eight: bytes (lines, 8, 48), 255 at the symbol.

    Symbols are drawn at random. Each line has exactly one motif, at a random place: the symbols 0, 1 and 2 in sequence,
    whose order is the class.
    """
    generator, pixels, labels = torch.Generator().manual_seed(SEED), list[Tensor](), list[Tensor]()
    while sum(map(len, labels)) < TRAINING + TEST:
        lines = torch.randint(SYMBOLS, (4 * TEST, LENGTH), generator=generator)
        places = torch.randint(LENGTH - 2, (len(lines), 1), generator=generator) + torch.arange(3)
        classes = torch.randint(len(MOTIFS), (len(lines),), generator=generator)
        lines.scatter_(1, places, torch.tensor(MOTIFS)[classes])
        alone = motifs_in(lines).sum((1, 2)) == 1
        pixels.append(torch.nn.functional.one_hot(lines[alone], SYMBOLS).mT.to(torch.uint8) * 255)
        labels.append(classes[alone])
    line, label = torch.cat(pixels)[: TRAINING + TEST], torch.cat(labels)[: TRAINING + TEST]
    parts = (line[:TRAINING], label[:TRAINING], line[TRAINING:], label[TRAINING:])
    names = tuple("".join("abc"[symbol] for symbol in motif) for motif in MOTIFS)
    return LabelledImages("motifs", *parts, names, mirrors=False)


def motifs_in(lines: Tensor) -> Tensor:
    """Whether a motif begins at a place of lines (lines, length): (lines, motifs, length - 2)."""
    windows = lines.unfold(1, 3, 1)
    return torch.stack([(windows == torch.tensor(motif)).all(-1) for motif in MOTIFS], 1)
