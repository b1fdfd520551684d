"""The kind of a file, found from its content and never from its name, and whether the file is whole.

The size, the entries, the checksums and the stated sizes of a file are checked before its content is read.
"""

import json
import os
import stat
import zipfile
from codecs import utf_8_decode
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from conv2attn.errors import CheckpointError
from conv2attn.files.pickle_size import draw_pickles

HEAD = 512  # bytes: a header of tar is as long
LARGEST_FILE = 1 << 33  # bytes: thirty times the float32 weights of a ResNet-152
LARGEST_TEXT = 1 << 24
LARGEST_PICKLE = 1 << 26  # bytes: about 200 per tensor, and no supported network has 100,000 tensors
DIRECTORY = 0x10  # an attribute of zip entries for which torch.load returns uninitialised memory
LEGACY_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06")
STATE_DICT = "Save its weights in Python, torch.save(model.state_dict(), 'weights.pt'), and pass --arch with that file."
SAVE_STATE = "Save the model with torch.save(model.state_dict(), path)."
COPY_AGAIN = "Copy or download it again."
SAVE_AGAIN = "Save it again with torch.save."
UNPACK = "Unpack it first, and pass the file inside."


@final
@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        words: its name, without an article.
        way_out: advice on such a file; empty if it can be read.
        heads: the first bytes of such files, if these decide.
    """

    words: str
    way_out: str = ""
    heads: tuple[bytes, ...] = ()

    @property
    def article(self) -> str:
        """The words with their article."""
        return f"an {self.words}" if self.words[:2] in ("ON", "HD") else f"a {self.words}"


KINDS: list[Kind] = []
"""All kinds, in the order in which first bytes are tried."""


def kind(words: str, way_out: str = "", *heads: bytes) -> Kind:
    """A new kind, entered in the table."""
    KINDS.append(Kind(words, way_out, heads))
    return KINDS[-1]


TORCH = kind("torch.save file")
LEGACY = kind("torch.save file of the format before torch 1.6")
SAFETENSORS = kind("safetensors file")
FOLDER = kind("folder with a config.json")
EXPORT = kind("program that torch.export saved (.pt2)", STATE_DICT)
ONNX = kind("ONNX model", STATE_DICT)
SCRIPT = kind("TorchScript program", STATE_DICT.replace("model.", "torch.jit.load(FILE)."))
ARRAYS = kind("file of NumPy arrays", "Pass arrays of attention to check-span, or images to --inputs.", b"\x93NUMPY")
PICKLE = kind("pickle that torch.save did not write", STATE_DICT)
TAR = kind("tar archive", UNPACK)
ZIP = kind("zip archive of something else", UNPACK)
COMPRESSED = kind("compressed file", UNPACK, b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf")
HDF5 = kind("HDF5 file, such as Keras writes", "Convert its weights to a PyTorch state dict first.", b"\x89HDF")
KERAS = kind("Keras file", "Convert its weights to a PyTorch state dict first.")
GGUF = kind("GGUF file of quantised weights", "Pass the original floating-point weights.", b"GGUF")
POINTER = kind(
    "pointer of Git LFS, not the file itself",
    "Fetch the file with git lfs pull.",
    b"version https://git-lfs",
)
PAGE = kind("web page", "Download or copy the file itself again.")
IMAGE = kind("picture", "Pass a network here, and pictures to --inputs.", b"\x89PNG", b"\xff\xd8\xff")
TEXT = kind("text file", "Pass a file of weights.")
UNKNOWN = kind("file of unknown kind", STATE_DICT)


def kind_of_file(file: IO[bytes], size: int) -> Kind:
    """The kind of an open file of `size` bytes. Only its head, or its list of entries, is read.

    Raises:
        zipfile.BadZipFile: the file begins like a zip archive, but is not one.
    """
    file.seek(0)
    head = file.read(HEAD)
    if head.startswith(ZIP_HEADS):
        with zipfile.ZipFile(file) as archive:
            return kind_of_archive(archive.namelist())
    # A truncated file may end within this head. Then it is reported as damaged, not as unknown.
    if size > 0 and LEGACY_HEAD.startswith(head[: len(LEGACY_HEAD)]):
        return LEGACY
    for each in KINDS:
        if head.startswith(each.heads):
            return each
    # safetensors: the length of a JSON header in eight bytes, then the header.
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 30:
        return SAFETENSORS
    # The magic word of tar is inside its first header.
    if head[257:262] == b"ustar":
        return TAR
    # A pickle begins with the opcode PROTO and the number of its protocol.
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return PICKLE
    # ONNX has no magic word: field 1 of its message, a small version number, and the tag of another field.
    if head[:1] == b"\x08" and 0 < head[1] < 32 and head[2:3] in b"\x12\x1a\x22\x28\x32\x3a\x42":
        return ONNX
    return kind_of_text(head)


def kind_of_text(head: bytes) -> Kind:
    """Whether the first bytes are those of a web page, of another text, or of neither."""
    try:
        # The head of a longer file may end within a letter, which is then left out.
        text = utf_8_decode(head, "strict", len(head) < HEAD)[0].lstrip().lower()
    except UnicodeDecodeError:
        return UNKNOWN
    if text.startswith(("<!doctype", "<html", "<?xml", "<head")):
        return PAGE
    return TEXT if all(letter.isprintable() or letter.isspace() for letter in text) else UNKNOWN


def kind_of_archive(names: Collection[str]) -> Kind:
    """The kind of a zip archive, from the names of its entries."""
    last = [name.rpartition("/")[2] for name in names]
    # A TorchScript archive also has a data.pkl, so it comes first.
    if "constants.pkl" in last:
        return SCRIPT
    if "data.pkl" in last:
        return TORCH
    if "archive_format" in last or any(name.endswith("serialized_exported_program.json") for name in last):
        return EXPORT
    if "model.weights.h5" in last:
        return KERAS
    if last and all(name.endswith(".npy") for name in last):
        return ARRAYS
    return ZIP


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """An open regular file.

    Raises:
        CheckpointError: the file is missing, or cannot be read (C2A301).
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a directory, not a file" if path.is_dir() else "not a regular file"
            raise CheckpointError("C2A301", f"{path} is {kind}", "Pass a regular file.")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from None
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror or error}"
        raise CheckpointError("C2A301", reason, "Check the path, and the rights to read it.") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing (C2A301), too large (C2A307), or not a JSON object (C2A303).
    """
    with open_file(path) as file:
        if (size := path.stat().st_size) > LARGEST_TEXT:
            reason = f"{path} has {size:,} bytes, more than {LARGEST_TEXT:,}"
            raise CheckpointError("C2A307", reason, "Pass the folder of a model, whose JSON files are small.")
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise CheckpointError("C2A303", f"{path} is not JSON ({error})", "Download it again.") from error
    if not isinstance(content, dict):
        raise CheckpointError("C2A303", f"{path} holds a {type(content).__name__}, not an object", "Download it again.")
    return content


def kind_of_path(path: Path) -> Kind:
    """The kind of a file or folder.

    Raises:
        CheckpointError: the file is missing, or cannot be read (C2A301).
        zipfile.BadZipFile: the file begins like a zip archive, but is not one.
    """
    if path.is_dir():
        return FOLDER
    with open_file(path) as file:
        return kind_of_file(file, path.stat().st_size)


def inspect(path: Path, file: IO[bytes], limit: int = LARGEST_FILE) -> Kind:
    """The kind of a file, after checks of size, entries and checksums, before any content is read.

    Raises:
        CheckpointError: the file is empty or damaged (C2A302), misstates its entries (C2A303), or is too large, or its
            pickle creates too much (C2A307).
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise CheckpointError("C2A302", f"{path} is empty", COPY_AGAIN)
    if size > limit:
        reason = f"{path} has {size:,} bytes, more than {limit:,}"
        raise CheckpointError("C2A307", reason, "Raise --max-size, in GiB, if the file is meant to be so large.")
    try:
        kind = kind_of_file(file, size)
        if kind in (TORCH, EXPORT):
            with zipfile.ZipFile(file) as archive:
                inspect_archive(path, archive, size, kind)
        if kind in (TORCH, LEGACY):
            draw_pickles(path, file)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError("C2A302", f"{path} is truncated or damaged: {error}", COPY_AGAIN) from error
    return kind


