"""Inspection of a file, which builds and runs nothing."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

from torch import Tensor

from conv2attn.errors import CheckpointError
from conv2attn.files import kinds
from conv2attn.files.contents import PROGRAM_KINDS, READERS, contents_of, sha256
from conv2attn.files.kinds import LARGEST_FILE, inspect, open_file
from conv2attn.files.pickled import DATA_GLOBALS, code_in
from conv2attn.files.plans import recognise_plan
from conv2attn.files.registries import hinted_names, matches_of
from conv2attn.files.states import State, state_in
from conv2attn.report import Document, Notes, Report, Table, bytes_for_people, counted, document

TENSOR_COLUMNS = ("tensor", "shape", "dtype")
RECOVERED = "conv2attn.recovered/1"
"""The format of the file that `recover` writes."""


@final
@dataclass(frozen=True, repr=False)
class Inspection(Report):
    """A file: its kind, size and hash, the architectures that fit its tensors, assumptions, and unsafe parts."""

    schema: ClassVar[str] = "conv2attn.inspection/1"
    path: str
    kind: str
    size: int
    sha256: str
    architectures: tuple[str, ...]
    assumed: tuple[str, ...]
    findings: tuple[str, ...]
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]


@document.register
def _(inspection: Inspection, verbose: bool = False) -> Document:
    """One line per fact, and with `verbose` a table of the tensors."""
    summary = f"{inspection.path}: {inspection.kind}, {bytes_for_people(inspection.size)}, sha256 {inspection.sha256}"
    lines, tables = [], []
    if tensors := inspection.tensors:
        program = inspection.kind in [each.words for each in PROGRAM_KINDS]
        unknown = "the program itself" if program else "not recognised; name it with --arch"
        numbers = sum(math.prod(shape) for _, shape, _ in tensors)
        dtypes = ", ".join(sorted({dtype for *_, dtype in tensors}))
        lines.append(f"architecture: {' or '.join(inspection.architectures) or unknown}")
        lines.append(f"{counted(len(tensors), 'tensor')}, {numbers:,} numbers ({dtypes})")
        if verbose:
            rows = tuple((name, "x".join(map(str, shape)) or "-", dtype) for name, shape, dtype in tensors)
            tables.append(Table(TENSOR_COLUMNS, rows))
    lines += [f"assumed: {line}" for line in inspection.assumed]
    lines += [f"finding: {line}" for line in inspection.findings]
    lines += ["each tensor: -v"] if tensors and not verbose else []
    return Document((summary,), (Notes(tuple(lines)), *tables))


def inspection_of(path: Path, limit: int = LARGEST_FILE) -> Inspection:
    """Inspects a file or folder; nothing in it is executed, and networks are built only on the meta device.

    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), or larger than `limit` (C2A307).
    """
    if path.is_dir():
        kind, size = kinds.FOLDER, sum(each.stat().st_size for each in path.iterdir() if each.is_file())
    else:
        with open_file(path) as file:
            kind, size = inspect(path, file, limit), path.stat().st_size
    facts = (str(path), kind.words, size, sha256(path))
    if kind in PROGRAM_KINDS:
        operators, tensors = PROGRAM_KINDS[kind].parts(path)
        listing = ", ".join(f"{count} {name}" for name, count in Counter(operators).most_common())
        finding = f"computes {counted(len(operators), 'operation')}: {listing}"
        return Inspection(*facts, (), (), (finding,), tensor_rows(tensors))
    if kind not in (*READERS, kinds.FOLDER):
        return Inspection(*facts, (), (), (f"not read as a network. {kind.way_out}",), ())
    if kind is kinds.TORCH and (code := [name for name in code_in(path) if name not in DATA_GLOBALS]):
        finding = f"its pickle names {counted(len(code), 'global')} of code, and nothing was run: {', '.join(code)}"
        return Inspection(*facts, (), (), (finding,), ())
    try:
        contents = contents_of(path, limit)
        saved, state = recognise_plan(contents), state_in(contents.content)
    except CheckpointError as error:
        # An inspection reports a file of another content; a missing or damaged file stays an error.
        if error.code != "C2A303":
            raise
        return Inspection(*facts, (), (), (error.found,), ())
    if saved is not None:
        plan, tensors = saved
        assumed = [f"written by conv2attn, {counted(len(plan.layers), 'attention layer')}"]
        assumed += ["its certificate was refuted"] if plan.refuted else []
        return Inspection(*facts, (plan.name,), tuple(assumed), infinite_tensors(tensors), tensor_rows(tensors))
    if findings := tuple(written_by_command(contents.content)):
        return Inspection(*facts, (), (), findings, ())
    if state is None:
        return Inspection(*facts, (), (), ("it has no state dict, directly or under a known key",), ())
    names, read_state = architectures_of(state, path, contents.config)
    tensors = read_state.tensors
    return Inspection(*facts, names, read_state.assumed, infinite_tensors(tensors), tensor_rows(tensors))


def written_by_command(content: Mapping[str, Any]) -> Iterator[str]:
    """A sentence on the contents of a file of `recover`."""
    layers = content.get("layers")
    if content.get("format") == RECOVERED and isinstance(layers, Mapping):
        yield f"written by conv2attn recover: {counted(len(layers), 'convolution')}, of {', '.join(map(str, layers))}"


def architectures_of(state: State, path: Path, config: Any) -> tuple[tuple[str, ...], State]:
    """The architectures that the tensors fit, those hinted by the file's name first, and the state as read."""
    if config is not None:
        return (str(config.get("model_type") or config.get("architecture")),), state
    matches, all_tried = matches_of(state, path)
    assumption = "" if all_tried else "suggested by the file's name; no other model was tried"
    if matches and ":" not in matches[0].name:
        state, assumption = matches[0].state, f"{matches[0].read_as}, from keys and shapes alone"
    assumed = (*state.assumed, *filter(None, [assumption]))
    names = [each.name for each in matches]
    return tuple(dict.fromkeys((*hinted_names(names, path), *names))), replace(state, assumed=assumed)


def infinite_tensors(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """One sentence per tensor that is not finite."""
    return tuple(f"{key} is not finite" for key, tensor in tensors.items() if not tensor.isfinite().all())


def tensor_rows(tensors: Mapping[str, Tensor]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Name, shape and dtype of each tensor."""
    return tuple((key, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for key, each in tensors.items())
