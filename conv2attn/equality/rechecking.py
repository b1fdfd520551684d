"""Checks a stored certificate again: it is derived anew from its two networks, and compared field by field.

Whether two layers are the same map is asked of code of its own as well (`checker`), and no bound may be below the one
that the program of claim ROW proves. What is not derived again, or comes out differently on another machine, is named,
and leaves the certificate undecided.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, final

from torch import nn

from conv2attn.attention.measured_arithmetic import arithmetics
from conv2attn.bounds import Arithmetic, Head, target_rounds_to_one_threshold, worst
from conv2attn.bounds.by_key import heads_of_row
from conv2attn.bounds.row import OutputChannel, Setting, SoftHeads
from conv2attn.equality.checker import LayerNumbers, Objection, objections
from conv2attn.equality.results import ROOT, Certificate
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.report import Document, Notes, Report, counted, document
from conv2attn.verdicts import Verdict

WRITE = "Write one: conv2attn verify A B --report FILE, or conv2attn check-span A --certificate FILE."
MOVED_FILES = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
NAMED = ("command", *(f"{which}{what}" for which in ("original", "converted") for what in ("", " sha256")))
MACHINE = ("arithmetic", "conv2attn", "device", "kernels", "machine", "python", "python-flint", "torch")
MEASURED = {*MACHINE, "bound", "count", "counterexamples", "input_range", "max_error", "outputs", "sentence", "unshown"}
CHARACTERS_SHOWN = 60  # characters of a value in a sentence


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """The result for a stored certificate: `wrong` lists contradictions with it, `unknown` what was not decided.

    `checked` layers were compared by separate code.
    """

    schema: ClassVar[str] = "conv2attn.recheck/2"
    certificate: str
    stored: str
    checked: int
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is wrong, undecided if anything was not derived again, otherwise as stored."""
        if self.wrong:
            return Verdict.REFUTED
        return Verdict.UNDECIDED if self.unknown else Verdict(self.stored)


@document.register
def _(recheck: Recheck, verbose: bool = False) -> Document:
    """The verdict, then the contradictions and the open questions."""
    first = f"; not derived again: {recheck.unknown[0]}" if recheck.unknown and not recheck.wrong else ""
    verdict = f"{recheck.verdict.value}: {recheck.certificate}{first}"
    counts = f"{counted(recheck.checked, 'layer')} checked by separate code too; stored verdict: {recheck.stored}"
    if recheck.verdict is Verdict(recheck.stored) is Verdict.REFUTED and not recheck.wrong:
        counts += ", which is right"
    return Document((verdict,), (Notes((*recheck.wrong, *recheck.unknown, counts)),), recheck.verdict)


