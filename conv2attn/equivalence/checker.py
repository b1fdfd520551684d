"""Checks a stored certificate again: short code that shares the reader of files, and else nothing, with the writer's.

It reads the report and the two files that it names, and needs neither their architecture nor torch.nn. Where the report
holds, these are checked: the hash and the architecture of each file; that both graphs have one hash; for each attention
layer, that its plan fits its tensors, that it has the form of the other layer, a convolution's as reported, that the
taps at each start add up to the same real numbers, that the biases are equal, and that alpha leaves other keys no
weight, or at most the roundoff in a bounded row; and that every other tensor is equal, bit for bit. Not checked are
bounds, measurements, the graphs themselves and the paddings and strides of convolutions, which no state dict holds.
What this code cannot decide leaves the certificate undecided.
"""

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from operator import add
from pathlib import Path
from secrets import token_bytes
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.checkpoints.contents import WEIGHTS, contents_of
from conv2attn.checkpoints.folders import sha256
from conv2attn.checkpoints.kinds import Kind, kind_of_path
from conv2attn.checkpoints.states import State as StateDict
from conv2attn.checkpoints.states import readings, state_in
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
FORM = ("spacing", "stride", "room", "before", "after")
MODES = ("zeros", "reflect", "replicate", "circular")
HELD = ("value", "output", "encoding.center", "encoding.alpha")
CONTENT = ("content", "content_position", "content_bias")
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}
DOUBT = 2.0**-19  # relative, of scores whose centre is no pixel or no key: they are rounded fewer than 16 times
NOTHING = torch.empty(0)

State = Mapping[str, Tensor]
Exact = Fraction | int
Pixel = tuple[int, ...]


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
        told = f"{counted(self.checked, 'layer')} checked again; stored verdict: {self.stored}"
        return Document((said,), (Notes((*self.wrong, *self.unknown, told)),), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "schema": "conv2attn.recheck/1", "verdict": self.verdict.value}


@final
@dataclass(frozen=True)
class Objection:
    """One sentence against a certificate; unless `sure`, it only leaves the certificate undecided."""

    sentence: str
    sure: bool = True


def recheck(certificate: str, original: str | None = None, converted: str | None = None) -> Recheck:
    """Checks the certificate in a file against the two files that it names, or against those given.

    Raises:
        UsageError: the file is no certificate of two files, or these hold no weights that are checked again, such as
            programs of torch.export and ONNX (C2A001).
        CheckpointError: a file is missing (C2A301).
    """
    if not is_regular(certificate):
        raise CheckpointError("C2A301", f"{shortened(certificate)} is not a regular file")
    try:
        body = json.loads(Path(certificate).read_text())
        told, layers, (ours, theirs) = body["circumstances"], body["layers"], body["context"]["digests"]
        paths = [str(original or told["original"]), str(converted or told["converted"])]
        stored, hashes = Verdict(body["verdict"]).value, [told["original sha256"], told["converted sha256"]]
        rows = {"" if row["name"] == "(root)" else str(row["name"]): row for row in layers}
        by_bounds = "differ by at most" in str(body.get("claim"))
    except (OSError, RecursionError, *MALFORMED) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of one"
        raise UsageError("C2A001", f"{certificate} is no certificate of two files: {why}", WRITE) from error
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
        (first, ours), (second, theirs) = map(content_of, paths)
        plans = first.get("layers", {}), second.get("layers", {})
        states = aligned(ours, theirs, {*rows, *plans[0], *plans[1]})
        if not rows and not any(plans):
            return unchecked(("the graphs alone compare networks without common layers, and are not checked again",))
        found = [
            *of_architecture("original", first, told),
            *of_architecture("converted", second, told),
            *objections(states, plans, rows),
        ]
    except (CheckpointError, *MALFORMED) as error:
        reason = error.found if isinstance(error, CheckpointError) else str(error).partition("\n")[0]
        raise UsageError("C2A001", f"the files of {certificate} cannot be checked again: {reason}", AGAIN) from error
    wrong, unknown = (tuple(each.sentence for each in found if each.sure is sure) for sure in (True, False))
    back = plans[0].keys() - plans[1].keys()
    counted = [name for name in rows if not rows[name]["skipped"] and belonging(name, *states) and name not in back]
    return Recheck(certificate, stored, len(counted), wrong, unknown)


