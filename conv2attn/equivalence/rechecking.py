"""Checks a stored certificate again; it shares the reader of files, and else nothing, with the code that wrote it.

It reads the report and the two files that it names, and needs neither their architecture nor torch.nn. Where the report
holds, these are checked: the hash and the architecture of each file; that both graphs have one hash; for each pair of
layers, that a plan fits its tensors, and that the second is the map of the first (`checker`); that every other tensor
is equal, bit for bit. Not checked are bounds, measurements, the graphs themselves, which tensors they read, and the
paddings and strides of convolutions, which no state dict holds. Where this leaves a question the certificate is
undecided.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.checkpoints.contents import WEIGHTS, contents_of
from conv2attn.checkpoints.folders import sha256
from conv2attn.checkpoints.kinds import Kind, kind_of_path
from conv2attn.checkpoints.states import State as StateDict
from conv2attn.checkpoints.states import readings, state_in
from conv2attn.equivalence.checker import Layer, Objection, compare, identical, misfit
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.report import Document, Notes, Report, counted
from conv2attn.verdicts import Verdict

WRITE = "Write one by verify --report FILE."
MOVED = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
FORMAT = "conv2attn.network/2"
MALFORMED = (
    ArithmeticError,
    AttributeError,
    AssertionError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)
AGAIN = "Run verify on the two files again."
MEAN, COUNTER = ".running_mean", ".num_batches_tracked"  # files older than torch 0.4.1 have no counter, which is 0 then

State = Mapping[str, Tensor]


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """The result for a stored certificate: `wrong` lists contradictions with it, `unknown` what was not decided."""

    certificate: str
    stored: str
    checked: int
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is wrong, otherwise as stored; undecided where not all that holds was checked."""
        if self.wrong:
            return Verdict.REFUTED
        whole = self.checked and not self.unknown
        return Verdict(self.stored) if whole or self.stored != "holds" else Verdict.UNDECIDED

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 otherwise."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """The verdict, then the contradictions and the open questions."""
        said = f"{self.verdict.value}: {self.certificate}"
        counts = f"{counted(self.checked, 'layer')} checked again; stored verdict: {self.stored}"
        return Document((said,), (Notes((*self.wrong, *self.unknown, counts)),), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "schema": "conv2attn.recheck/1", "verdict": self.verdict.value}


def recheck(certificate: str, original: str | None = None, converted: str | None = None) -> Recheck:
    """Checks the certificate in a file against the two files that it names, or against those given.

    Raises:
        UsageError: the file is no certificate of two files, or these hold no weights that are checked again, such as
            programs of torch.export and ONNX (C2A303).
        CheckpointError: a file is missing (C2A301).
    """
    if not is_regular(certificate):
        raise CheckpointError("C2A301", f"{shortened(certificate)} is not a regular file")
    try:
        body = json.loads(Path(certificate).read_text())
        circumstances, layers, (ours, theirs) = body["circumstances"], body["layers"], body["context"]["digests"]
        paths = [str(original or circumstances["original"]), str(converted or circumstances["converted"])]
        stored, hashes = (
            Verdict(body["verdict"]).value,
            [circumstances["original sha256"], circumstances["converted sha256"]],
        )
        rows = {"" if row["name"] == "(root)" else str(row["name"]): row for row in layers}
        by_bounds = "differ by at most" in str(body.get("claim"))
    except (OSError, RecursionError, *MALFORMED) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of one"
        raise UsageError("C2A303", f"{certificate} is no certificate of two files: {why}", WRITE) from error
    for path in paths:
        if not is_regular(path, folder=True):
            raise CheckpointError("C2A301", f"{shortened(path)}, which the certificate is of, is not there", MOVED)
    pairs = zip(paths, hashes, strict=True)
    others = [path for path, known in pairs if sha256(Path(path)) != known]
    changed = tuple(f"{path} changed since the report was written" for path in others)
    if changed or stored != Verdict.HOLDS.value:
        return Recheck(certificate, stored, 0, changed)
    unchecked = partial(Recheck, certificate, stored, 0, ())
    if by_bounds:
        return unchecked(("a tolerance rests on bounds or on images, which are not checked again",))
    if ours != theirs or not ours:
        return Recheck(certificate, stored, 0, ("the graphs of the two networks are not the same in it",))
    try:
        contents = [content_of(path) for path in paths]
        plans = [content.get("layers", {}) for content, _ in contents]
        pairs_of_layers = {name: row for name, row in rows.items() if row["forms"]}
        names = sorted({*pairs_of_layers, *plans[0], *plans[1]})
        if not names:
            return unchecked(("the graphs alone compare networks without common layers, and are not checked again",))
        states = aligned(contents[0][1], contents[1][1], {*names, *rows})
        found = list(of_architectures([content for content, _ in contents], circumstances))
        for name in names:
            both = [plan.get(name) for plan in plans]
            each = of_layer(both, [tensors_of(name, state) for state in states], rows.get(name, {}))
            found += [Objection(f"{name or 'the layer'}: {one.sentence}", one.sure) for one in each]
        found += of_the_rest(names, *states)
    except (CheckpointError, *MALFORMED) as error:
        reason = error.found if isinstance(error, CheckpointError) else str(error).partition("\n")[0]
        raise UsageError("C2A303", f"the files of {certificate} cannot be checked again: {reason}", AGAIN) from error
    wrong, unknown = (tuple(each.sentence for each in found if each.sure is sure) for sure in (True, False))
    return Recheck(certificate, stored, len(pairs_of_layers), wrong, unknown)


def of_architectures(contents: Sequence[Mapping[str, Any]], circumstances: Mapping[str, str]) -> Iterator[Objection]:
    """The files whose architecture is not the one that the certificate names."""
    for side, content in zip(("original", "converted"), contents, strict=True):
        named = circumstances.get(f"{side} architecture", "")
        if named != described(content):
            yield Objection(f"the {side} has another architecture than the certificate", sure=bool(named))


def of_layer(plans: Sequence[Any], held: Sequence[State], row: Mapping[str, Any]) -> Iterator[Objection]:
    """The reasons why the second of two layers is not the first; the row of the certificate has their forms."""
    first, second = held
    if not (first or second):
        yield Objection("no file has a tensor of it", sure=False)
        return
    if plans[0] == plans[1] and first.keys() == second.keys() and all(identical(first[k], second[k]) for k in first):
        return
    if not row.get("forms"):
        yield Objection("the certificate has no form of it", sure=False)
        return
    layers = []
    for plan, tensors, form in zip(plans, held, row["forms"], strict=True):
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            yield Objection("a number is not finite")
        elif plan and plan["encoding"] != "quadratic":
            yield Objection(f"an encoding that is {plan['encoding']} is not checked again", sure=False)
        elif not plan and not {"weight"} <= tensors.keys() <= {"weight", "bias"}:
            yield Objection("a weight that is computed from other tensors is not checked again", sure=False)
        elif plan and (wrong := misfit(plan, tensors)):
            yield Objection(f"{wrong} in its plan is not what its tensors have")
        else:
            layers.append(Layer.of_plan(plan, tensors) if plan else Layer.of_form(form, tensors))
    if len(layers) == 2:
        yield from dict.fromkeys(compare(*layers, bounded=row["strength"] == "bounded"))


def of_the_rest(layers: Sequence[str], first: State, second: State) -> Iterator[Objection]:
    """The tensors outside the layers that differ: the graphs may read them under other names, or not at all."""
    compared = {key for name in layers for key in (*keys_of(name, first), *keys_of(name, second))}
    common = {key for key in first.keys() & second.keys() if same_bits(first[key], second[key])}
    if wrong := sorted({*first, *second} - compared - common):
        many = counted(len(wrong), "tensor")
        yield Objection(
            f"{many} outside the layers not the same, {wrong[0]} first; the graphs may not read them", False
        )


def content_of(path: str) -> tuple[Mapping[str, Any], State]:
    """The metadata of a file of this project (none for any other file), and its tensors by name.

    Raises:
        CheckpointError: it is of a kind that holds no weights by name (C2A303), or is damaged.
    """
    kind = kind_of_path(Path(path))
    if kind not in (*WEIGHTS, Kind.FOLDER):
        raise CheckpointError("C2A303", f"{path} is {kind.article}")
    held = contents_of(Path(path))
    state = state_in(held.network.state_dict() if held.network is not None else held.content)
    if state is None:
        raise TypeError(f"{path} holds no tensors with names")
    metadata = json.loads(held.metadata["conv2attn"]) if "conv2attn" in held.metadata else held.content
    means = [key.removesuffix(MEAN) for key in state.tensors if key.endswith(MEAN)]
    tensors = {**{f"{name}{COUNTER}": torch.tensor(0) for name in means}, **state.tensors}
    return metadata if metadata.get("conv2attn") == FORMAT else {}, tensors


def aligned(first: State, second: State, layers: AbstractSet[str]) -> tuple[State, State]:
    """Both states without the prefixes of wrapping modules: as most modules have one name in both and as `layers`."""

    def alike(pair: tuple[StateDict, StateDict]) -> int:
        ours, theirs = ({key.rpartition(".")[0] for key in each.tensors} for each in pair)
        return len(ours & theirs) + len(ours & layers) + len(theirs & layers)

    ours, theirs = max(product(readings(StateDict(dict(first))), readings(StateDict(dict(second)))), key=alike)
    return ours.tensors, theirs.tensors


def architecture_in(path: str) -> str:
    """The architecture that a file of this project names, as a certificate keeps it; empty for any other file."""
    try:
        return described(content_of(path)[0])
    except (OSError, CheckpointError, *MALFORMED):
        return ""


def described(content: Mapping[str, Any]) -> str:
    """The architecture in what a file holds: JSON with sorted keys; empty if it names none."""
    return json.dumps(content["architecture"], sort_keys=True, default=str) if content else ""


def keys_of(name: str, state: State) -> list[str]:
    """The keys of the tensors of a layer; of a single layer, all keys."""
    return [key for key in state if not name or key.startswith(f"{name}.")]


def tensors_of(name: str, state: State) -> State:
    """The tensors of a layer, without its name in their keys."""
    return {key[len(name) + bool(name) :]: state[key] for key in keys_of(name, state)}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and bits: zeros have signs, and a NaN is itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b)))


def is_regular(path: str, *, folder: bool = False) -> bool:
    """Whether a path names a regular file, or a folder: not a FIFO or device, nor a name that no file can have."""
    try:
        return Path(path).is_file() or (folder and Path(path).is_dir())
    except (OSError, ValueError):
        return False


def shortened(path: str, most: int = 80) -> str:
    """A path that fits a sentence."""
    return path if len(path) <= most else f"...{path[-most:]}"
