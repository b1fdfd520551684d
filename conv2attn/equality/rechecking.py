"""Checks a stored certificate again: it is derived anew from its two networks, and compared field by field.

Whether both networks are the same is asked by other means as well: as formulas, at a drawn size, whatever way the
certificate took. No bound may be below the one that the program of claim ROW proves. What is not derived again, or
comes out differently on another machine, is named, and leaves the certificate undecided.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from msgspec.structs import replace
from torch import nn

from conv2attn.arguments import first_weight
from conv2attn.equality.fingerprint import Identification, identify
from conv2attn.equality.results import ROOT, Certificate
from conv2attn.equality.runs import has_attention, with_layers_of_the_first
from conv2attn.equality.stored_bounds import Objection, too_small
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.layers.attention import set_engine
from conv2attn.networks.conversion.replacement import copy_network
from conv2attn.report import Document, Notes, Report, document
from conv2attn.verdicts import Strength, Verdict

WRITE = "Write one: conv2attn verify A B --report FILE, or conv2attn check-span A --certificate FILE."
MOVED_FILES = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
NAMED = ("command", *(f"{which}{what}" for which in ("original", "converted") for what in ("", " sha256")))
MACHINE = ("arithmetic", "conv2attn", "device", "kernels", "machine", "python", "python-flint", "torch")
MEASURED = {*MACHINE, "bound", "count", "counterexamples", "input_range", "max_error", "outputs", "sentence", "unshown"}
MOST_PIXELS = 32  # a side, of a drawn size
BITS_OF_CHANCE = 4  # by which secret primes that are drawn anew may change it
CHARACTERS_SHOWN = 60  # characters of a value in a sentence


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """The result for a stored certificate: `wrong` lists contradictions with it, `unknown` what was not decided.

    Both networks are one formula of images of this `size`, but for a chance of 2^`log2_chance`.
    """

    schema: ClassVar[str] = "conv2attn.recheck/3"
    certificate: str
    stored: str
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    log2_chance: float | None = None
    size: tuple[int, ...] = ()

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
    counts = f"stored verdict: {recheck.stored}"
    if recheck.log2_chance is not None:
        size = "x".join(map(str, recheck.size))
        counts = f"one formula of images {size} too, but for a chance of 2^{recheck.log2_chance:.0f}; {counts}"
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
        body = json.loads(Path(path).read_text(), object_pairs_hook=without_doubles)
        circumstances = [body["circumstances"][key] for key in NAMED]
        named = all(isinstance(each, str) for each in circumstances) and isinstance(body["rows"], list)
        Verdict(body["verdict"])
    except (OSError, RecursionError, LookupError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of one"
        raise UsageError("C2A303", f"{path} is no certificate of two files: {why}", WRITE) from error
    if not named:
        raise UsageError("C2A303", f"{path} is no certificate of two files: it names none", WRITE)
    return dict(body)


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON in which no key comes twice.

    Raises:
        ValueError: one does.
    """
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def recheck_certificate(
    path: str, body: Mapping[str, Any], networks: tuple[nn.Module, nn.Module], anew: Certificate
) -> Recheck:
    """The result for the certificate `body` in the file at `path`, which `certify` derived `anew` from the networks."""
    fresh, stored = with_stored_chance(anew, body).to_dict(), body.get("circumstances")
    if isinstance(stored, dict) and "repeat" in stored:  # which names the file of a saved input
        fresh["circumstances"]["repeat"] = stored["repeat"]
    every = list(compare_documents(body, fresh))
    stored_rows, here = rows_by_name(body), not any(each.sentence.startswith("circumstances") for each in every)
    for row in (each for each in anew.rows if not each.skipped):
        layers = [dict(side.named_modules()).get("" if row.name == ROOT else row.name) for side in networks]
        if layers[0] is not None and layers[1] is not None:
            sentences = too_small(stored_rows.get(row.name, {}), layers[0], layers[1], sure=here)
            every += [Objection(f"{row.name}: {each.sentence}", each.sure) for each in sentences]
    found = identified_again(networks, anew) if anew else None
    if found is not None and not found.equal:
        why = found.reason or "they are told apart"
        every.append(Objection(f"that both are one formula: {why}", sure=False))
    wrong, unknown = (tuple(each.sentence for each in every if each.sure is sure) for sure in (True, False))
    chance, size = (found.log2_chance, found.size) if found is not None else (None, ())
    return Recheck(path, body["verdict"], wrong, unknown, chance, size)


def with_stored_chance(anew: Certificate, body: Mapping[str, Any]) -> Certificate:
    """The certificate with the chance of the stored one, where secret primes drawn anew explain the difference."""
    known = body.get("identified")
    chance = known.get("log2_chance") if isinstance(known, dict) else None
    if anew.identified is None or not isinstance(chance, float):
        return anew
    if not abs(chance - anew.identified.log2_chance) <= BITS_OF_CHANCE:
        return anew
    return replace(anew, identified=replace(anew.identified, log2_chance=chance))


def identified_again(networks: tuple[nn.Module, nn.Module], anew: Certificate) -> Identification:
    """Whether both are one formula at a drawn size of at most 32 pixels a side, or at the size of the certificate.

    At a drawn size converted layers are evaluated by the engine `dense`, so that their one-hot rows are checked too.
    Layers whose leak is bounded, and functions, whose bounds and maps are derived anew, are the first's in both.
    """
    apart = {row.name for row in anew.rows if row.strength is Strength.BOUNDED or ":" in row.name}
    names = {name.partition(":")[0].removeprefix(ROOT) for name in apart}
    first, second = with_layers_of_the_first(networks, names) if names else networks
    (size,) = anew.state.sizes
    own = first_weight(first)
    drawn = (size[0], *(min(side, MOST_PIXELS) - secrets.randbelow(4) for side in size[1:]))
    for each in (drawn, size):
        if min(each) < 1:
            continue
        images = torch.rand(1, *each).to(torch.empty(0) if own is None else own.detach())
        shown = set_engine(copy_network(second), "dense") if each is drawn and has_attention(second) else second
        found = identify(first, shown, images)
        if found.equal is not None:
            return found
    return identify(first, second, torch.rand(1, *size).to(torch.empty(0) if own is None else own.detach()))


def rows_by_name(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a stored certificate that have names."""
    rows = body.get("rows")
    every = [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    return {each["name"]: each for each in every if isinstance(each.get("name"), str)}


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