def objections(
    states: tuple[State, State], plans: tuple[Mapping[str, Any], Mapping[str, Any]], rows: Mapping[str, Any]
) -> Iterator[Objection]:
    """The contradictions between the rows of a certificate that holds and the tensors and plans of both files."""
    attention = {*plans[0], *plans[1]}
    for name in sorted(attention):
        label, row, both = name or "the layer", rows.get(name), (plans[0].get(name), plans[1].get(name))
        if both[0] == both[1] and all(map(partial(same_bits, *states), belonging(name, *states))):
            continue
        if both[1] is None:
            yield Objection(f"{label}: a convolution in place of attention is not checked again", sure=False)
        elif row is None or not row["forms"]:
            yield Objection(f"{label}: the certificate has no form of it")
        else:
            found = of_layer(name, both, states, row)
            yield from (Objection(f"{label}: {each.sentence}", each.sure) for each in found)
    known = {key for name in attention for key in belonging(name, *states)}
    numeric = {key for name in rows for key in belonging(name, *states)}
    for key in sorted({*states[0], *states[1]} - known):
        if not (same_numbers if key in numeric else same_bits)(*states, key):
            yield Objection(f"{key} differs")


def of_architecture(side: str, content: Mapping[str, Any], told: Mapping[str, str]) -> Iterator[Objection]:
    """Whether the architecture in a file is the one that the certificate names."""
    if described(content) != told.get(f"{side} architecture", ""):
        yield Objection(f"the {side} has another architecture than the certificate")


def of_layer(name: str, plans: Sequence[Any], states: Sequence[State], row: Mapping[str, Any]) -> Iterator[Objection]:
    """The reasons why the second layer is not the first, or why a head leaks more than the row says."""
    layers = []
    for plan, state, form in zip(plans, states, row["forms"], strict=True):
        if not all(bool(state[key].isfinite().all()) for key in belonging(name, state)):
            yield Objection("a number is not finite")
            return
        if plan and plan["encoding"] not in ("quadratic", "enumerated"):
            yield Objection(f"an encoding that is {plan['encoding']} is not checked again", sure=False)
            return
        if plan and (wrong := misfit(plan, name, state)):
            yield Objection(f"{wrong} in its plan is not what its tensors have")
            return
        layers.append(Layer.of_plan(plan, name, state) if plan else Layer.of_form(form, name, state))
    first, second = layers
    yield from of_maps(first, second)
    soft = [each for layer in layers for each in of_heads(layer, proved=row["strength"] != "bounded")]
    if soft and not attend_alike(first, second):
        yield from dict.fromkeys(soft)


def of_maps(first: "Layer", second: "Layer") -> Iterator[Objection]:
    """The reasons why two layers with hard heads are not the same map."""
    for what in ("d_in", "d_out", "dtype", "spacing", "stride", "room"):
        ours, theirs = (getattr(layer, what) for layer in (first, second))
        if ours != theirs:
            same = what == "spacing" and first.ratios == second.ratios
            yield Objection(f"{what} is {theirs}, not {ours}", sure=not same)
            return
    if not identical(first.bias, second.bias):
        yield Objection("bias differs")
    for start in dict.fromkeys((*first.starts, *second.starts)):
        if not same_at(start, first, second):
            yield Objection(f"heads {heads_at(second, start)} that start at {start} do something else")
            return
    if first.padding == second.padding and not first.enumerated and not second.enumerated:
        return
    used = [start for start in first.starts if any(random_sum(first, start, random_vector(first)))]
    outside = [start for layer in (first, second) for start in layer.outside if start in used]
    if outside:
        yield Objection(f"a head at {outside[0]} can be out of bounds, which is not checked again", sure=False)
        return
    out = [s for s in first.starts if min(s) < 0 or max(map(add, s, first.room)) > 0]
    if first.padding[2] != second.padding[2] and any(start in used for start in out):
        yield Objection(f"padding is {second.padding[2]}, not {first.padding[2]}")
    elif out and first.padding != second.padding and (first.padding[2], second.padding[2]) != ("zeros", "zeros"):
        yield Objection(f"{second.padding[2]} padding is by other amounts, which is not checked again", sure=False)


