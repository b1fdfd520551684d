"""Reads stored certificates without duplicate keys, and compares them with others field by field."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict

WRITE = "Write one: conv2attn verify A B --report FILE, or conv2attn check-span A --certificate FILE."
NAMED = ("command", *(f"{which}{what}" for which in ("original", "converted") for what in ("", " sha256")))
MACHINE = ("arithmetic", "conv2attn", "device", "kernels", "machine", "python", "python-flint", "torch")
MEASURED = {
    *MACHINE,
    "bound",
    "count",
    "counterexamples",
    "input_range",
    "max_error",
    "outputs",
    "place",
    "rounded",
    "sentence",
    "threads",
    "unshown",
}
CHARACTERS_SHOWN = 60  # characters of a value in a sentence


def read_certificate(path: str) -> dict[str, Any]:
    """The document in a file, with the command that wrote it, two file names and their hashes.

    Raises:
        CheckpointError: the file does not exist (C2A301).
        UsageError: it is not a certificate of two files (C2A303).
    """
    if not is_regular(path):
        raise CheckpointError("C2A301", f"{path[-80:]} is not a regular file", "Pass the path of a file.")
    try:
        body = json.loads(Path(path).read_text(), object_pairs_hook=without_doubles)
        circumstances = [body["circumstances"][key] for key in NAMED]
        named = all(isinstance(each, str) for each in circumstances) and isinstance(body["rows"], list)
        Verdict(body["verdict"])
    except (OSError, RecursionError, LookupError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of a certificate"
        raise UsageError("C2A303", f"{path} is not a certificate of two files: {why}", WRITE) from error
    if not named:
        raise UsageError("C2A303", f"{path} is not a certificate of two files: it names none", WRITE)
    return dict(body)


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON mapping without duplicate keys.

    Raises:
        ValueError: a key occurs twice.
    """
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


@final
@dataclass(frozen=True)
class Objection:
    """One sentence against a certificate; unless `sure`, it only leaves the certificate undecided."""

    sentence: str
    sure: bool = True


def compare_documents(stored: Any, anew: Any, path: str = "", *, here: bool = False) -> Iterator[Objection]:
    """The fields in which two documents differ; not sure for fields that measurements or another machine may change.

    Args:
        here: whether both are from equal machines and versions: then a bound depends on the networks alone.
    """
    if isinstance(stored, dict) and isinstance(anew, dict):
        for key in dict.fromkeys((*anew, *stored)):
            inner = f"{path}.{json.dumps(key)[1:-1]}".removeprefix(".")
            yield from compare_documents(stored.get(key, ...), anew.get(key, ...), inner, here=here)
    elif isinstance(stored, list) and isinstance(anew, list) and len(stored) == len(anew):
        for place, pair in enumerate(zip(stored, anew, strict=True)):
            yield from compare_documents(*pair, f"{path}[{place}]", here=here)
    elif type(stored) is not type(anew) or stored != anew:
        before, after = (
            ("missing" if each is ... else json.dumps(each, default=str))[:CHARACTERS_SHOWN] for each in (stored, anew)
        )
        measured = any(each.partition("[")[0] in MEASURED for each in path.split("."))
        sure = not measured or (here and path.endswith(".bound"))
        yield Objection(f"{path} is {before}, and {after} when derived anew", sure=sure)


def is_regular(path: str, *, folder: bool = False) -> bool:
    """Whether a path names a regular file or a folder, not a FIFO, a device, or an invalid name."""
    try:
        return Path(path).is_file() or (folder and Path(path).is_dir())
    except (OSError, ValueError):
        return False
