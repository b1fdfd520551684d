"""A stored certificate held against the files that it names, by code that shares nothing with what wrote it.

Checked again: that neither file changed; and where all holds, that every tap of a layer is, number for number, what the
heads at its offset do; every bias; that alpha is beyond (1 - e) ln 2, where 2^e is the smallest number of the dtype, or
for a bounded layer that at most the roundoff leaks; paddings, strides and the stem; and that every other tensor is the
same. Not checked again: bounds, measurements, convolutions in place of attention.
"""

import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.certificates.evidence.recheck_layers import GEOMETRY, identical, of_alpha, of_layer
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict

MALFORMED = (AttributeError, TypeError, LookupError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError)


@final
@dataclass(frozen=True)
class Recheck:
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

    def to_text(self) -> str:
        """The report in lines."""
        lines = [*self.wrong, *self.unknown, f"{self.checked} layers checked again; stored verdict: {self.stored}"]
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
        UsageError: the file is no certificate of two files, or these are no networks (C2A001).
        CheckpointError: a file is missing (C2A301).
    """
    try:
        body = json.loads(Path(certificate).read_text())
        told = body["circumstances"]
        paths = [Path(original or told["original"]), Path(converted or told["converted"])]
        stored, hashes = Verdict(body["verdict"]).value, [told["original sha256"], told["converted sha256"]]
        rows = {str(row["name"]): row["strength"] == "proved" for row in body["layers"] if not row["skipped"]}
        by_bounds = "differ by at most" in str(body.get("claim"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError("C2A001", f"{certificate} is no certificate of two files ({error})") from error
    for path in paths:
        if not path.is_file():
            raise CheckpointError("C2A301", f"{path} does not exist")
    wrong = [
        f"{path} changed since the certificate was written"
        for path, known in zip(paths, hashes, strict=True)
        if sha256(path) != known
    ]
    if wrong or stored != Verdict.HOLDS.value:
        return Recheck(certificate, stored, 0, tuple(wrong))
    if by_bounds:
        return Recheck(certificate, stored, 0, (), ("a tolerance rests on bounds, which are not looked at again",))
    names = {"" if name == "(root)" else f"{name}.": proved for name, proved in rows.items()}
    try:
        return look(certificate, stored, names, *(torch.load(path, weights_only=True) for path in paths))
    except MALFORMED as error:
        told = str(error).partition("\n")[0]
        raise UsageError("C2A001", f"{certificate} names files that are no networks ({told})") from error


def look(certificate: str, stored: str, names: dict[str, bool], first: Any, second: Any) -> Recheck:
    """The second look at what two files hold: layers by name, each with whether it was proved."""
    held = [key for state in (first, second) for key in state.get("state_dict", state)]
    there = {name: proved for name, proved in names.items() if any(key.startswith(name) for key in held)}
    back = [name for name in there if has_plan(first, name) and not has_plan(second, name)]
    unknown = tuple(f"{name}: a convolution in place of attention is not looked at again" for name in back)
    wrong = () if back else tuple(disagreements(first, second, there))
    return Recheck(certificate, stored, len(there) - len(back), wrong, unknown)


def has_plan(state: dict[str, Any], name: str) -> bool:
    """Whether a layer of a file is attention."""
    return name.rstrip(".") in state.get("layers", {})


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def disagreements(first: dict[str, Any], second: dict[str, Any], names: Mapping[str, bool]) -> Iterator[str]:
    """What of the second file is not what the first one needs, for layers that were proved or bounded."""
    known, plans = first.get("layers", {}), second.get("layers", {})
    ours, theirs = (state.get("state_dict", state) for state in (first, second))
    stem = second["architecture"][1].get("stem", "") if second.get("architecture") else ""
    if stem and "conv1.weight" in ours and (stem == "imagenet") != (ours["conv1.weight"].shape[-1] == 7):
        yield f"the stem is that of {stem}, and conv1 is not"
    for name, proved in names.items():
        plan, before = plans.get(name.rstrip(".")), known.get(name.rstrip("."))
        if plan is not None and before is None and f"{name}weight" in ours:
            yield from of_layer(name, plan, ours, theirs, proved=proved)
            continue
        skipped = None
        if plan is not None and before is not None and f"{name}encoding.alpha" in theirs:
            yield from of_alpha(name, plan, theirs, proved=proved)
            skipped = f"{name}encoding.alpha"
        own = {key for key in (*ours, *theirs) if key.startswith(name) and key != skipped}
        yield from unequal(name, ours, theirs, own.__contains__)
        yield from (f"{name}{key} differs" for key in GEOMETRY if (plan or {}).get(key) != (before or {}).get(key))
    yield from unequal("", ours, theirs, lambda key: not any(key.startswith(name) for name in names))


def unequal(name: str, ours: dict[str, Tensor], theirs: dict[str, Tensor], chosen: Any) -> Iterator[str]:
    """The tensors of one name that differ."""
    for key in sorted({key for key in (*ours, *theirs) if chosen(key)}):
        if key not in ours or key not in theirs or not identical(ours[key], theirs[key]):
            yield f"{key} differs"