def of_heads(layer: "Layer", *, proved: bool) -> Iterator[Objection]:
    """The reasons why a head that adds anything is not hard or, unless `proved`, leaks more than the roundoff.

    With q = exp(-alpha) below 1/4 a head of n axes leaves other keys at most n (theta - 1) < 2.04 n q of its mass, and
    at least q / (1 + q). As computed that is 0 where alpha exceeds (1 - e) ln 2, with 2^e the smallest number.
    """
    working = torch.stack([factor.flatten(1).any(1) for factor in layer.factors]).all(0)
    if not layer.center.numel() or not working.any():
        return
    center, alpha, axes = layer.center[working].double(), layer.alpha[working].double(), layer.center.shape[1]
    shift = (center - center.round()).abs().amax(1)
    apart = (shift > 0) | torch.tensor([start in layer.outside for start in layer.starts])[working]
    if layer.enumerated and (layer.outside or apart.any()):
        yield Objection("an enumerated centre that can be no key is not checked again", sure=False)
        return
    over = torch.tensor(layer.beyond, dtype=torch.float64)[working]
    gaps = 1 - 2 * shift  # from the nearest pixel to the next, in pixels squared
    doubt = torch.where(apart, DOUBT * (over + 1).square().sum(1), 0)
    sure, most = (alpha * (gaps - doubt)).min().item(), (alpha * gaps).min().item()
    vanish, roundoff = (1 - SMALLEST[layer.dtype]) * math.log(2), ROUNDOFF[layer.dtype]
    enough = vanish if proved else math.log(2.04 * axes / roundoff)
    least = vanish if proved else math.log((1 - roundoff) / roundoff)
    if not sure >= enough:
        yield Objection(f"encoding.alpha is {alpha.min().item():g}", sure=most < least * (1 - DOUBT))


