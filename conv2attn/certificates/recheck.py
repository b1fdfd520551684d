"""A stored certificate held against the files that it names, by code that shares nothing with what wrote it.

Checked again: that neither file changed; that every tap of a proved layer is, number for number, what the heads at its
offset do; every bias; that every alpha is beyond (1 - e) ln 2, where 2^e is the smallest number of the dtype; paddings,
strides and the stem; and that every other tensor is the same. Not checked again: bounds, measurements.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.certificates.recheck_layers import GEOMETRY, identical, of_layer
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict


@final
@dataclass(frozen=True)
class Recheck:
    """What became of a stored certificate: `wrong` lists what does not agree with it."""

    certificate: str
    stored: str
    checked: int
    wrong: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is wrong, otherwise as stored; undecided where no layer could be checked again."""
        if self.wrong:
            return Verdict.REFUTED
        return Verdict(self.stored) if self.checked or self.stored != "holds" else Verdict.UNDECIDED

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 otherwise."""
        return self.verdict.exit_code

    def to_text(self) -> str:
        """The report in lines."""
        lines = [*self.wrong, f"{self.checked} layers checked again; stored verdict: {self.stored}"]
        return "\n".join([*lines, f"{self.certificate}: {self.verdict.value}"]) + "\n"

    def to_markdown(self) -> str:
        """The report as a list."""
        return "".join(f"- {line}\n" for line in self.to_text().splitlines())

    def to_json(self) -> str:
        """The report for a program."""
        body = {**vars(self), "schema": "conv2attn.recheck/1", "verdict": self.verdict.value}
        return json.dumps(body, indent=2, sort_keys=True) + "\n"


def recheck(certificate: str, original: str | None = None, converted: str | None = None) -> Recheck:
    """Holds the certificate in a file against the two files that it names, or those given.

    Raises:
        UsageError: the file is no certificate of two files (C2A001).  CheckpointError: a file is missing (C2A301).
    """
    try:
        body = json.loads(Path(certificate).read_text())
        told = body["circumstances"]
        paths = [Path(original or told["original"]), Path(converted or told["converted"])]
        stored, hashes = Verdict(body["verdict"]).value, [told["original sha256"], told["converted sha256"]]
        rows = [row["name"] for row in body["layers"] if row["strength"] == "proved" and not row["skipped"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError("C2A001", f"{certificate} is no certificate of two files ({error})") from error
    wrong, states = [], []
    for path, known in zip(paths, hashes, strict=True):
        if not path.is_file():
            raise CheckpointError("C2A301", f"{path} does not exist")
        if sha256(path) != known:
            wrong.append(f"{path} changed since the certificate was written")
        states.append(torch.load(path, weights_only=True) if not wrong else {})
    if wrong:
        return Recheck(certificate, stored, 0, tuple(wrong))
    names = ["" if name == "(root)" else f"{name}." for name in rows]
    return Recheck(certificate, stored, len(names), tuple(disagreements(states[0], states[1], names)))


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def disagreements(first: dict[str, Any], second: dict[str, Any], names: list[str]) -> Iterator[str]:
    """What of the second file is not what the first one needs."""
    known, plans = first.get("layers", {}), second.get("layers", {})
    ours, theirs = (state.get("state_dict", state) for state in (first, second))
    stem = second["architecture"][1].get("stem", "") if second.get("architecture") else ""
    if stem and "conv1.weight" in ours and (stem == "imagenet") != (ours["conv1.weight"].shape[-1] == 7):
        yield f"the stem is that of {stem}, and conv1 is not"
    for name in names:
        plan, before = plans.get(name.rstrip(".")), known.get(name.rstrip("."))
        if plan is not None and before is None and f"{name}weight" in ours:
            yield from of_layer(name, plan, ours, theirs)
            continue
        yield from unequal(name, ours, theirs, lambda key, name=name: key.startswith(name))
        yield from (f"{name}{key} differs" for key in GEOMETRY if (plan or {}).get(key) != (before or {}).get(key))
    yield from unequal("", ours, theirs, lambda key: not any(key.startswith(name) for name in names))


def unequal(name: str, ours: dict[str, Tensor], theirs: dict[str, Tensor], chosen: Any) -> Iterator[str]:
    """The tensors of one name that differ."""
    for key in sorted({key for key in (*ours, *theirs) if chosen(key)}):
        if key not in ours or key not in theirs or not identical(ours[key], theirs[key]):
            yield f"{key} differs"
