"""The kind of a file, found from its content and never from its name."""

import zipfile
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import IO, final

LEGACY_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06")
STATE_DICT = "Save its weights in Python, torch.save(model.state_dict(), 'weights.pt'), and pass --arch with that file."
AGAIN = "Download or copy the file itself again."
HEADS = (
    (b"version https://git-lfs", "POINTER"),
    (b"\x89PNG", "IMAGE"),
    (b"\xff\xd8\xff", "IMAGE"),
    (b"\x89HDF", "HDF5"),
    (b"GGUF", "GGUF"),
    (b"\x93NUMPY", "ARRAYS"),
    (b"\x1f\x8b", "COMPRESSED"),
    (b"BZh", "COMPRESSED"),
    (b"\xfd7zXZ", "COMPRESSED"),
    (b"7z\xbc\xaf", "COMPRESSED"),
)


@final
class Kind(Enum):
    """A kind of file, in words, and the way from it to a network where it is not read as it is."""

    TORCH = "torch.save file", ""
    LEGACY = "torch.save file of the format before torch 1.6", ""
    SAFETENSORS = "safetensors file", ""
    FOLDER = "folder with a config.json", ""
    EXPORT = "program that torch.export saved (.pt2)", STATE_DICT
    ONNX = "ONNX model", STATE_DICT
    SCRIPT = "TorchScript program", STATE_DICT.replace("model.", "torch.jit.load(FILE).")
    ARRAYS = "file of NumPy arrays", "Pass arrays of attention to check-span, or images to --inputs."
    PICKLE = "pickle that torch.save did not write", STATE_DICT
    TAR = "tar archive", "Unpack it first, and pass the file inside."
    ZIP = "zip archive of something else", "Unpack it first, and pass the file inside."
    COMPRESSED = "compressed file", "Unpack it first, and pass the file inside."
    HDF5 = "HDF5 file, such as Keras writes", "Convert its weights to a PyTorch state dict first."
    GGUF = "GGUF file of quantised weights", "Pass the original floating-point weights."
    POINTER = "pointer of Git LFS, not the file that it stands for", "Fetch the file with git lfs pull."
    PAGE = "web page", AGAIN
    IMAGE = "picture", "Pass a network here, and pictures to --inputs."
    TEXT = "text file", "Pass a file of weights."
    UNKNOWN = "file of no kind that is known here", STATE_DICT

    @property
    def words(self) -> str:
        """The kind in words, without an article."""
        return self.value[0]

    @property
    def way_out(self) -> str:
        """Advice on such a file; empty where it is read as it is."""
        return self.value[1]

    @property
    def article(self) -> str:
        """The words with their article."""
        return f"an {self.words}" if self.words[:2] in ("ON", "HD") else f"a {self.words}"


def kind_of(file: IO[bytes], size: int) -> Kind:
    """The kind of an open file of `size` bytes. Only its head, or its list of entries, is read.

    Raises:
        zipfile.BadZipFile: it begins like a zip archive and is none.
    """
    file.seek(0)
    head = file.read(512)
    if head.startswith(ZIP_HEADS):
        with zipfile.ZipFile(file) as archive:
            return kind_of_archive(archive.namelist())
    if size > 0 and LEGACY_HEAD.startswith(head[: len(LEGACY_HEAD)]):
        return Kind.LEGACY
    for start, name in HEADS:
        if head.startswith(start):
            return Kind[name]
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 30:
        return Kind.SAFETENSORS
    if head[257:262] == b"ustar":
        return Kind.TAR
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return Kind.PICKLE
    if head[:1] == b"\x08" and 0 < head[1] < 32 and head[2:3] in b"\x12\x1a\x22\x28\x32\x3a\x42":
        return Kind.ONNX
    return kind_of_text(head)


def kind_of_text(head: bytes) -> Kind:
    """Whether the first bytes are those of a web page, of another text, or of neither."""
    try:
        text = head[:-3].decode().lstrip().lower() if len(head) == 512 else head.decode().lstrip().lower()
    except UnicodeDecodeError:
        return Kind.UNKNOWN
    if text.startswith(("<!doctype", "<html", "<?xml", "<head")):
        return Kind.PAGE
    return Kind.TEXT if all(letter.isprintable() or letter.isspace() for letter in text) else Kind.UNKNOWN


def kind_of_archive(names: Collection[str]) -> Kind:
    """The kind of a zip archive, from the names of its entries."""
    last = [name.rpartition("/")[2] for name in names]
    if "constants.pkl" in last:
        return Kind.SCRIPT
    if "data.pkl" in last:
        return Kind.TORCH
    if "archive_format" in last or any(name.endswith("serialized_exported_program.json") for name in last):
        return Kind.EXPORT
    if last and all(name.endswith(".npy") for name in last):
        return Kind.ARRAYS
    return Kind.ZIP


def kind_of_path(path: Path) -> Kind:
    """The kind of a file or folder.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    if path.is_dir():
        return Kind.FOLDER
    with path.open("rb") as file:
        return kind_of(file, path.stat().st_size)