def attend_alike(first: "Layer", second: "Layer") -> bool:
    """Whether heads of two attentions that have the same scores do the same together: one map, hard or soft."""
    if not (first.center.numel() and second.center.numel()):
        return False
    keyed = []
    for layer in (first, second):
        heads: Any = zip(layer.starts, map(tuple, layer.center.tolist()), layer.alpha.tolist(), strict=True)
        keyed.append(replace(layer, starts=tuple(heads)))
    alike = first.padding == second.padding and first.enumerated == second.enumerated
    return alike and all(same_at(head, *keyed) for head in dict.fromkeys((*keyed[0].starts, *keyed[1].starts)))


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """A layer as numbers: output o of head or tap t copies pixel `starts[t] + o * stride` of pixels `spacing` apart.

    `factors` are the matrices by which a pixel is multiplied, (terms, rows, columns of a group); a tap has one.
    `padding` is (before, after, mode), and `beyond` how far each head's target can be off the padded grid, by axis.
    """

    groups: int
    spacing: Pixel
    stride: Pixel
    room: Pixel
    padding: tuple[Pixel, Pixel, str]
    starts: tuple[Pixel, ...]
    factors: tuple[Tensor, ...]
    bias: Tensor
    center: Tensor = NOTHING
    alpha: Tensor = NOTHING
    beyond: tuple[Pixel, ...] = ()
    enumerated: bool = False

    @staticmethod
    def of_form(form: Mapping[str, Any], name: str, state: State) -> "Layer":
        """A convolution as the certificate has it, with the weights of the file."""
        weight, groups = state[f"{dotted(name)}weight"], form["groups"]
        if form["transposed"]:
            flipped = weight.flip(list(range(2, weight.ndim)))
            weight = flipped.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        taps, starts = weight.flatten(2).permute(2, 0, 1), tuple(map(tuple, form["starts"]))
        spacing, stride, room, before, after = (tuple(form[key]) for key in FORM)
        lengths = {len(each) for each in (spacing, stride, room, before, after, *starts)}
        if len(starts) != len(taps) or lengths != {weight.ndim - 2}:
            raise ValueError(f"{name} has {len(taps)} taps along {weight.ndim - 2} axes, and its form has not")
        bias = state.get(f"{dotted(name)}bias", torch.zeros(len(weight), dtype=weight.dtype))
        return Layer(groups, spacing, stride, room, (before, after, form["mode"]), starts, (taps,), bias)

    @staticmethod
    def of_plan(plan: Mapping[str, Any], name: str, state: State) -> "Layer":
        """An attention layer of a file."""
        value, output, center, alpha = (state.get(f"{dotted(name)}{key}") for key in HELD)
        assert center is not None
        assert alpha is not None
        factors = tuple(factor.permute(2, 0, 1) for factor in (value, output) if factor is not None)
        line = plan["encoding"] == "enumerated"
        center = center.to(torch.promote_types(factors[-1].dtype, torch.float64 if line else torch.float32))
        before, after, spacing = (tuple(plan["padding"][key]) for key in ("before", "after", "spacing"))
        first, last, stride = (tuple(plan["sites"][key]) for key in ("before", "after", "stride"))
        room = tuple(b + a - f - e for b, a, f, e in zip(before, after, first, last, strict=True))
        pixels = [tuple(round(x) for x in pixel) for pixel in center.tolist()]
        starts = tuple(tuple(f + x - b for f, x, b in zip(first, pixel, before, strict=True)) for pixel in pixels)
        beyond = tuple(
            tuple(max(0, -f - x, x - e) for f, x, e in zip(first, pixel, last, strict=True)) for pixel in pixels
        )
        bias = state.get(f"{dotted(name)}bias", torch.zeros(plan["d_out"], dtype=factors[-1].dtype))
        numbers = factors, bias, center, alpha, beyond, line and len(first) > 1
        return Layer(plan["groups"], spacing, stride, room, (before, after, plan["padding"]["mode"]), starts, *numbers)

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.factors[0].shape[2] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.factors[-1].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the factors."""
        return self.factors[-1].dtype

    @property
    def ratios(self) -> list[Fraction]:
        """By how many outputs a pixel is apart from the next along each axis."""
        return [Fraction(p, s) for p, s in zip(self.spacing, self.stride, strict=True)]

    @property
    def outside(self) -> list[Pixel]:
        """The starts of heads whose target can be off the padded grid."""
        return [start for start, over in zip(self.starts, self.beyond, strict=False) if any(over)]


def misfit(plan: Mapping[str, Any], name: str, state: State) -> str:
    """Which entry of a layer's plan its tensors do not have, so that no layer is rebuilt; empty if all fit."""
    heads, axes = state[f"{dotted(name)}encoding.center"].shape
    d_in, d_out, d_head, groups = widths = [plan[key] for key in ("d_in", "d_out", "d_head", "groups")]
    if any(type(width) is not int or width < 1 for width in widths) or any(width % groups for width in widths):
        return "a width"
    shapes: dict[str, tuple[int, ...]] = {"encoding.center": (heads, axes), "encoding.alpha": (heads,)}
    shapes |= {"value": (d_head, d_in // groups, heads)} if plan["value"] else {}
    shapes |= {"output": (d_out, d_head // groups, heads)} if plan["output"] else {}
    shapes |= {"bias": (d_out,)} if plan["bias"] else {}
    held = {key[len(dotted(name)) :]: tuple(state[key].shape) for key in belonging(name, state)}
    if wrong := sorted(key for key in {*shapes, *held} if shapes.get(key) != held.get(key)):
        return wrong[0]
    if d_head != (d_head if plan["value"] else d_in) or d_head != (d_head if plan["output"] else d_out):
        return "d_head"
    if not (plan["value"] or plan["output"]) or any(plan[key] for key in CONTENT):
        return "content"
    if plan["stride_by"] not in ("queries", "pooling") or list(plan["positions"]) != [heads, axes]:
        return "stride_by or positions"
    amounts = [plan["padding"][key] for key in ("before", "after", "spacing")]
    amounts += [plan["sites"][key] for key in ("before", "after", "stride")]
    if any(len(each) != axes or any(type(x) is not int for x in each) for each in amounts):
        return "padding or sites"
    positive = min(*plan["padding"]["spacing"], *plan["sites"]["stride"]) >= 1
    return "" if positive and plan["padding"]["mode"] in MODES else "padding or sites"


def heads_at(layer: Layer, start: Pixel) -> list[int]:
    """The heads or taps that start at a pixel."""
    return [head for head, each in enumerate(layer.starts) if each == start]


def same_at(start: Pixel, first: Layer, second: Layer) -> bool:
    """Whether the heads that start at a pixel have the same sum of taps in both layers.

    One tap a side is compared number by number. Otherwise both sums are applied to a vector of random 256-bit integers,
    in exact arithmetic: two different matrices agree on it with a chance of 2^-256 at most.
    """
    sides = [(layer, heads_at(layer, start)) for layer in (first, second)]
    if all(len(heads) == 1 and len(layer.factors) == 1 for layer, heads in sides) and first.groups == second.groups:
        return identical(*(layer.factors[0][heads] for layer, heads in sides))
    vector = random_vector(first)
    return random_sum(first, start, vector) == random_sum(second, start, vector)


def random_vector(layer: Layer) -> Sequence[Exact]:
    """One random 256-bit integer per input channel."""
    return [int.from_bytes(token_bytes()) for _ in range(layer.d_in)]


def random_sum(layer: Layer, start: Pixel, vector: Sequence[Exact]) -> Sequence[Exact]:
    """The exact sum, over the heads that start at a pixel, of their factors times a vector."""
    total: Sequence[Exact] = [0] * layer.d_out
    for head in heads_at(layer, start):
        passed = vector
        for factor in layer.factors:
            passed = in_groups(factor[head], passed, layer.groups)
        total = [a + b for a, b in zip(total, passed, strict=True)]
    return total


def in_groups(matrix: Tensor, vector: Sequence[Exact], groups: int) -> Sequence[Exact]:
    """The exact product of the diagonal blocks of a matrix of floats and a vector of rational numbers."""
    rows, width = [[Fraction(x) for x in row] for row in matrix.tolist()], matrix.shape[1]
    parts = [vector[width * (place * groups // len(rows)) :][:width] for place in range(len(rows))]
    return [sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(rows, parts, strict=True)]


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
    told = json.loads(held.metadata["conv2attn"]) if "conv2attn" in held.metadata else held.content
    means = [key.removesuffix(MEAN) for key in state.tensors if key.endswith(MEAN)]
    tensors = {**{f"{name}{COUNTER}": torch.tensor(0) for name in means}, **state.tensors}
    return told if told.get("conv2attn") == FORMAT else {}, tensors


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


def belonging(name: str, *states: State) -> list[str]:
    """The keys of the tensors of a layer; of a single layer, all keys."""
    return sorted({key for state in states for key in state if key.startswith(dotted(name))})


def dotted(name: str) -> str:
    """How the keys of a layer's tensors begin."""
    return f"{name}." if name else ""


def same_bits(first: State, second: State, key: str) -> bool:
    """Whether a tensor is in both with the same dtype, shape and bits: zeros have signs, and a NaN is itself."""
    a, b = first.get(key), second.get(key)
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b)))


def same_numbers(first: State, second: State, key: str) -> bool:
    """Whether a tensor is in both with the same dtype, shape and numbers."""
    return key in first and key in second and identical(first[key], second[key])


def identical(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and numbers."""
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())


def is_regular(path: str, *, folder: bool = False) -> bool:
    """Whether a path names a regular file, or a folder: not a FIFO or device, nor a name that no file can have."""
    try:
        return Path(path).is_file() or (folder and Path(path).is_dir())
    except (OSError, ValueError):
        return False


def shortened(path: str, most: int = 80) -> str:
    """A path that fits a sentence."""
    return path if len(path) <= most else f"...{path[-most:]}"
