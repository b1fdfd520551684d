"""Reads a file or folder of weights of any kind, without executing anything."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, final

from torch import Tensor, nn
from torch.serialization import safe_globals

from conv2attn.errors import CheckpointError
from conv2attn.files import kinds
from conv2attn.files.budget import Budget
from conv2attn.files.kinds import LARGEST_FILE, Kind, inspect, kind_of_path, open_file, read_json
from conv2attn.files.onnx_graph import OnnxGraph
from conv2attn.files.onnx_models import onnx_parts, outside_files, read_onnx
from conv2attn.files.pickled import DATA_GLOBALS, RECORDS, code_in, read_module
from conv2attn.files.programs import program_parts, read_program
from conv2attn.files.torch_files import check_tensors, read_safetensors, unpickle_dict

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors")
INDEXES = tuple(f"{name}.index.json" for name in WEIGHTS)
DECIMALS = "attributes of its nodes, which are kept in float32, are read as the shortest decimals that round to them"
UNGUARDED = "its guards on sizes are not read, except for ranges of symbols"


@final
@dataclass(frozen=True)
class Contents:
    """The dict of a file and its metadata, with the configuration of a folder; or the network of a program."""

    path: Path
    kind: Kind
    content: Mapping[Any, Any]
    metadata: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    network: nn.Module | None = None
    assumed: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """The hash of the file, or of the hashes of the folder's weight files."""
        return sha256(self.path)


def contents_of(path: Path, limit: int = LARGEST_FILE, allow: Sequence[str] = ()) -> Contents:
    """Reads a file of `torch.save`, safetensors, torch.export or ONNX, or a folder with a config.json.

    Args:
        path: the file or folder.
        limit: the most bytes that are read, of all files together.
        allow: further allowed classes of modules in a whole pickled module, by their full names.
    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), of another kind or with more than tensors
            (C2A303), or larger than `limit` (C2A307).
    """
    if path.is_dir():
        return contents_of_folder(path, limit)
    with open_file(path) as file:
        kind = inspect(path, file, limit)
        if kind not in READERS:
            raise CheckpointError("C2A303", f"{path} is {kind.article}", kind.way_out)
        return READERS[kind](path, kind, file, allow)


def contents_of_program(path: Path, kind: Kind, *_: Any) -> Contents:
    """Reads a program, which is a complete network."""
    network = PROGRAM_KINDS[kind].read(path)
    assumed = (UNGUARDED,) if kind is kinds.EXPORT else (DECIMALS,) if isinstance(network, OnnxGraph) else ()
    return Contents(path, kind, {}, network=network, assumed=assumed)


def contents_of_safetensors(path: Path, kind: Kind, *_: Any) -> Contents:
    """Reads the tensors and the metadata of a file of safetensors."""
    tensors, metadata = read_safetensors(path)
    check_tensors(path, tensors, Budget.of(path))
    return Contents(path, kind, tensors, metadata)


def contents_of_pickle(path: Path, kind: Kind, file: IO[bytes], allow: Sequence[str]) -> Contents:
    """Reads a file of `torch.save`: a dict of tensors, or a whole module."""
    names = code_in(path) if kind is kinds.TORCH else []
    if any(name not in DATA_GLOBALS for name in names):
        assumed = (f"read from its pickle, which names {', '.join(names)}",)
        return Contents(path, kind, {}, network=read_module(path, names, allow), assumed=assumed)
    # Objects that training scripts store become empty records, so that their files load.
    with safe_globals(RECORDS):
        return Contents(path, kind, unpickle_dict(path, file))


def contents_of_folder(folder: Path, limit: int) -> Contents:
    """The tensors of all weight files in a folder, by name, and its configuration."""
    files = weight_files(folder)
    config = read_json(folder / "config.json")
    tensors: dict[str, Tensor] = {}
    for path in files:
        if not path.is_file():
            raise CheckpointError(
                "C2A301", f"{path}, which the index of {folder} names, does not exist", "Copy the whole folder again."
            )
        # The limit is for all shards together.
        limit -= path.stat().st_size
        if limit < 0:
            raise CheckpointError(
                "C2A307",
                f"the weights in {folder} have more bytes than the limit",
                "Raise --max-size, in GiB, if the folder is meant to be so large.",
            )
        part = contents_of(path)
        # If two files had a tensor of the same name, the order of the files would decide which of them is used.
        if repeated := tensors.keys() & part.content.keys():
            raise CheckpointError(
                "C2A303",
                f"{folder} holds {min(repeated)!r} in two of its files",
                "Remove one of the two files, or pass one of them instead of the folder.",
            )
        tensors |= part.content
    return Contents(folder, kinds.FOLDER, tensors, {}, config)


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in a folder: one, or the shards of an index.

    Raises:
        CheckpointError: there are none (C2A301), or an index names a file that is not in the folder (C2A303).
    """
    if single_file := next((folder / name for name in WEIGHTS if (folder / name).is_file()), None):
        return [single_file]
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    if index is None:
        reason = f"{folder} is a folder without {' or '.join(WEIGHTS[:2])}"
        raise CheckpointError("C2A301", reason, "Pass the file of weights in it, with --arch.")
    weight_map = read_json(index).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(each, str) for each in weight_map.values())
    ):
        raise CheckpointError("C2A303", f"{index} has no weight_map of file names", "Download it again.")
    names = sorted(set(weight_map.values()))
    # An index could otherwise name any file of the machine.
    if outside := [name for name in names if Path(name).name != name]:
        raise CheckpointError(
            "C2A303", f"{index} names {outside[0]!r}, which is not in its folder", "Download the whole folder again."
        )
    return [folder / name for name in names]


def sha256(path: Path) -> str:
    """The SHA-256 of a file; for a folder, or an ONNX model with external weights, that of the hashes of its files."""
    if path.is_dir():
        hashes = [*map(sha256, weight_files(path))]
    else:
        with path.open("rb") as file:
            hashes = [hashlib.file_digest(file, "sha256").hexdigest()]
        if kind_of_path(path) is kinds.ONNX:
            hashes += map(sha256, outside_files(path))
        if len(hashes) == 1:
            return hashes[0]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


@final
@dataclass(frozen=True)
class Program:
    """The two readers of a kind of program: as a network, or as operator names and tensors."""

    read: Callable[[Path], nn.Module]
    parts: Callable[[Path], tuple[list[str], dict[str, Tensor]]]


PROGRAM_KINDS = {
    kinds.EXPORT: Program(read_program, lambda path: program_parts(path)[1:]),
    kinds.ONNX: Program(read_onnx, onnx_parts),
}
READERS: dict[Kind, Callable[[Path, Kind, IO[bytes], Sequence[str]], Contents]] = {
    kinds.TORCH: contents_of_pickle,
    kinds.LEGACY: contents_of_pickle,
    kinds.SAFETENSORS: contents_of_safetensors,
    **dict.fromkeys(PROGRAM_KINDS, contents_of_program),
}
"""The reader of each kind of file that stores a network or its weights; other kinds are refused with advice."""