def read_certificate(path: str) -> dict[str, Any]:
    """The document in a file, which names the command that wrote it, two files and their hashes.

    Raises:
        CheckpointError: it is not there (C2A301).
        UsageError: it is no certificate of two files (C2A303).
    """
    if not is_regular(path):
        raise CheckpointError("C2A301", f"{path[-80:]} is not a regular file", "Pass the path of a file.")
    try:
        body = json.loads(Path(path).read_text())
        circumstances = [body["circumstances"][key] for key in NAMED]
        named = all(isinstance(each, str) for each in circumstances) and isinstance(body["rows"], list)
        Verdict(body["verdict"])
    except (OSError, RecursionError, LookupError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of one"
        raise UsageError("C2A303", f"{path} is no certificate of two files: {why}", WRITE) from error
    if not named:
        raise UsageError("C2A303", f"{path} is no certificate of two files: it names none", WRITE)
    return dict(body)


def recheck_certificate(
    path: str, body: Mapping[str, Any], networks: tuple[nn.Module, nn.Module], anew: Certificate
) -> Recheck:
    """The result for the certificate `body` in the file at `path`, which `certify` derived `anew` from the networks."""
    fresh, stored = anew.to_dict(), body.get("circumstances")
    if isinstance(stored, dict) and "repeat" in stored:  # which names the file of a saved input
        fresh["circumstances"]["repeat"] = stored["repeat"]
    checked, every = 0, list(compare_documents(body, fresh))
    stored_rows, here = rows_by_name(body), not any(each.sentence.startswith("circumstances") for each in every)
    for row in (each for each in anew.rows if not each.skipped):
        layers = [dict(side.named_modules()).get("" if row.name == ROOT else row.name) for side in networks]
        if layers[0] is None or layers[1] is None:
            if row.part("weights"):
                every.append(Objection(f"{row.name} by separate code, since its layers have other names", sure=False))
            continue
        contradictions = list(too_small(stored_rows.get(row.name, {}), layers[0], layers[1], sure=here))
        if row.part("weights"):
            bounded = row.strength is not None and row.strength.value == "bounded"
            sentences = list(objections(layers[0], layers[1], bounded=bounded))
            checked += not contradictions and not sentences
            contradictions += sentences if anew else []
        every += [Objection(f"{row.name}: {each.sentence}", each.sure) for each in contradictions]
    wrong, unknown = (tuple(each.sentence for each in every if each.sure is sure) for sure in (True, False))
    return Recheck(path, body["verdict"], checked, wrong, unknown)


def rows_by_name(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a stored certificate that have names."""
    rows = body.get("rows")
    every = [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    return {each["name"]: each for each in every if isinstance(each.get("name"), str)}


def too_small(row: Mapping[str, Any], first: nn.Module, second: nn.Module, *, sure: bool) -> Iterator[Objection]:
    """The objection to a stored row whose bound is below `proved_bound`."""
    bound, within = (row.get(field) for field in ("bound", "input_range"))
    ours, theirs = (LayerNumbers.of(each) for each in (first, second))
    if not isinstance(bound, float) or not isinstance(within, float) or not math.isfinite(bound + within):
        return
    if ours is None or theirs is None:
        return
    least = proved_bound(ours, theirs, Fraction(within))
    if least is not None and Fraction(bound) < least:
        yield Objection(f"the bound {bound:g} is below {float(least):g}, which is proved", sure)


def proved_bound(convolution: LayerNumbers, converted: LayerNumbers, input_range: Fraction) -> Fraction | None:
    """The bound on two layers as computed by direct sums, by claim ROW of proofs/: products of factors left out.

    None where the first is no convolution, or nothing is known.
    """
    weights, biases = convolution.factors[0].double().abs().sum((0, 2)), convolution.biases.double().abs()
    if convolution.alpha or not (weights.isfinite().all() and biases.isfinite().all()):
        return None
    own = worst(arithmetics("dense", convolution.dtype, convolution.biases.device.type))
    first, second = (
        Setting.of(layer.terms, own.format, casts=2, truncating=own.truncates, flush_to_zero=own.flushes)
        for layer in (convolution, converted)
    )
    channel = int((weights * float(input_range) + biases).argmax())
    sums = Fraction(weights[channel].item()) * (1 - Fraction(1, 2**30))  # as it may be rounded
    return OutputChannel.of(sums, biases[channel].item(), input_range, first, second, row_heads(converted, own)).proved


def row_heads(layer: LayerNumbers, arithmetic: Arithmetic) -> SoftHeads | None:
    """The heads of a layer as claim ROW takes them, on no more keys than one; None where all may be one-hot."""
    working, axes = layer.working() if layer.alpha else [], len(layer.stride)
    alpha = min((layer.alpha[head] for head in working), default=math.inf)
    hard = target_rounds_to_one_threshold(arithmetic.format, axes, arithmetic.exp_ulps)
    if not alpha < hard or any(layer.apart[head] for head in working):
        return None
    return heads_of_row(Head(alpha, (0.0,) * axes), (1,) * axes, arithmetic, 0.0)


def compare_documents(stored: Any, anew: Any, path: str = "") -> Iterator[Objection]:
    """The fields of two documents that differ; those that measurements or another machine may change are not sure."""
    if isinstance(stored, dict) and isinstance(anew, dict):
        for key in dict.fromkeys((*anew, *stored)):
            inner = f"{path}.{json.dumps(key)[1:-1]}".removeprefix(".")
            yield from compare_documents(stored.get(key, ...), anew.get(key, ...), inner)
    elif isinstance(stored, list) and isinstance(anew, list) and len(stored) == len(anew):
        for place, pair in enumerate(zip(stored, anew, strict=True)):
            yield from compare_documents(*pair, f"{path}[{place}]")
    elif type(stored) is not type(anew) or stored != anew:
        before, after = (
            ("missing" if each is ... else json.dumps(each, default=str))[:CHARACTERS_SHOWN] for each in (stored, anew)
        )
        measured = any(each.partition("[")[0] in MEASURED for each in path.split("."))
        yield Objection(f"{path} is {before}, and {after} when derived anew", sure=not measured)


def is_regular(path: str, *, folder: bool = False) -> bool:
    """Whether a path names a regular file, or a folder: not a FIFO or device, nor a name that no file can have."""
    try:
        return Path(path).is_file() or (folder and Path(path).is_dir())
    except (OSError, ValueError):
        return False
