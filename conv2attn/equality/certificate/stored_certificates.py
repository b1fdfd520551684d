"""Reads stored certificates without duplicate keys, and compares them with others field by field."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conv2attn.equality.certificate.results import Certificate
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
        CheckpointError: there is no regular file at the path (C2A301).
        UsageError: it is not a certificate of two files, or its schema has another number (C2A303).
    """
    if not is_regular(path):
        raise CheckpointError("C2A301", f"{path[-80:]} is not a regular file", "Pass the path of a file.")
    try:
        body = json.loads(Path(path).read_text(), object_pairs_hook=without_doubles)
        schema, circumstances = body["schema"], [body["circumstances"][key] for key in NAMED]
        named = all(isinstance(each, str) for each in circumstances) and isinstance(body["rows"], list)
        Verdict(body["verdict"])
    except (OSError, RecursionError, LookupError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not the JSON of a certificate"
        raise UsageError("C2A303", f"{path} is not a certificate of two files: {why}", WRITE) from error
    if not named:
        raise UsageError("C2A303", f"{path} is not a certificate of two files: it names none", WRITE)
    # With another schema number fields mean something else, so a difference from those derived anew refutes nothing.
    if schema != (schema_read := Certificate(()).schema):
        raise UsageError("C2A303", f"{path} is of schema {str(schema)[:CHARACTERS_SHOWN]}, not {schema_read}", WRITE)
    return dict(body)


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON mapping without duplicate keys.

    Raises:
        ValueError: a key occurs twice.
    """
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def compare_documents(stored: Any, anew: Any, *, here: bool = False) -> Iterator[tuple[str, bool]]:
    """A sentence on each field that differs between two documents, and whether the difference counts: it does not where
    measurements or another machine may change the field.

    Args:
        here: whether both are from equal machines and versions: then a bound depends on the networks alone.
    """
    before, after = dict(fields_of(stored)), dict(fields_of(anew))
    for path in {**after, **before}:
        values = [each.get(path, ...) for each in (before, after)]
        if type(values[0]) is type(values[1]) and values[0] == values[1]:
            continue
        words = ["missing" if each is ... else json.dumps(each, default=str)[:CHARACTERS_SHOWN] for each in values]
        measured = any(each.partition("[")[0] in MEASURED for each in path.split("."))
        yield (
            f"{path} is {words[0]}, and {words[1]} when derived anew",
            not measured or (here and path.endswith(".bound")),
        )


def fields_of(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a document by their paths. The length of a list and the presence of a mapping are fields too."""
    if isinstance(document, dict):
        yield path, {}
        for key, value in document.items():
            yield from fields_of(value, f"{path}.{json.dumps(key)[1:-1]}".removeprefix("."))
    elif isinstance(document, list):
        yield path, [len(document)]
        for place, value in enumerate(document):
            yield from fields_of(value, f"{path}[{place}]")
    else:
        yield path, document


def is_regular(path: str, *, folder: bool = False) -> bool:
    """Whether a path names a regular file or a folder, not a FIFO, a device, or an invalid name."""
    try:
        return Path(path).is_file() or (folder and Path(path).is_dir())
    except (OSError, ValueError):
        return False
