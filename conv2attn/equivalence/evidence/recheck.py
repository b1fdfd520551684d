"""A stored certificate held against the files that it names, by code that shares nothing with what wrote it.

Checked again: that neither file changed; and where all holds, that the plan of a layer is what its tensors have, and
that its heads do at each place what the taps or heads there do, number for number; every bias; that alpha, where a
head does anything, is beyond (1 - e) ln 2, where 2^e is the smallest number of the dtype, or for a bounded layer that
at most the roundoff leaks; paddings and strides, those of a convolution as the certificate has them; that the graphs of
both networks had one hash; and that every other tensor is the same, bit for bit. So no architecture needs to be known.
Not checked again: bounds, measurements, convolutions in place of attention. What this short code cannot tell is
told, and then nothing holds.
"""

import hashlib
import json
import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from conv2attn.equivalence.evidence.recheck_files import objections, tensors_of
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.report import Document, Notes, Report, counted
from conv2attn.verdicts import Verdict

WRITE = "Write one by verify --report FILE."
MOVED = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
FORMAT = "conv2attn.network/2"
MALFORMED = (AttributeError, TypeError, LookupError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError)


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """What became of a stored certificate: `wrong` lists what does not agree with it, `unknown` what was not asked."""

    certificate: str
    stored: str
    checked: int
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is wrong, otherwise as stored; undecided where not all that holds was checked again."""
        if self.wrong:
            return Verdict.REFUTED
        whole = self.checked and not self.unknown
        return Verdict(self.stored) if whole or self.stored != "holds" else Verdict.UNDECIDED

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 otherwise."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """The verdict, then what does not agree and what was not asked."""
        said = f"{self.verdict.value}: {self.certificate}"
        told = f"{counted(self.checked, 'layer')} checked again; stored verdict: {self.stored}"
        return Document((said,), (Notes((*self.wrong, *self.unknown, told)),), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "schema": "conv2attn.recheck/1", "verdict": self.verdict.value}


def recheck(certificate: str, original: str | None = None, converted: str | None = None) -> Recheck:
    """Holds the certificate in a file against the two files that it names, or those given.

    Raises:
        UsageError: the file is no certificate of two files, or these are no networks (C2A001).
        CheckpointError: a file is missing (C2A301).
    """
    if not is_regular(Path(certificate)):
        raise CheckpointError("C2A301", f"{shortened(certificate)} is not a regular file")
    try:
        body = json.loads(Path(certificate).read_text())
        told = body["circumstances"]
        paths = [Path(original or told["original"]), Path(converted or told["converted"])]
        stored, hashes = Verdict(body["verdict"]).value, [told["original sha256"], told["converted sha256"]]
        rows = [(str(row["name"]), row["skipped"], row["strength"]) for row in body["layers"]]
        forms = {prefix(str(row["name"])): row["forms"] and row["forms"][0] for row in body["layers"]}
        ours, theirs = body["context"]["digests"]
        by_bounds = "differ by at most" in str(body.get("claim"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of one"
        raise UsageError("C2A001", f"{certificate} is no certificate of two files: {why}", WRITE) from error
    for path in paths:
        if not is_regular(path):
            raise CheckpointError("C2A301", f"{shortened(path)}, which the certificate is of, is not there", MOVED)
    wrong = [
        f"{path} changed since the certificate was written"
        for path, known in zip(paths, hashes, strict=True)
        if sha256(path) != known
    ]
    if wrong or stored != Verdict.HOLDS.value:
        return Recheck(certificate, stored, 0, tuple(wrong))
    if by_bounds:
        return Recheck(certificate, stored, 0, (), ("a tolerance rests on bounds, which are not looked at again",))
    if ours != theirs or not ours:
        return Recheck(certificate, stored, 0, ("the graphs of the two networks are not the same in it",))
    names = {prefix(name): told for name, *told in rows}
    proved = {name: strength != "bounded" for name, (_, strength) in names.items()}
    counted = [name for name, (skipped, _) in names.items() if not skipped]
    try:
        files = (as_read(torch.load(path, map_location="cpu", weights_only=True)) for path in paths)
        return look(certificate, stored, proved, counted, forms, *files)
    except MALFORMED as error:
        told = str(error).partition("\n")[0]
        raise UsageError("C2A001", f"{certificate} names files that are no networks ({told})") from error


def as_read(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A file without what stands beside its tensors, unless it says that this is a plan: nobody reads it otherwise."""
    planned = state.get("conv2attn") == FORMAT
    return {key: state[key] for key in state if planned or key not in ("architecture", "layers")}


def prefix(name: str) -> str:
    """How the names of the tensors of a layer begin."""
    return "" if name == "(root)" else f"{name}."


def look(
    certificate: str,
    stored: str,
    proved: Mapping[str, bool],
    counted: Collection[str],
    forms: Mapping[str, Any],
    first: Any,
    second: Any,
) -> Recheck:
    """The second look at what two files hold: layers by name, each with whether it was proved; some are `counted`."""
    held = [key for state in (first, second) for key in tensors_of(state)]
    there = {name: each for name, each in proved.items() if any(key.startswith(name) for key in held)}
    back = [name for name in there if has_plan(first, name) and not has_plan(second, name)]
    if back:
        told = tuple(f"{name}: a convolution in place of attention is not looked at again" for name in back)
        return Recheck(certificate, stored, 0, (), told)
    found = list(objections(first, second, there, forms))
    wrong, unknown = (tuple(each.sentence for each in found if each.sure is sure) for sure in (True, False))
    return Recheck(certificate, stored, sum(name in there for name in counted), wrong, unknown)


def has_plan(state: Mapping[str, Any], name: str) -> bool:
    """Whether a layer of a file is attention."""
    return name.rstrip(".") in state.get("layers", {})


def is_regular(path: Path) -> bool:
    """Whether a path names a regular file: not a folder, FIFO or device, nor a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def shortened(path: str | Path, most: int = 80) -> str:
    """A path that fits a sentence."""
    text = str(path)
    return text if len(text) <= most else f"...{text[-most:]}"


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