def inspect_archive(path: Path, archive: zipfile.ZipFile, size: int, kind: Kind) -> None:
    """Refuses an archive with ambiguous entries, or entries that do not match their checksums."""
    entries = archive.infolist()
    counts = Counter(entry.filename.lower() for entry in entries)
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        reason = f"{path} holds two entries named {repeated!r}: readers differ on which counts"
        raise CheckpointError("C2A303", reason, SAVE_AGAIN)
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise CheckpointError("C2A303", f"{path}: {entry.filename!r} is compressed or encrypted", SAVE_AGAIN)
        if entry.external_attr & DIRECTORY:
            raise CheckpointError("C2A302", f"{path}: {entry.filename!r} is marked as a directory", COPY_AGAIN)
    # Entries are stored uncompressed: together they exceed the file only if they overlap, or if a size is false.
    if sum(entry.file_size for entry in entries) > size:
        raise CheckpointError("C2A303", f"{path} claims more bytes than it has", SAVE_AGAIN)
    pickles = [entry.file_size for entry in entries if entry.filename.split("/")[-1] == "data.pkl"]
    if kind is TORCH and len(pickles) != 1:
        reason = f"{path} is an archive with {len(pickles)} entries named data.pkl, not one"
        raise CheckpointError("C2A303", reason, SAVE_AGAIN)
    if max(pickles, default=0) > LARGEST_PICKLE:
        reason = f"{path}: data.pkl has {max(pickles)} bytes, more than {LARGEST_PICKLE}"
        raise CheckpointError("C2A307", reason, "Save only its state dict: torch.save(model.state_dict(), path).")
    if damaged := archive.testzip():
        raise CheckpointError("C2A302", f"{path}: {damaged!r} does not match its checksum", COPY_AGAIN)
