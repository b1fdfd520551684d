"""A stored certificate held against the files that it names, by code that shares nothing with what wrote it.

Checked again: that neither file changed; that every tap of a proved layer is, number for number, what the heads at its
offset do; every bias; that every alpha is beyond (1 - e) ln 2, where 2^e is the smallest number of the dtype; and that
every other tensor is the same. Not checked again: paddings, bounds, measurements.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict

SMALLEST = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}


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
        stored, hashes = body["verdict"], [told["original sha256"], told["converted sha256"]]
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
    layers = [row["name"] for row in body["layers"] if row["strength"] == "proved" and not row["skipped"]]
    names = ["" if name == "(root)" else f"{name}." for name in layers]
    return Recheck(certificate, stored, len(names), tuple(disagreements(states[0], states[1], names)))


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def disagreements(first: dict[str, Any], second: dict[str, Any], names: list[str]) -> Iterator[str]:
    """What of the second file is not what the first one needs."""
    plans = second.get("layers", {})
    ours, theirs = (state.get("state_dict", state) for state in (first, second))
    for name in names:
        plan = plans.get(name.rstrip("."))
        if plan is None or f"{name}weight" not in ours:
            yield from unequal(name, ours, theirs, lambda key, name=name: key.startswith(name))
        else:
            yield from of_layer(name, plan, ours, theirs)
    yield from unequal("", ours, theirs, lambda key: not any(key.startswith(name) for name in names))


def unequal(name: str, ours: dict[str, Tensor], theirs: dict[str, Tensor], chosen: Any) -> Iterator[str]:
    """The tensors of one name that differ."""
    for key in sorted({key for key in (*ours, *theirs) if chosen(key)}):
        if key not in ours or key not in theirs or not identical(ours[key], theirs[key]):
            yield f"{key} differs"


def identical(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and numbers."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def of_layer(name: str, plan: dict[str, Any], ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Iterator[str]:
    """What of an attention layer is not its convolution."""
    weight, bias, other = ours[f"{name}weight"], ours.get(f"{name}bias"), theirs.get(f"{name}bias")
    if not (bias is other is None or (bias is not None and other is not None and identical(bias, other))):
        yield f"{name}bias differs"
    least = theirs[f"{name}encoding.alpha"].min().item()
    if not least >= (1 - SMALLEST[weight.dtype]) * math.log(2):
        yield f"{name}encoding.alpha is {least:g}"
    centers = [tuple(center) for center in theirs[f"{name}encoding.center"].tolist()]
    value, output = theirs.get(f"{name}value"), theirs.get(f"{name}output")
    sides, reach = weight.shape[2:], zip(plan["sites"]["before"], plan["sites"]["after"], strict=True)
    dilation = [(b + a) // max(1, k - 1) for (b, a), k in zip(reach, sides, strict=True)]
    for tap in itertools.product(*map(range, sides)):
        offset = tuple(float(d * (t - (k - 1) // 2)) for t, k, d in zip(tap, sides, dilation, strict=True))
        heads = [head for head, center in enumerate(centers) if center == offset]
        place: tuple[Any, ...] = (..., *tap)
        if not identical(weight[place].double(), added(heads, value, output, plan["groups"], weight)):
            yield f"{name}: the tap at {offset} is not what heads {heads} do"
    known = {float(d * (t - (k - 1) // 2)) for k, d in zip(sides, dilation, strict=True) for t in range(k)}
    if not all(x in known for center in centers for x in center):
        yield f"{name}encoding.center is off the taps"


def added(heads: list[int], value: Tensor | None, output: Tensor | None, groups: int, like: Tensor) -> Tensor:
    """The sum of what some heads do, in float64: exact for the products of single numbers of the smaller dtypes."""
    total = torch.zeros(like.shape[:2], dtype=torch.float64)
    for head in heads:
        out, val = (None if factor is None else factor[head].double() for factor in (output, value))
        if out is not None and val is not None:
            pairs = zip(out.chunk(groups), val.chunk(groups), strict=True)
            total += torch.cat([block @ other for block, other in pairs])
        else:
            alone = val if out is None else out
            assert alone is not None
            total += alone
    return total
